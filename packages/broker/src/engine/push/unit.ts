/**
 * From a request to its units. A unit is what one request sends to one (queue, partition): it is stored whole or not at
 * all, duplicates apart, and its order is kept.
 *
 * Here is the first layer of deduplication too. Of equal transactionIds that one request sends to one partition, the
 * first leads and the others follow: they are not stored, and copy what becomes of their leader. They are told by their
 * hashes, which are the identity of a message everywhere, and which everybody needs; a Map of the texts would cost a
 * microsecond a message beside.
 */
import type { Frame } from '../../log/frame.ts';
import { hashTransactionIds } from '../../log/hash.ts';
import { nameFault, requiredNameFault, transactionIdFault } from '../../log/names.ts';
import { formatUuids, mintUuidsV7, parseUuid, UUID_BYTES, UUID_CHARACTERS } from '../../log/uuid.ts';
import { refused } from '../errors.ts';
import type { PushItem, PushRequest, PushResult } from '../types.ts';
import { firstsOf, hashesAt } from './hash_index.ts';

/** Joins tenant, queue and partition to a key; names cannot contain it. */
const SEPARATOR = '\u001f';
/** A frame's bytes besides its payload and its transactionId, without trace id and producer. */
const FRAME_BYTES = 23;
const PRODUCER_BYTES_MAX = 0xffff;

export interface Unit {
  readonly key: string;
  readonly tenant: string;
  readonly queue: string;
  readonly partition: string;
  readonly frames: Frame[];
  /** What to answer, frame by frame. Filled in as it becomes known. */
  readonly results: PushResult[];
  /** 16 bytes a frame. */
  readonly hashes: Buffer;
  /** No transactionId occurs twice. False: may be. */
  readonly distinct: boolean;
  /** Of the frames before compression, about. */
  readonly bytes: number;
  /** To be called once, when every result is final. */
  settle: () => void;
}

export interface Follower {
  readonly result: PushResult;
  readonly leader: PushResult;
}

export interface GroupedRequest {
  /** In the order of the items. */
  readonly results: PushResult[];
  readonly units: Unit[];
  readonly followers: Follower[];
  readonly bytes: number;
}

class Group {
  readonly queue: string;
  readonly partition: string;
  frames: Frame[] = [];
  results: PushResult[] = [];
  readonly transactionIds: string[] = [];
  /** TransactionIds that were given; the others are ours, and differ. */
  given = 0;
  bytes = 0;

  constructor(queue: string, partition: string) {
    this.queue = queue;
    this.partition = partition;
  }
}

/** One lane for each partition, whether it exists or not. */
export function laneKey(tenant: string, queue: string, partition: string): string {
  return `${tenant}${SEPARATOR}${queue}${SEPARATOR}${partition}`;
}

/** Validates the whole request before any of it is taken. Throws the EngineError `bad_request` naming the field. */
export function groupRequest(request: PushRequest, nowMs: number): GroupedRequest {
  const { tenant, items, producerSub } = request;
  if (producerSub !== null && Buffer.byteLength(producerSub) > PRODUCER_BYTES_MAX) {
    throw refused('bad_request', `sub must have at most ${PRODUCER_BYTES_MAX} bytes of UTF-8`, 'sub');
  }
  const groups = new Map<string, Group>();
  const grouped: GroupedRequest = { results: [], units: [], followers: [], bytes: 0 };
  const ids = mintUuidsV7(items.length, nowMs);
  const idTexts = formatUuids(ids);
  let group: Group | null = null;
  for (let i = 0; i < items.length; i++) {
    const item = items[i]!;
    // Most requests name one partition again and again.
    if (group === null || group.queue !== item.queue || group.partition !== item.partition) {
      group = groupOf(groups, item, i);
    }
    const id = ids.subarray(i * UUID_BYTES, (i + 1) * UUID_BYTES);
    const idText = idTexts.slice(i * UUID_CHARACTERS, (i + 1) * UUID_CHARACTERS);
    take(group, item, i, producerSub, id, idText, grouped);
  }
  let bytes = 0;
  for (const [lane, group] of groups) {
    const hashes = distinctHashes(group, grouped.followers);
    bytes += group.bytes;
    grouped.units.push({
      key: `${tenant}${SEPARATOR}${lane}`,
      tenant,
      queue: group.queue,
      partition: group.partition,
      frames: group.frames,
      results: group.results,
      hashes,
      distinct: true,
      bytes: group.bytes,
      settle: () => {},
    });
  }
  return { ...grouped, bytes };
}

