/**
 * Messages for a person who looks: pages of them, and one in detail. Which messages a page shows is decided on the
 * headers of segments, the newest first; only then the blobs are read, a few at a time, and of each only what the page
 * needs is kept.
 */
import { type Frame, MalformedSegment } from '../../log/frame.ts';
import { hashTransactionIds } from '../../log/hash.ts';
import { transactionIdFault } from '../../log/names.ts';
import { unpackSegment } from '../../log/segment.ts';
import { formatUuid } from '../../log/uuid.ts';
import type { Queryable } from '../../store/database.ts';
import * as store from '../../store/reads.ts';
import { parsePartitionId } from '../ack/groups.ts';
import { EngineError, fromStore } from '../errors.ts';
import { QUEUE_MODE_GROUP, type QueueOptions, type TenantId, ZERO_UUID } from '../types.ts';
import type {
  ConsumptionMode,
  FoundMessage,
  ListedMessage,
  MessageContent,
  MessageDetail,
  MessageFilter,
  MessageStatus,
  MessagesFace,
} from './face.ts';
import { type Cursor, consumptionOf, leaseEnd, modeOf, statusFor, statusOf } from './status.ts';

export interface MessagesDeps {
  db: Queryable;
  /** Takes a slot before a connection. */
  admission: { run<T>(lane: 'maintenance', work: () => Promise<T>): Promise<T> };
  sealing: {
    /** Opens a payload that is sealed; gives back the envelope where no key fits. */
    open: (payload: Buffer) => Buffer;
    /** What is inside an envelope of this broker's key; null: it is none. */
    openOurs: (payload: Buffer) => Buffer | null;
  };
  log: { error(facts: object, message: string): void };
}

/** Of a tenant with more partitions, those that were written last are looked at. */
const PARTITIONS_MAX = 1_000;
/** Headers that one page may cost. */
const HEADERS_MAX = 20_000;
const HEADERS_A_STEP = 1_000;
const HEADERS_MIN = 50;
/** Blobs in memory at once. */
const BLOBS_A_STEP = 8;
/** Payload bytes in one page. */
const PAGE_BYTES_MAX = 32 * 1024 * 1024;
/** Segments that are searched for a transactionId whose hash is gone. */
const WALK_MAX = 5_000;

const PICKS: Record<MessageStatus, number> = {
  pending: store.PICK.aboveDone,
  processing: store.PICK.aboveDone,
  completed: store.PICK.done,
  dead_letter: store.PICK.dead,
};

interface Chosen {
  segment: store.MessageSegment;
  offset: number;
  status: MessageStatus;
}

export class Messages implements MessagesFace {
  readonly #deps: MessagesDeps;

  constructor(deps: MessagesDeps) {
    this.#deps = deps;
  }

  async list(
    tenant: TenantId,
    filter: MessageFilter,
  ): Promise<{ messages: ListedMessage[]; mode: ConsumptionMode }> {
    const chosen = await this.#choose(tenant, filter);
    const partitions = [...new Set(chosen.map(({ segment }) => segment.partitionId))];
    const cursors = await this.#cursors(tenant, partitions);
    const contents = await this.#contents(chosen);
    const messages: ListedMessage[] = [];
    for (const [i, each] of chosen.entries()) {
      const content = contents[i];
      if (content === undefined) continue;
      messages.push(listed(each, cursors.get(each.segment.partitionId) ?? [], content));
    }
    return { messages, mode: modeOf([...cursors.values()].flat()) };
  }

  async find(
    tenant: TenantId,
    queue: string | null,
    transactionId: string,
    limit: number,
  ): Promise<FoundMessage[]> {
    if (transactionIdFault(transactionId, 'transactionId') !== null) return [];
    const hash = hashTransactionIds([transactionId]);
    const found = await this.#run((db) => store.findMessages(db, tenant, queue, hash, transactionId, limit));
    return found.map((row) => ({ ...row, partitionId: String(row.partitionId) }));
  }

