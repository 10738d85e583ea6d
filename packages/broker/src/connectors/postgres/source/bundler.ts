/**
 * From changes in the order of the upstream to bundles: the messages of one transaction of the store, and the place in
 * the upstream that they reach.
 *
 * What is added whole is a unit: the messages of an upstream transaction, a row of a snapshot, a position that has
 * none. Units gather until the next one would exceed a limit, or until somebody asks for them. A transaction that no bundle
 * can hold is cut before a change; its pieces leave the position where it is and say how many changes are in.
 *
 * The place of a bundle describes exactly what it and those before it hold. That is all there is to a restart: begin a
 * new bundler with the place of the last bundle that was committed, and feed it what comes behind that.
 *
 * Pure: no I/O; the time is an argument.
 */
import { invariant } from '../../../store/invariant.ts';
import type { Place } from './pointer.ts';
import type { SnapshotState } from './snapshot/state.ts';

export interface OutMessage {
  readonly queue: string;
  readonly partition: string;
  readonly payload: Buffer;
  readonly transactionId: string;
}

export interface BundleLimits {
  readonly messagesMax: number;
  readonly bytesMax: number;
}

export interface Bundle {
  readonly messages: readonly OutMessage[];
  readonly bytes: number;
  /** What the queues hold once it is committed. */
  readonly place: Place;
  /** Upstream transactions that end in it and have messages. */
  readonly transactions: number;
  readonly snapshotRows: number;
}

/** What a message costs besides its payload and its names. */
const MESSAGE_BYTES = 64;

const queueBytes = byteLengths();
const partitionBytes = byteLengths();

export function messageBytes({ queue, partition, payload, transactionId }: OutMessage): number {
  return (
    payload.length + queueBytes(queue) + partitionBytes(partition) + transactionId.length + MESSAGE_BYTES
  );
}

/** Bytes of a name in UTF-8, which is mostly the one before. */
function byteLengths(): (name: string) => number {
  let last = '';
  let bytes = 0;
  return (name) => {
    if (name !== last) {
      last = name;
      bytes = Buffer.byteLength(name);
    }
    return bytes;
  };
}

class Gathering {
  readonly messages: OutMessage[] = [];
  bytes = 0;
  transactions = 0;
  snapshotRows = 0;

  add(messages: readonly OutMessage[], bytes: number): void {
    for (const message of messages) this.messages.push(message);
    this.bytes += bytes;
  }
}

/** An upstream transaction that is being received. */
interface Open {
  readonly commitLsn: bigint;
  gathered: Gathering;
}

export class Bundler {
  /** What units that are added from now on say of the snapshot. */
  snapshot: SnapshotState | null;
  readonly #limits: BundleLimits;
  readonly #out: (bundle: Bundle) => void;
  #ready = new Gathering();
  /** Of everything that was added whole. */
  #place: Place;
  /** Of the last bundle. */
  #left: Place;
  #open: Open | null = null;
  #sinceMs: number | null = null;

  /** `start`: what the queues hold. `out`: takes each bundle, in order. */
  constructor(limits: BundleLimits, start: Place, out: (bundle: Bundle) => void) {
    this.#limits = limits;
    this.#place = start;
    this.#left = start;
    this.snapshot = start.snapshot;
    this.#out = out;
  }

  /** Since when messages have been waiting for company; null: none are. */
  get waitingSinceMs(): number | null {
    return this.#sinceMs;
  }

  /** No transaction is being received, none was left in pieces, and nothing has gathered. */
  get idle(): boolean {
    return this.#open === null && this.#place.inTxn === null && this.#ready.messages.length === 0;
  }

  /** Something was added, be it only a position, that no bundle has carried. */
  get moved(): boolean {
    return this.#place !== this.#left;
  }