function groupOf(groups: Map<string, Group>, item: PushItem, index: number): Group {
  const queueFault = requiredNameFault(item.queue, `items[${index}].queue`);
  if (queueFault !== null) throw refused('bad_request', queueFault, `items[${index}].queue`);
  const partitionFault = nameFault(item.partition, `items[${index}].partition`);
  if (partitionFault !== null) throw refused('bad_request', partitionFault, `items[${index}].partition`);
  const key = `${item.queue}${SEPARATOR}${item.partition}`;
  let group = groups.get(key);
  if (group === undefined) {
    group = new Group(item.queue, item.partition);
    groups.set(key, group);
  }
  return group;
}

function take(
  group: Group,
  item: PushItem,
  index: number,
  producerSub: string | null,
  messageId: Buffer,
  messageIdText: string,
  grouped: GroupedRequest,
): void {
  if (!(item.payload instanceof Uint8Array) || item.payload.length === 0) {
    throw refused('bad_request', `items[${index}].payload is missing`, `items[${index}].payload`);
  }
  const traceId = item.traceId == null ? null : parseUuid(item.traceId);
  if (item.traceId != null && traceId === null) {
    throw refused('bad_request', `items[${index}].traceId must be a UUID`, `items[${index}].traceId`);
  }
  const result: PushResult = {
    status: 'failed',
    messageId: messageIdText,
    transactionId: item.transactionId ?? messageIdText,
    partitionId: null,
    offset: null,
    error: null,
  };
  grouped.results.push(result);
  if (item.transactionId !== null) {
    const fault = transactionIdFault(item.transactionId, `items[${index}].transactionId`);
    if (fault !== null) throw refused('bad_request', fault, `items[${index}].transactionId`);
    group.given++;
  }
  group.results.push(result);
  group.transactionIds.push(result.transactionId);
  group.frames.push({
    messageId,
    traceId,
    transactionId: result.transactionId,
    producerSub,
    encrypted: false,
    payload: item.payload,
  });
  group.bytes += frameBytes(result.transactionId, item.payload);
}

function frameBytes(transactionId: string, payload: Uint8Array): number {
  return FRAME_BYTES + transactionId.length + payload.length;
}

/** The hashes of a group, which keeps the first of equal ones; the others become followers. */
function distinctHashes(group: Group, followers: Follower[]): Buffer {
  const hashes = hashTransactionIds(group.transactionIds);
  if (group.given < 2) return hashes;
  const { frames, results } = group;
  const kept = firstsOf(hashes, (i, leader) => {
    followers.push({ result: results[i]!, leader: results[leader]! });
    group.bytes -= frameBytes(frames[i]!.transactionId, frames[i]!.payload);
  });
  if (kept === null) return hashes;
  group.frames = kept.map((i) => frames[i]!);
  group.results = kept.map((i) => results[i]!);
  return hashesAt(hashes, kept);
}

/** A follower's answer, once its leader's is final: a stored leader makes it a duplicate, else they share one fate. */
export function follow({ result, leader }: Follower): void {
  result.status = leader.status === 'queued' ? 'duplicate' : leader.status;
  result.messageId = leader.messageId;
  result.partitionId = leader.partitionId;
  result.offset = leader.offset;
  result.error = leader.error;
}