  async get(tenant: TenantId, partitionId: string, transactionId: string): Promise<MessageDetail | null> {
    const id = parsePartitionId(partitionId);
    if (id === null || transactionIdFault(transactionId, 'transactionId') !== null) return null;
    const place = await this.#run((db) => store.messagePlace(db, tenant, id));
    if (place === null) return null;
    const found = await this.#find(id, place.txnsStart, transactionId);
    const dead = await this.#run((db) => store.deadMessages(db, id, found?.offset ?? null, transactionId));
    const [newest] = dead;
    if (found === null && newest === undefined) return null;
    const cursors = (await this.#cursors(tenant, [id])).get(id) ?? [];
    const offset = found?.offset ?? newest!.offset;
    const deadFor = new Set(dead.map((row) => row.group));
    return {
      partitionId,
      offset,
      queue: place.queue,
      partition: place.partition,
      namespace: place.namespace,
      task: place.task,
      transactionId,
      ...(found === null ? this.#fromDeadLetter(newest!) : this.#fromFrame(found)),
      status: statusOf(offset, consumptionOf(cursors, place.named), dead.length > 0),
      error: newest?.error ?? null,
      retryCount: newest?.retryCount ?? 0,
      leaseExpiresAtMicros: leaseEnd(cursors, offset),
      groups: cursors.map((cursor) => ({
        group: cursor.group,
        status: statusFor(cursor, offset, deadFor.has(cursor.group)),
        leaseExpiresAtMicros: leaseEnd([cursor], offset),
      })),
      mode: modeOf(cursors),
      options: JSON.parse(place.options) as QueueOptions,
    };
  }

  /** The messages of the page, the newest first, from headers alone. */
  async #choose(tenant: TenantId, filter: MessageFilter): Promise<Chosen[]> {
    const { status, limit, skip, ...wanted } = filter;
    const pick = status === null ? store.PICK.all : PICKS[status];
    const chosen: Chosen[] = [];
    let pass = skip;
    let behind: store.SegmentPlace | null = null;
    for (let seen = 0; chosen.length < limit && seen < HEADERS_MAX; ) {
      const wanting = limit - chosen.length + pass;
      // Of a segment that was picked by its status not every message has it, and sometimes none.
      const step = Math.min(HEADERS_A_STEP, status === null ? wanting : Math.max(HEADERS_MIN, 2 * wanting));
      const from: store.SegmentPlace | null = behind;
      const headers: store.MessageSegment[] = await this.#run((db) =>
        store.messageSegments(db, tenant, { ...wanted, pick }, from, step, PARTITIONS_MAX),
      );
      for (const segment of headers) {
        const dead = new Set(segment.dead);
        for (let offset = segment.end; offset >= segment.base && chosen.length < limit; offset--) {
          const its = statusOf(offset, segment, dead.has(offset));
          if (status !== null && its !== status) continue;
          if (pass > 0) pass--;
          else chosen.push({ segment, offset, status: its });
        }
      }
      if (headers.length < step) break;
      seen += headers.length;
      behind = headers.at(-1)!;
    }
    return chosen;
  }

