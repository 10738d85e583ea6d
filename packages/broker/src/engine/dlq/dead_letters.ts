/**
 * Dead letters: listed, removed, and replayed. A replay is a move: what must hold about it (there or here, and once)
 * is one SQL call; here the frame is packed before it, and whoever waits is told after it.
 */
import { looksSealed } from '../../log/envelope.ts';
import type { Frame } from '../../log/frame.ts';
import { hashTransactionIds } from '../../log/hash.ts';
import { nameFault, requiredNameFault, transactionIdFault } from '../../log/names.ts';
import { packSegment } from '../../log/segment.ts';
import { formatUuid, mintUuidV7, parseUuid } from '../../log/uuid.ts';
import type { Queryable } from '../../store/database.ts';
import * as store from '../../store/dlq.ts';
import { type Place, provision } from '../../store/push.ts';
import { parsePartitionId } from '../ack/groups.ts';
import { EngineError, fromStore, refused } from '../errors.ts';
import { type TenantId, ZERO_UUID } from '../types.ts';
import type { Announcer } from '../wake/announcer.ts';
import {
  type DeadLetter,
  type DeadLetterFilter,
  type DeadLettersFace,
  type ReplayRequest,
  type ReplayResult,
  TIMER_GROUP,
} from './face.ts';

export interface DeadLettersDeps {
  db: Queryable;
  /** Takes a slot before a connection. */
  admission: { run<T>(lane: 'maintenance' | 'push', work: () => Promise<T>): Promise<T> };
  announcer: Pick<Announcer, 'pushed'>;
  dedup: { committed(partitionId: number, base: number, hashes: Buffer, createdAtMicros: number): void };
  sealing: {
    /** Null: this broker has no key. */
    seal: ((payload: Buffer) => Buffer) | null;
    /** What is inside an envelope of this broker's key; null: it is none. */
    openOurs: (payload: Buffer) => Buffer | null;
  };
  zstdLevel: number;
  /** Pushes are diverted to the spool. */
  pushPaused: () => boolean | Promise<boolean>;
}

/** Monotonic counts since the start. */
export interface DeadLetterCounters {
  replayed: number;
  duplicates: number;
  removed: number;
}

/** Payload bytes in one page of a list; the first payload is always there. */
const PAGE_BYTES_MAX = 32 * 1024 * 1024;
const NO_PAYLOADS = -1;
/** A destination that vanishes, or changes its mind, as soon as it is looked up is not waited for. */
const TRIES_MAX = 5;

export class DeadLetters implements DeadLettersFace {
  readonly counters: DeadLetterCounters = { replayed: 0, duplicates: 0, removed: 0 };
  readonly #deps: DeadLettersDeps;

  constructor(deps: DeadLettersDeps) {
    this.#deps = deps;
  }

