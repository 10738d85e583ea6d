/**
 * From the messages of the plug-in to units of the bundler: which transactions are in the queues already, which change
 * has which number, which relation is whose, and what events a change makes.
 *
 * Every change of a transaction has a number, also those of tables that nobody asked for: the ids of messages must not
 * depend on what the document says today.
 */
import { lsnDigits } from '../replication/lsn.ts';
import {
  type PgoutputMessage,
  ProtocolViolation,
  type Relation,
  type Tuple,
} from '../replication/pgoutput.ts';
import type { Bundler, OutMessage } from './bundler.ts';
import type { CatalogTable } from './catalog.ts';
import { EventPlace, type MissingColumns, type RowEvent, type TableEncoder } from './events.ts';
import { ALL, RestartFilter } from './filter.ts';
import { SINGLE_PARTITION } from './partition_name.ts';
import type { Place } from './pointer.ts';
import { encoderFor } from './shape.ts';
import { notUtf8 } from './snapshot/reader.ts';
import type { Snapshot } from './snapshot/snapshot.ts';
import type { RowChange } from './snapshot/touches.ts';
import { truncatePayload } from './truncate.ts';
import type { TypeBook } from './types.ts';
import { EncodingFault } from './values.ts';

interface ReaderOptions {
  readonly epoch: string;
  readonly start: Place;
  readonly tables: readonly CatalogTable[];
  readonly types: TypeBook;
  readonly emitTruncates: boolean;
  readonly bundler: Bundler;
  /** Null: nothing is left to copy. */
  readonly snapshot: Snapshot | null;
  readonly nowMs: () => number;
}

/** A relation of the stream that belongs to a configured table. */
export interface Mapped {
  readonly table: CatalogTable;
  readonly relation: Relation;
  readonly encoder: TableEncoder;
}

/** What must be known before a message can be taken. */
type Need =
  | { readonly kind: 'types'; readonly oids: readonly number[] }
  | { readonly kind: 'row'; readonly mapped: Mapped; readonly missing: MissingColumns };

interface Transaction {
  readonly xid: number;
  readonly place: EventPlace;
  /** Begins the ids of its messages. */
  readonly idHead: string;
  /** Changes below are in the queues. */
  readonly skip: number;
  raw: number;
  delivered: boolean;
}

export class ChangeReader {
  /** The highest position that was heard of. */
  received: bigint;
  /** When a change of a configured table, or a heartbeat, came last. */
  ownMs: number;
  truncatesSkipped = 0;
  readonly #options: ReaderOptions;
  readonly #filter: RestartFilter;
  readonly #byName: ReadonlyMap<string, CatalogTable>;
  readonly #relations = new Map<number, Mapped | null>();
  readonly #markers: string;
  #transaction: Transaction | null = null;

  constructor(options: ReaderOptions) {
    this.#options = options;
    this.#filter = new RestartFilter(options.start);
    this.#byName = new Map(options.tables.map((table) => [`${table.schema}.${table.name}`, table]));
    this.#markers = `queen:${options.epoch}`;
    this.received = options.start.lsn;
    this.ownMs = options.nowMs();
  }

  /** Of the transaction that is being received. */
  get xid(): number | null {
    return this.#transaction?.xid ?? null;
  }

  /** What has to be known before; null: nothing, {@link take} may be called. */
  need(message: PgoutputMessage): Need | null {
    if (message.kind === 'relation') {
      if (this.#tableOf(message) === undefined) return null;
      const oids = this.#options.types.unknown(message.columns.map(({ typeOid }) => typeOid));
      return oids.length === 0 ? null : { kind: 'types', oids };
    }
    if (message.kind !== 'update' || message.identity !== 'K') return null;
    const mapped = this.#relations.get(message.relation);
    const transaction = this.#transaction;
    if (!mapped || transaction === null || transaction.raw < transaction.skip) return null;
    const missing = mapped.encoder.missing(message.identity, message.before, message.after);
    return missing === null ? null : { kind: 'row', mapped, missing };
  }

  /** `read`: the columns that were missing; null: there were none, or the row is gone. Throws ConnectorFault. */
  take(message: PgoutputMessage, read: Tuple | null): void {
    switch (message.kind) {
      case 'begin':
        this.#begin(message);
        break;
      case 'commit':
        this.#commit(message.endLsn);
        break;
      case 'relation':
        this.#learn(message);
        break;
      case 'insert':
      case 'update':
      case 'delete':
        this.#change(message, read);
        break;
      case 'truncate':
        this.#truncate(message);
        break;
      case 'message':
        if (!message.transactional) this.#marker(message);
        break;
      default:
        return;
    }
  }

  /** The server has sent everything up to `lsn`. */
  keepalive(lsn: bigint): void {
    this.#heard(lsn);
    if (this.#transaction === null) this.#options.bundler.position(lsn);
  }

  #begin({ commitLsn, commitMicros, xid }: Extract<PgoutputMessage, { kind: 'begin' }>): void {
    if (this.#transaction !== null) throw new ProtocolViolation('a transaction begins inside another one');
    const skip = this.#filter.begin(commitLsn);
    const { epoch, bundler } = this.#options;
    this.#transaction = {
      xid,
      place: new EventPlace(commitLsn, xid, Number(commitMicros)),
      idHead: `pg:${epoch}:${lsnDigits(commitLsn)}:`,
      skip,
      raw: 0,
      delivered: false,
    };
    if (skip !== ALL) bundler.begin(commitLsn);
  }

  #commit(endLsn: bigint): void {
    const transaction = this.#open();
    this.#transaction = null;
    this.#filter.commit(endLsn);
    this.#heard(endLsn);
    if (transaction.skip !== ALL) this.#options.bundler.commit(endLsn, this.#options.nowMs());
  }