  /**
   * What the chosen messages hold, in step. Null: the segment cannot be read; undefined: retention took it meanwhile.
   */
  async #contents(chosen: readonly Chosen[]): Promise<(MessageContent | null | undefined)[]> {
    const contents: (MessageContent | null | undefined)[] = chosen.map(() => undefined);
    const bySegment = new Map<store.MessageSegment, number[]>();
    chosen.forEach(({ segment }, i) => {
      const indexes = bySegment.get(segment);
      if (indexes === undefined) bySegment.set(segment, [i]);
      else indexes.push(i);
    });
    let room = PAGE_BYTES_MAX;
    const segments = [...bySegment];
    for (let at = 0; at < segments.length; at += BLOBS_A_STEP) {
      const step = segments.slice(at, at + BLOBS_A_STEP);
      const blobs = await this.#run((db) =>
        store.messageBlobs(
          db,
          step.map(([segment]) => segment),
        ),
      );
      for (const { seq, end, blob } of blobs) {
        const [{ partitionId, base }, indexes] = step[seq]!;
        const offsets = indexes.map((i) => chosen[i]!.offset);
        const first = Math.min(...offsets);
        let frames: Frame[];
        try {
          frames = await unpackSegment(blob, end - base + 1, first - base, Math.max(...offsets) - base);
        } catch (error) {
          this.#unreadable(partitionId, base, end, error);
          for (const i of indexes) contents[i] = null;
          continue;
        }
        for (const [n, i] of indexes.entries()) {
          const content = this.#content(frames[offsets[n]! - first]!, room);
          room -= content.payload?.length ?? 0;
          contents[i] = content;
        }
      }
    }
    return contents;
  }

  /** A copy: a view would keep the whole decompressed segment. */
  #content(frame: Frame, room: number): MessageContent {
    const fits = frame.payload.length <= room;
    return {
      id: formatUuid(frame.messageId),
      transactionId: frame.transactionId,
      transactionHash: hashTransactionIds([frame.transactionId]),
      traceId: frame.traceId === null ? null : formatUuid(frame.traceId),
      producerSub: frame.producerSub,
      sealed: frame.encrypted,
      payload: fits ? this.#payload(frame) : null,
    };
  }

  #payload(frame: Frame): Buffer {
    const opened = frame.encrypted ? this.#deps.sealing.open(frame.payload) : frame.payload;
    return opened === frame.payload ? Buffer.from(opened) : opened;
  }

  /** By the sidecar; and where that has been purged, by a walk over the newest segments that it does not cover. */
  async #find(
    partitionId: number,
    txnsStart: number,
    transactionId: string,
  ): Promise<{ offset: number; createdAtMicros: number; frame: Frame } | null> {
    const hash = hashTransactionIds([transactionId]);
    const offset = await this.#run((db) => store.locateMessage(db, partitionId, hash));
    if (offset !== null) {
      const segment = await this.#run((db) => store.segmentOf(db, partitionId, offset));
      if (segment === null) return null;
      const frames = await this.#frames(partitionId, segment);
      const frame = frames instanceof EngineError ? frames : frames[offset - segment.base];
      if (frame instanceof EngineError) throw frame;
      if (frame?.transactionId !== transactionId) return null;
      return { offset, createdAtMicros: segment.createdAtMicros, frame };
    }
    let corrupt: EngineError | null = null;
    let below = txnsStart;
    for (let seen = 0; seen < WALK_MAX; ) {
      const from = below;
      const segments = await this.#run((db) => store.walkSegments(db, partitionId, from, BLOBS_A_STEP));
      for (const segment of segments) {
        below = segment.base;
        const frames = await this.#frames(partitionId, segment);
        if (frames instanceof EngineError) {
          corrupt = frames;
          continue;
        }
        const index = frames.findLastIndex((frame) => frame.transactionId === transactionId);
        if (index < 0) continue;
        const { createdAtMicros } = segment;
        return { offset: segment.base + index, createdAtMicros, frame: frames[index]! };
      }
      seen += segments.length;
      if (segments.length < BLOBS_A_STEP) break;
    }
    if (corrupt !== null) throw corrupt;
    return null;
  }

  /** An EngineError, not thrown: the segment cannot be read. */
  async #frames(partitionId: number, segment: store.ReadSegment): Promise<Frame[] | EngineError> {
    const { base, end, blob } = segment;
    try {
      return await unpackSegment(blob, end - base + 1);
    } catch (error) {
      return this.#unreadable(partitionId, base, end, error);
    }
  }

  #unreadable(partitionId: number, base: number, end: number, error: unknown): EngineError {
    if (!(error instanceof MalformedSegment)) throw error;
    this.#deps.log.error({ partitionId, base, end, err: error }, 'a stored segment is corrupt');
    return new EngineError(
      'refused',
      'corrupt_segment',
      `the segment at offsets ${base} to ${end} of partition ${partitionId} cannot be read: ${error.message}`,
      { cause: error },
    );
  }

  #fromFrame({ frame, createdAtMicros }: { frame: Frame; createdAtMicros: number }) {
    return {
      id: formatUuid(frame.messageId),
      traceId: frame.traceId === null ? null : formatUuid(frame.traceId),
      producerSub: frame.producerSub,
      createdAtMicros,
      sealed: frame.encrypted,
      payload: this.#payload(frame),
    };
  }

  #fromDeadLetter(row: store.DeadMessageRow) {
    const opened = row.payload === null ? null : this.#deps.sealing.openOurs(row.payload);
    return {
      id: row.messageId ?? ZERO_UUID,
      traceId: null,
      producerSub: null,
      createdAtMicros: row.failedAtMicros,
      sealed: opened !== null,
      payload: opened ?? row.payload,
    };
  }

  async #cursors(tenant: TenantId, partitions: readonly number[]): Promise<Map<number, Cursor[]>> {
    const found = new Map<number, Cursor[]>();
    if (partitions.length === 0) return found;
    for (const row of await this.#run((db) => store.messageCursors(db, tenant, partitions))) {
      const list = found.get(row.partitionId);
      if (list === undefined) found.set(row.partitionId, [row]);
      else list.push(row);
    }
    return found;
  }

  async #run<T>(work: (db: Queryable) => Promise<T>): Promise<T> {
    try {
      return await this.#deps.admission.run('maintenance', () => work(this.#deps.db));
    } catch (error) {
      throw fromStore(error);
    }
  }
}

function listed(chosen: Chosen, cursors: readonly Cursor[], content: MessageContent | null): ListedMessage {
  const { segment, offset, status } = chosen;
  const { partitionId, queue, partition, namespace, task, createdAtMicros } = segment;
  const dead = status === 'dead_letter';
  const queueMode = cursors.find(({ group }) => group === QUEUE_MODE_GROUP);
  const named = cursors.filter(({ group }) => group !== QUEUE_MODE_GROUP);
  return {
    partitionId: String(partitionId),
    queue,
    partition,
    namespace,
    task,
    offset,
    segmentBase: segment.base,
    createdAtMicros,
    status,
    queueStatus: queueMode === undefined ? null : statusFor(queueMode, offset, dead && named.length === 0),
    consumedBy: named.filter(({ committed }) => offset <= committed).length,
    totalGroups: named.length,
    leaseExpiresAtMicros: leaseEnd(cursors, offset),
    content,
  };
}
