/**
 * One pop's claims: rounds of candidates until the budget of messages, partitions or bytes is spent or the source has
 * nothing more. Each round is one statement (two more where the group meets partitions for the first time), and the
 * segments are decoded after it, without a connection.
 *
 * What was claimed and is not delivered after all is taken back at once: a batch that cannot be read, and everything when
 * the client has gone.
 */
import { buggify } from '../../observability/buggify.ts';
import type { Queryable } from '../../store/database.ts';
import { StoreError } from '../../store/errors.ts';
import type { StoreLog } from '../../store/log.ts';
import { CLAIM, type ClaimRow, claim, MEET, meet, undo, unread } from '../../store/pop.ts';
import type { Clock } from '../clock.ts';
import type { PopClaim, PoppedMessage } from '../types.ts';
import { CorruptSegment, decodeClaim, type OpenPayload } from './decode.ts';
import { CORRUPT_PARK_MS, DRAW_MAX } from './settings.ts';
import type { Source } from './source.ts';

export interface HarvestOptions {
  group: string;
  /** Null: commit at delivery. */
  worker: string | null;
  batch: number;
  /** 0: no cap. */
  partitions: number;
  bytesMax: number;
  leaseSeconds: number;
  windowBatch: number;
  open: OpenPayload | null;
}

/**
 * How long one attempt goes on over candidates that come to nothing. What it visited is settled, so the next attempt
 * goes on behind it.
 */
const PATIENCE_MS = 2_000;

export interface HarvestDeps {
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  clock: Clock;
  log: StoreLog;
  counters: HarvestCounters;
  /** One claim statement: messages that it took, and milliseconds until its answer. */
  fired?: ((items: number, ms: number) => void) | undefined;
}

export interface HarvestCounters {
  claimCalls: number;
  claims: number;
  messages: number;
  emptyVerdicts: number;
  undone: number;
  corruptSegments: number;
}

export interface Claimed {
  readonly row: ClaimRow;
  readonly messages: PoppedMessage[];
}

export class Harvest {
  readonly claimed: Claimed[] = [];
  /** Batches that could not be read and were given back. */
  readonly corrupt: CorruptSegment[] = [];
  readonly #deps: HarvestDeps;
  readonly #options: HarvestOptions;
  readonly #source: Source;
  readonly #signal: AbortSignal | null;
  #batch: number;
  #bytes: number;

  constructor(deps: HarvestDeps, options: HarvestOptions, source: Source, signal: AbortSignal | null) {
    this.#deps = deps;
    this.#options = options;
    this.#source = source;
    this.#signal = signal;
    this.#batch = options.batch;
    this.#bytes = options.bytesMax;
  }