  begin(commitLsn: bigint): void {
    invariant(this.#open === null, 'bundler_begin', { commitLsn: String(commitLsn) });
    this.#open = { commitLsn, gathered: new Gathering() };
  }

  /** All messages of one row change, which stay together. `raw`: its number in its transaction. */
  change(raw: number, messages: readonly OutMessage[]): void {
    const open = this.#open;
    invariant(open !== null, 'bundler_change', { raw });
    let bytes = 0;
    for (const message of messages) bytes += messageBytes(message);
    if (open.gathered.messages.length > 0 && !this.#fits(open.gathered, messages.length, bytes)) {
      this.#cut(open, raw);
    }
    open.gathered.add(messages, bytes);
  }

  commit(endLsn: bigint, nowMs: number): void {
    const open = this.#open;
    invariant(open !== null, 'bundler_commit', { endLsn: String(endLsn) });
    this.#open = null;
    const { gathered } = open;
    if (gathered.messages.length > 0) {
      if (!this.#fits(this.#ready, gathered.messages.length, gathered.bytes)) this.flush();
      if (this.#ready.messages.length === 0) this.#ready = gathered;
      else this.#ready.add(gathered.messages, gathered.bytes);
      this.#ready.transactions++;
    }
    this.#added({ lsn: endLsn, inTxn: null, snapshot: this.snapshot }, nowMs);
  }

  /** A row of a snapshot, which stands at `lsn`. `state`: where the snapshot is with it. */
  row(message: OutMessage, lsn: bigint, state: SnapshotState | null, nowMs: number): void {
    const bytes = messageBytes(message);
    if (!this.#fits(this.#ready, 1, bytes)) this.flush();
    this.#ready.add([message], bytes);
    this.#ready.snapshotRows++;
    this.snapshot = state;
    this.#added({ lsn: this.#furthest(lsn), inTxn: null, snapshot: state }, nowMs);
  }

  /** Nothing that concerns us lies before `lsn`. Ignored while something does. */
  position(lsn: bigint): void {
    const { inTxn } = this.#place;
    if (this.#open !== null || lsn <= this.#place.lsn) return;
    // The transaction that left in pieces comes again from its beginning, before its own end.
    if (inTxn !== null && lsn <= inTxn.commitLsn) return;
    this.#place = { lsn, inTxn: null, snapshot: this.snapshot };
  }

  /** The snapshot has come to `state`, whether it had rows or not. */
  chunkEnd(lsn: bigint, state: SnapshotState | null): void {
    this.snapshot = state;
    this.#place = { lsn: this.#furthest(lsn), inTxn: null, snapshot: state };
    this.flush(true);
  }

  /** Hands out what has gathered; with `positions` also a place that has no messages. */
  flush(positions = false): void {
    const ready = this.#ready;
    if (ready.messages.length === 0 && !(positions && this.moved)) return;
    this.#ready = new Gathering();
    this.#sinceMs = null;
    this.#left = this.#place;
    this.#out({ ...fields(ready), place: this.#place });
  }

  /** A piece of a transaction that does not fit into a bundle. What came before it goes before it. */
  #cut(open: Open, raw: number): void {
    this.flush();
    const { lsn } = this.#place;
    this.#place = { lsn, inTxn: { commitLsn: open.commitLsn, done: raw }, snapshot: this.snapshot };
    this.#left = this.#place;
    const piece = open.gathered;
    open.gathered = new Gathering();
    this.#out({ ...fields(piece), place: this.#place });
  }

  #added(place: Place, nowMs: number): void {
    this.#place = place;
    const { messages, bytes } = this.#ready;
    if (messages.length === 0) return;
    this.#sinceMs ??= nowMs;
    if (messages.length >= this.#limits.messagesMax || bytes >= this.#limits.bytesMax) this.flush();
  }

  #fits(gathered: Gathering, messages: number, bytes: number): boolean {
    const { messagesMax, bytesMax } = this.#limits;
    return gathered.messages.length + messages <= messagesMax && gathered.bytes + bytes <= bytesMax;
  }

  #furthest(lsn: bigint): bigint {
    return lsn > this.#place.lsn ? lsn : this.#place.lsn;
  }
}

function fields({ messages, bytes, transactions, snapshotRows }: Gathering) {
  return { messages, bytes, transactions, snapshotRows };
}
