/**
 * The record of the spool: one message on a broker's own disk, until the database takes it.
 *
 *     u32 LE    length of the JSON that follows
 *     JSON      {"crc":"8 hex digits","queue":…,"partition":…,"tenant":…,"id":…,"txn":…,…,"payload":…}
 *
 * The payload stands last and as the client sent it, byte for byte, or sealed. `crc` is the CRC-32 of everything behind
 * it. Messages that were to be stored together or not at all stand one behind the other, each but the last with
 * `"more":true`.
 *
 * A file of records may end anywhere, since its writer may die anywhere, and a disk may damage it anywhere. So a walk
 * never throws: it tells where something is wrong, and goes on behind it as long as lengths and checksums agree.
 */
import { crc32 } from 'node:zlib';
import type { Frame } from './frame.ts';
import { formatUuid, parseUuid } from './uuid.ts';

export interface SpoolRecord {
  tenant: string;
  queue: string;
  partition: string;
  frame: Frame;
  /** The next record belongs to the same unit. */
  more: boolean;
}

/** A stretch of a file, from `at` to `end`. */
export type SpoolPiece = { at: number; end: number } & (
  | { record: SpoolRecord }
  /** Bytes that are no record. `torn`: they reach to the end of the file, which nobody finished writing. */
  | { fault: string; torn: boolean }
);

const LENGTH_BYTES = 4;
const CRC_HEAD = Buffer.from('{"crc":"');
const CRC_DIGITS = 8;
const CRC_END = CRC_HEAD.length + CRC_DIGITS;
const HEAD_BYTES = CRC_END + 2;
const PAYLOAD_KEY = Buffer.from(',"payload":');
const CLOSE = 0x7d;
const UNFINISHED = 'the file ends in the middle of a record';
const RECORD_BYTES_MIN = HEAD_BYTES + PAYLOAD_KEY.length + 2;

export function encodeSpoolRecord({ tenant, queue, partition, frame, more }: SpoolRecord): Buffer {
  const { messageId, traceId, transactionId, producerSub, encrypted, payload } = frame;
  const head = JSON.stringify({
    queue,
    partition,
    tenant,
    id: formatUuid(messageId),
    txn: transactionId,
    sub: producerSub,
    encrypted,
    ...(traceId === null ? {} : { trace: formatUuid(traceId) }),
    ...(more ? { more } : {}),
  });
  // Without the braces: the first gives way to the checksum, the last to the payload.
  const text = Buffer.from(head.slice(1, -1), 'utf8');
  const length = HEAD_BYTES + text.length + PAYLOAD_KEY.length + payload.length + 1;
  const out = Buffer.allocUnsafe(LENGTH_BYTES + length);
  let at = out.writeUInt32LE(length);
  at += CRC_HEAD.copy(out, at);
  at += CRC_DIGITS;
  const from = at;
  at += out.write('",', at, 'latin1');
  at += text.copy(out, at);
  at += PAYLOAD_KEY.copy(out, at);
  at += payload.copy(out, at);
  out[at] = CLOSE;
  out.write(hex(crc32(out.subarray(from))), LENGTH_BYTES + CRC_HEAD.length, 'latin1');
  return out;
}

/** Walks the records of a file from byte `from` on. Payloads are views into `file`. Never throws. */
export function* spoolPieces(file: Buffer, from = 0): Generator<SpoolPiece, void> {
  let at = from;
  while (at < file.length) {
    const left = file.length - at;
    const length = left < LENGTH_BYTES ? 0 : file.readUInt32LE(at);
    if (length < RECORD_BYTES_MIN || length > left - LENGTH_BYTES) {
      yield { at, end: file.length, ...unframed(file, at, length) };
      return;
    }
    const end = at + LENGTH_BYTES + length;
    const record = decode(file.subarray(at + LENGTH_BYTES, end));
    if (typeof record !== 'string') yield { at, end, record };
    // A record ends with a brace. From here on space was allotted and never filled.
    else if (file.subarray(end - 1).every((byte) => byte === 0)) {
      yield { at, end: file.length, fault: UNFINISHED, torn: true };
      return;
    }
    // A length that is damaged too would send us anywhere: what it leads to must be a record, or the end.
    else if (end === file.length || beginsRecord(file, end)) yield { at, end, fault: record, torn: false };
    else {
      yield { at, end: file.length, fault: `${record}, and nothing readable behind it`, torn: false };
      return;
    }
    at = end;
  }
}

/** No length that can be true. The end of a file that was being written is that, or zeros that were never filled. */
function unframed(file: Buffer, at: number, length: number): { fault: string; torn: boolean } {
  let end = file.length;
  while (end > at && file[end - 1] === 0) end--;
  const begun = file.subarray(at + LENGTH_BYTES, at + LENGTH_BYTES + CRC_HEAD.length);
  const tooShort = end - at < LENGTH_BYTES + CRC_HEAD.length;
  if (tooShort || (length > file.length - at - LENGTH_BYTES && CRC_HEAD.equals(begun))) {
    return { fault: UNFINISHED, torn: true };
  }
  return { fault: `${length} is no length of a record`, torn: false };
}

function beginsRecord(file: Buffer, at: number): boolean {
  return CRC_HEAD.equals(file.subarray(at + LENGTH_BYTES, at + LENGTH_BYTES + CRC_HEAD.length));
}

/** What is wrong, or the record. */
function decode(bytes: Buffer): SpoolRecord | string {
  if (!CRC_HEAD.equals(bytes.subarray(0, CRC_HEAD.length))) return 'a record does not begin as one';
  const sum = bytes.toString('latin1', CRC_HEAD.length, CRC_END);
  if (sum !== hex(crc32(bytes.subarray(CRC_END)))) return 'a checksum does not fit its record';
  // Inside a string of the head its quotes would be escaped, so the first one is the key.
  const key = bytes.indexOf(PAYLOAD_KEY, HEAD_BYTES);
  if (key < 0 || bytes.at(-1) !== CLOSE) return 'a record without a payload';
  try {
    const head: unknown = JSON.parse(`{${bytes.toString('utf8', HEAD_BYTES, key)}}`);
    return recordOf(head, bytes.subarray(key + PAYLOAD_KEY.length, -1)) ?? 'a record of another kind';
  } catch {
    return 'a record of another kind';
  }
}

function recordOf(head: unknown, payload: Buffer): SpoolRecord | null {
  const { queue, partition, tenant, id, txn, sub, encrypted, trace, more } = head as Record<string, unknown>;
  if (typeof queue !== 'string' || typeof partition !== 'string' || typeof tenant !== 'string') return null;
  if (typeof id !== 'string' || typeof txn !== 'string' || typeof encrypted !== 'boolean') return null;
  if (sub !== null && typeof sub !== 'string') return null;
  const messageId = parseUuid(id);
  const traceId = typeof trace === 'string' ? parseUuid(trace) : null;
  if (messageId === null) return null;
  const frame = { messageId, traceId, transactionId: txn, producerSub: sub, encrypted, payload };
  return { tenant, queue, partition, frame, more: more === true };
}

function hex(sum: number): string {
  return sum.toString(16).padStart(8, '0');
}