  /** Rounds until the budget is spent. `sure`: see {@link Source.draw}. */
  async gather(sure: boolean): Promise<void> {
    // No more are drawn than can be used: what one pop holds, others cannot find. A round that met only leased or
    // empty candidates is followed by a larger one, since behind a hundred partitions that others hold there may
    // be a free one.
    const { clock } = this.#deps;
    const started = clock.now();
    let fruitless = 0;
    for (let round = 0; this.#room() > 0 && !this.#source.stale; round++) {
      if (this.#signal?.aborted === true) return;
      if (this.claimed.length === 0 && clock.now() - started > PATIENCE_MS) return;
      const k = Math.min(DRAW_MAX, this.#room() * 2 ** Math.min(fruitless, 6));
      const { ids, queues } = await this.#source.draw(k, this.#batch, sure && round === 0);
      if (ids.length === 0) return;
      const before = this.claimed.length;
      await this.#round(ids, queues);
      fruitless = this.claimed.length > before ? 0 : fruitless + 1;
    }
  }

  /** Takes back every lease of this pop; commits at delivery stay. */
  async undo(): Promise<void> {
    const { worker } = this.#options;
    const claims = this.claimed.splice(0);
    if (worker === null || claims.length === 0) return;
    await this.#takeBack(claims.map(({ row }) => row));
  }

  answer(): PopClaim[] {
    return this.claimed.map(({ row, messages }) => ({
      queue: row.queue as string,
      partition: row.partition as string,
      partitionId: String(row.partitionId),
      lastOffset: row.lastOffset as number,
      deliveryAttempt: row.attempt as number,
      messages,
    }));
  }

  /** Partitions that may still be claimed. */
  #room(): number {
    if (this.#batch <= 0 || this.#bytes <= 0) return 0;
    const { partitions } = this.#options;
    return partitions <= 0 ? Number.POSITIVE_INFINITY : partitions - this.claimed.length;
  }

  async #round(ids: readonly number[], queues: readonly number[]): Promise<void> {
    const waiting = new Set(ids);
    try {
      const rows = await this.#claim(ids, queues);
      const unmet = rows.filter((row) => row.verdict === CLAIM.unmet).map((row) => row.partitionId);
      for (const row of rows) {
        if (row.verdict !== CLAIM.unmet) waiting.delete(row.partitionId);
      }
      await this.#accept(rows);
      if (unmet.length > 0)
        await this.#meet(unmet, waiting, new Map(ids.map((id, i) => [id, queues[i] ?? 0])));
    } catch (error) {
      if (!isUnreadable(error)) throw error;
      const rest = ids.flatMap((id, i) => (waiting.has(id) ? [{ id, queue: queues[i] ?? 0 }] : []));
      waiting.clear();
      await this.#apart(rest, error);
    } finally {
      this.#source.giveBack([...waiting]);
    }
  }

  /**
   * The database could not read what it stores of one of these. In halves, so that one damaged page costs its partition
   * a few statements and the others nothing.
   */
  async #apart(candidates: readonly { id: number; queue: number }[], error: StoreError): Promise<void> {
    const [only] = candidates;
    if (candidates.length === 1) {
      this.#unreadable(new CorruptSegment(only!.id, null, error));
      this.#source.retry(only!.id, CORRUPT_PARK_MS);
      return;
    }
    const half = candidates.length >>> 1;
    for (const part of [candidates.slice(0, half), candidates.slice(half)]) {
      const ids = part.map(({ id }) => id);
      if (this.#room() <= 0 || this.#signal?.aborted === true) this.#source.giveBack(ids);
      else {
        await this.#round(
          ids,
          part.map(({ queue }) => queue),
        );
      }
    }
  }