  #learn(relation: Relation): void {
    const table = this.#tableOf(relation);
    const { types } = this.#options;
    this.#relations.set(
      relation.oid,
      table === undefined
        ? null
        : { table, relation, encoder: encoderFor(relation, table, (oid) => types.get(oid)) },
    );
  }

  #tableOf({ schema, name }: Relation): CatalogTable | undefined {
    return this.#byName.get(`${schema}.${name}`);
  }

  #change(message: RowChange, read: Tuple | null): void {
    const transaction = this.#open();
    const raw = transaction.raw++;
    const mapped = this.#mapped(message.relation);
    if (mapped === null) return;
    const { snapshot, bundler, nowMs } = this.#options;
    this.ownMs = nowMs();
    const { table, relation, encoder } = mapped;
    // Also of what is in the queues: what a chunk reads may be older than it.
    snapshot?.changed(table, relation, transaction.xid, message);
    if (raw < transaction.skip) return;
    this.#delivers(transaction);
    const events = eventsOf(encoder, transaction.place, raw, message, read);
    bundler.change(
      raw,
      events.map(
        ({ partition, suffix, payload }): OutMessage => ({
          queue: table.source.queue,
          partition,
          payload,
          transactionId: `${transaction.idHead}${raw}${suffix}`,
        }),
      ),
    );
  }

  #truncate(message: Extract<PgoutputMessage, { kind: 'truncate' }>): void {
    const transaction = this.#open();
    const raw = transaction.raw++;
    const { snapshot, bundler, tables, emitTruncates } = this.#options;
    const named = new Set<CatalogTable>();
    for (const oid of message.relations) {
      const mapped = this.#mapped(oid);
      if (mapped !== null) named.add(mapped.table);
    }
    for (const table of named) snapshot?.truncated(table, transaction.xid);
    if (named.size === 0 || raw < transaction.skip) return;
    if (!emitTruncates) {
      this.truncatesSkipped++;
      return;
    }
    this.#delivers(transaction);
    const { cascade, restartIdentity } = message;
    bundler.change(
      raw,
      tables
        .filter((table) => named.has(table))
        .map((table, k): OutMessage => {
          const event = { table: `${table.schema}.${table.name}`, cascade, restartIdentity };
          return {
            queue: table.source.queue,
            partition: SINGLE_PARTITION,
            payload: truncatePayload(transaction.place, raw, event),
            transactionId: `${transaction.idHead}${raw}${k === 0 ? '' : `.${k}`}`,
          };
        }),
    );
  }

  /** A bundle that carries anything of the transaction says so in its pointer, for whoever goes on with the snapshot. */
  #delivers(transaction: Transaction): void {
    if (transaction.delivered) return;
    transaction.delivered = true;
    const { snapshot, bundler } = this.#options;
    if (snapshot !== null) bundler.snapshot = snapshot.state;
  }

  #marker({ lsn, prefix, content }: Extract<PgoutputMessage, { kind: 'message' }>): void {
    this.#heard(lsn);
    const { bundler, snapshot, epoch, nowMs } = this.#options;
    bundler.position(lsn);
    if (prefix !== this.#markers) return;
    this.ownMs = nowMs();
    const chunk = snapshot?.marker(content.toString('utf8'), lsn) ?? null;
    if (chunk === null) return;
    for (const { table, partition, payload, idSuffix, stateAfter } of chunk.rows) {
      const transactionId = `pg:${epoch}:${idSuffix}`;
      bundler.row({ queue: table.source.queue, partition, payload, transactionId }, lsn, stateAfter, nowMs());
    }
    bundler.chunkEnd(lsn, chunk.end);
  }

  #heard(lsn: bigint): void {
    if (lsn > this.received) this.received = lsn;
  }

  #open(): Transaction {
    if (this.#transaction === null) throw new ProtocolViolation('a change outside of a transaction');
    return this.#transaction;
  }

  #mapped(oid: number): Mapped | null {
    const mapped = this.#relations.get(oid);
    if (mapped === undefined)
      throw new ProtocolViolation(`a change of relation ${oid}, which was not announced`);
    return mapped;
  }
}

function eventsOf(
  encoder: TableEncoder,
  place: EventPlace,
  raw: number,
  message: RowChange,
  read: Tuple | null,
): RowEvent[] {
  try {
    switch (message.kind) {
      case 'insert':
        return encoder.insert(place, raw, message.after);
      case 'update':
        return encoder.update(place, raw, message.identity, message.before, message.after, read);
      case 'delete':
        return encoder.delete(place, raw, message.identity, message.before);
    }
  } catch (error) {
    throw error instanceof EncodingFault ? notUtf8(encoder.table, error) : error;
  }
}