  async list(tenant: TenantId, filter: DeadLetterFilter): Promise<{ letters: DeadLetter[]; total: number }> {
    const { limit, skip, payloads, ...wanted } = filter;
    const page = { limit, skip, bytesMax: payloads ? PAGE_BYTES_MAX : NO_PAYLOADS };
    const read = (at: typeof page) =>
      this.#run('maintenance', (db) => store.listDeadLetters(db, tenant, wanted, at));
    const rows = await read(page);
    // A page behind the end, or of no rows, cannot tell how many there are.
    const counted = rows[0] ?? (await read({ limit: 1, skip: 0, bytesMax: 0 }))[0];
    return { letters: rows.map((row) => this.#letter(row)), total: counted?.total ?? 0 };
  }

  async get(tenant: TenantId, id: string): Promise<DeadLetter | null> {
    const bytes = parseUuid(id);
    if (bytes === null) return null;
    const row = await this.#run('maintenance', (db) => store.oneDeadLetter(db, tenant, formatUuid(bytes)));
    return row === null ? null : this.#letter(row);
  }

  async purge(tenant: TenantId, queue: string, group: string | null): Promise<number> {
    if (requiredNameFault(queue, 'queue') !== null) return 0;
    if (group !== null && nameFault(group, 'consumerGroup') !== null) return 0;
    const count = await this.#run('maintenance', (db) => store.purgeDeadLetters(db, tenant, queue, group));
    this.counters.removed += count;
    return count;
  }

  async deleteMessage(tenant: TenantId, partitionId: string, transactionId: string): Promise<number> {
    const address = addressOf(partitionId, transactionId);
    if (address === null) return 0;
    const count = await this.#run('maintenance', (db) =>
      store.deleteDeadLetters(db, tenant, address, transactionId),
    );
    this.counters.removed += count;
    return count;
  }

  async find(tenant: TenantId, partitionId: string, transactionId: string): Promise<string | null> {
    const address = addressOf(partitionId, transactionId);
    if (address === null) return null;
    return this.#run('maintenance', (db) => store.findDeadLetter(db, tenant, address, transactionId));
  }

  async replay(request: ReplayRequest): Promise<ReplayResult> {
    const { tenant } = request;
    for (const [field, name] of [
      ['queue', request.queue],
      ['partition', request.partition],
    ] as const) {
      const fault = name === null ? null : requiredNameFault(name, field);
      if (fault !== null) throw refused('bad_name', fault, field);
    }
    if (await this.#deps.pushPaused()) return { result: 'maintenance' };
    const bytes = parseUuid(request.id);
    if (bytes === null) return { result: 'gone' };
    const dlqId = formatUuid(bytes);
    const source = await this.#run('maintenance', (db) => store.getDeadLetter(db, tenant, dlqId));
    if (source === null) return { result: 'gone' };
    if (source.group === TIMER_GROUP) {
      throw refused(
        'timer_dead_letter',
        'a timer that could not be fired cannot be replayed: schedule it again',
      );
    }
    if (source.payload === null) {
      throw refused(
        'no_payload',
        'retention took the message before it was dead-lettered: nothing is left of it',
      );
    }
    const queue = request.queue ?? source.queue;
    const partition = request.partition ?? source.partition;
    const frame = { messageId: mintUuidV7(Date.now()), transactionId: `dlq:${dlqId}` };
    const moved = await this.#move(tenant, dlqId, source, { queue, partition }, frame);
    if (moved === null) return { result: 'gone' };
    const duplicate = moved.result === 'duplicate';
    return {
      ...moved,
      dlqId,
      group: source.group,
      originalTransactionId: source.transactionId,
      queue,
      partition,
      transactionId: frame.transactionId,
      messageId: duplicate ? ZERO_UUID : formatUuid(frame.messageId),
    };
  }

  /** Null: the row is gone. */
  async #move(
    tenant: TenantId,
    dlqId: string,
    source: store.DeadLetterSource,
    to: { queue: string; partition: string },
    frame: Pick<Frame, 'messageId' | 'transactionId'>,
  ): Promise<{ result: 'moved' | 'duplicate'; offset: number } | null> {
    const { announcer, dedup, zstdLevel } = this.#deps;
    const hashes = hashTransactionIds([frame.transactionId]);
    for (let attempt = 0; attempt < TRIES_MAX; attempt++) {
      const [place] = await this.#run('push', (db) => provision(db, tenant, [to]));
      const payload = this.#packed(source, place!);
      const blob = await packSegment([{ ...frame, ...payload, traceId: null, producerSub: null }], zstdLevel);
      const row = await this.#run('push', (db) =>
        store.replayDeadLetter(db, dlqId, place!, { hashes, blob }),
      );
      if (row.outcome === 'gone') return null;
      if (row.outcome === 'duplicate') {
        this.counters.duplicates++;
        return { result: 'duplicate', offset: row.offset };
      }
      if (row.outcome !== 'moved') continue;
      const { partitionId } = place!;
      if (row.windowSeconds > 0) dedup.committed(partitionId, row.base, hashes, row.createdAtMicros);
      announcer.pushed([{ tenant, queue: to.queue, partitionId, lastOffset: row.base }]);
      this.counters.replayed++;
      return { result: 'moved', offset: row.base };
    }
    throw new EngineError(
      'unavailable',
      'partition_missing',
      'the destination changes again and again; nothing was written',
    );
  }

  /**
   * The payload as the destination wants it. A dead letter does not say whether it is sealed, so its shape and the key
   * decide. What this key does not open is moved as it is; from a queue that encrypts it still counts as sealed, so
   * that a broker with the right key opens it one day.
   */
  #packed(source: store.DeadLetterSource, place: Place): { payload: Buffer; encrypted: boolean } {
    const { seal, openOurs } = this.#deps.sealing;
    const stored = source.payload!;
    const opened = openOurs(stored);
    if (opened === null && source.encrypts && looksSealed(stored)) {
      return { payload: stored, encrypted: true };
    }
    const plain = opened ?? stored;
    if (!place.encrypts) return { payload: plain, encrypted: false };
    if (seal === null) {
      throw refused(
        'encryption_required',
        'encryption_required: the destination stores encrypted payloads and this broker has no QUEEN_ENCRYPTION_KEY',
      );
    }
    return { payload: seal(plain), encrypted: true };
  }

  #letter(row: store.DeadLetterRow): DeadLetter {
    const { total: _total, partitionId, payload, ...rest } = row;
    const opened = payload === null ? null : this.#deps.sealing.openOurs(payload);
    return {
      ...rest,
      partitionId: String(partitionId),
      payload: opened ?? payload,
      opened: opened !== null,
    };
  }

  async #run<T>(lane: 'maintenance' | 'push', work: (db: Queryable) => Promise<T>): Promise<T> {
    try {
      return await this.#deps.admission.run(lane, () => work(this.#deps.db));
    } catch (error) {
      throw fromStore(error);
    }
  }
}

/** The partition's id. Null: nothing can have that address. */
function addressOf(partitionId: string, transactionId: string): number | null {
  return transactionIdFault(transactionId, 'transactionId') === null ? parsePartitionId(partitionId) : null;
}