  #unreadable(error: CorruptSegment, place: { queue?: string | null; partition?: string | null } = {}): void {
    this.#deps.counters.corruptSegments++;
    const { partitionId, baseOffset } = error;
    const facts = { partitionId, baseOffset, ...place, err: error };
    this.#deps.log.error(facts, 'a stored segment cannot be read, its partition is not served past it');
    this.corrupt.push(error);
  }

  /** Creates the rows of a first contact, in a transaction of its own, and claims what they open. */
  async #meet(unmet: number[], waiting: Set<number>, queues: ReadonlyMap<number, number>): Promise<void> {
    const { group } = this.#options;
    const { pinned } = this.#source;
    const verdicts = await this.#deps.run((db) => meet(db, group, unmet, pinned));
    const met: number[] = [];
    unmet.forEach((id, i) => {
      if (verdicts[i] === MEET.met) {
        met.push(id);
        return;
      }
      waiting.delete(id);
      if (verdicts[i] === MEET.busy) this.#source.busy(id);
      else this.#source.outdated(id, verdicts[i] === MEET.missing ? 'missing' : 'unregistered');
    });
    if (met.length === 0 || this.#room() <= 0) return;
    const rows = await this.#claim(
      met,
      met.map((id) => queues.get(id) ?? 0),
    );
    for (const row of rows) waiting.delete(row.partitionId);
    await this.#accept(rows);
  }

  async #claim(candidates: readonly number[], queues: readonly number[]): Promise<ClaimRow[]> {
    const { group, worker, leaseSeconds, windowBatch } = this.#options;
    const room = this.#room();
    this.#deps.counters.claimCalls++;
    try {
      const rows = await this.#deps.run(async (db) => {
        const begun = performance.now();
        const claimed = await claim(db, {
          group,
          candidates,
          queues,
          worker,
          batch: this.#batch,
          partitions: room === Number.POSITIVE_INFINITY ? 0 : room,
          bytesMax: this.#bytes,
          leaseSeconds,
          conflate: this.#source.conflation,
          windowBatch,
        });
        this.#deps.fired?.(messagesIn(claimed), performance.now() - begun);
        return claimed;
      });
      buggify('pop.claimed');
      return rows;
    } catch (error) {
      if (worker !== null && error instanceof StoreError && error.kind === 'in_doubt') {
        this.#freeUnheard(candidates, worker);
      }
      throw error;
    }
  }

  /**
   * The claim may have committed without our hearing of it: those leases would block their partitions. Not what this pop
   * was given before: a candidate may come twice (the news of an older release arrive late), and its batch is on its
   * way to the consumer.
   */
  #freeUnheard(candidates: readonly number[], worker: string): void {
    const given = new Set(this.claimed.map(({ row }) => row.partitionId));
    const claims = candidates
      .filter((partitionId) => !given.has(partitionId))
      .map((partitionId) => ({ partitionId, prevOffset: null, prevCount: null }));
    if (claims.length === 0) return;
    this.#deps
      .run((db) => undo(db, this.#options.group, worker, claims))
      .catch((error: unknown) => {
        this.#deps.log.warn({ err: error }, 'leases of a claim without an answer stay until they expire');
      });
  }

  async #accept(rows: readonly ClaimRow[]): Promise<void> {
    const unreadable: ClaimRow[] = [];
    const empty: ClaimRow[] = [];
    for (const row of rows) {
      if (row.verdict !== CLAIM.claimed) {
        this.#other(row);
        continue;
      }
      try {
        const messages = await decodeClaim(row, this.#options.open);
        // Retention took the segments between the claim and its read.
        if (messages.length === 0) empty.push(row);
        else this.#keep(row, messages);
      } catch (error) {
        if (!(error instanceof CorruptSegment)) throw error;
        this.#unreadable(error, { queue: row.queue, partition: row.partition });
        unreadable.push(row);
      }
    }
    await this.#giveUp(unreadable, empty);
  }

  #keep(row: ClaimRow, messages: PoppedMessage[]): void {
    const { counters } = this.#deps;
    counters.claims++;
    counters.messages += messages.length;
    this.#batch -= messages.length;
    for (const blob of row.blobs ?? []) this.#bytes -= blob.length;
    this.claimed.push({ row: { ...row, blobs: null }, messages });
    this.#source.settle(row, this.#options.worker === null);
  }

  #other(row: ClaimRow): void {
    if (row.verdict === CLAIM.unmet) return;
    this.#deps.counters.emptyVerdicts++;
    if (row.verdict === CLAIM.missing) this.#source.outdated(row.partitionId, 'missing');
    else if (row.verdict === CLAIM.foreign) this.#source.outdated(row.partitionId, 'foreign');
    else this.#source.settle(row, this.#options.worker === null);
  }

  async #giveUp(unreadable: readonly ClaimRow[], empty: readonly ClaimRow[]): Promise<void> {
    for (const row of unreadable) this.#source.retry(row.partitionId, CORRUPT_PARK_MS);
    for (const row of empty) this.#source.retry(row.partitionId);
    const rows = [...unreadable, ...empty];
    if (rows.length === 0) return;
    if (this.#options.worker !== null) await this.#takeBack(rows);
    else await this.#unread(unreadable);
  }

  async #takeBack(rows: readonly ClaimRow[]): Promise<void> {
    const { group, worker } = this.#options;
    try {
      const undone = await this.#deps.run((db) => undo(db, group, worker as string, rows));
      this.#deps.counters.undone += undone.length;
    } catch (error) {
      this.#deps.log.warn(
        { err: error, leases: rows.length },
        'leases that nobody holds stay until they expire',
      );
    }
  }

  /** A commit at delivery of a batch that could not be read: the cursor goes back, unless it was passed already. */
  async #unread(rows: readonly ClaimRow[]): Promise<void> {
    if (rows.length === 0) return;
    const claims = rows.map((row) => ({
      partitionId: row.partitionId,
      committed: row.toOffset as number,
      back: row.position as number,
      count: (row.toOffset as number) - (row.fromOffset as number) + 1,
    }));
    try {
      const back = await this.#deps.run((db) => unread(db, this.#options.group, claims));
      this.#deps.counters.undone += back.length;
      if (back.length === claims.length) return;
    } catch (error) {
      this.#deps.log.warn({ err: error }, 'cursors could not be put back');
    }
    this.#deps.log.error({ claims }, 'cursors stand behind messages that could not be read: seek them back');
  }
}

function messagesIn(rows: readonly ClaimRow[]): number {
  let messages = 0;
  for (const { verdict, fromOffset, toOffset } of rows) {
    if (verdict === CLAIM.claimed) messages += (toOffset as number) - (fromOffset as number) + 1;
  }
  return messages;
}

/** Data or index corrupted, or an input/output error, within what the statement had to read. */
function isUnreadable(error: unknown): error is StoreError {
  return error instanceof StoreError && /^(XX|58)/.test(error.sqlState ?? '');
}
