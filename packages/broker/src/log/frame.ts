/**
 * The frame: one message inside a segment. This is a storage format, byte for byte; numbers are little-endian.
 *
 *     u32       body length, the bytes that follow; at least 19
 *     u8        flags: 1 trace id present, 2 producer sub present, 4 payload encrypted
 *     u8[16]    message id
 *     u8[16]    trace id                          only with flag 1
 *     u16, u8[] transactionId, UTF-8
 *     u16, u8[] producer sub, UTF-8               only with flag 2
 *     u8[]      payload: the JSON bytes as the client sent them, to the end of the body
 *
 * A frame's offset is its segment's base plus its index, so the one failure that must not happen is a list of
 * another length than was written. Decoding therefore walks the whole buffer, must end exactly at its end, and
 * refuses what it does not understand: an unknown flag may stand for a field whose bytes would else be taken for
 * payload.
 */
import { isUtf8 } from 'node:buffer';

export interface Frame {
  /** 16 bytes. */
  messageId: Buffer;
  /** 16 bytes, or null. */
  traceId: Buffer | null;
  /** At most 65,535 bytes of UTF-8. */
  transactionId: string;
  /** At most 65,535 bytes of UTF-8. */
  producerSub: string | null;
  encrypted: boolean;
  payload: Buffer;
}

/** A stored segment that is not what was written. Its partition reports it; nothing of it is delivered. */
export class MalformedSegment extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'MalformedSegment';
  }
}

const LENGTH_BYTES = 4;
const ID_BYTES = 16;
const BODY_BYTES_MIN = 1 + ID_BYTES + 2;
const U16_MAX = 0xffff;
const FLAG_TRACE = 1;
const FLAG_SUB = 2;
const FLAG_ENCRYPTED = 4;
const FLAGS_KNOWN = FLAG_TRACE | FLAG_SUB | FLAG_ENCRYPTED;

/** Bytes that the frame takes in a segment before compression, its length prefix included. */
export function frameLength(frame: Frame): number {
  return (
    LENGTH_BYTES +
    BODY_BYTES_MIN +
    (frame.traceId === null ? 0 : ID_BYTES) +
    Buffer.byteLength(frame.transactionId) +
    (frame.producerSub === null ? 0 : 2 + Buffer.byteLength(frame.producerSub)) +
    frame.payload.length
  );
}

/**
 * The frames one after the other. Throws a RangeError for a field that the format cannot hold, or when the frames
 * together take more than `bytesMax`.
 */
export function encodeFrames(frames: readonly Frame[], bytesMax = Number.MAX_SAFE_INTEGER): Buffer {
  let size = 0;
  for (const frame of frames) size += frameLength(frame);
  if (size > bytesMax) throw new RangeError(`a segment of ${size} bytes is above the limit of ${bytesMax}`);
  const out = Buffer.allocUnsafe(size);
  let at = 0;
  for (const frame of frames) at = encodeFrame(frame, out, at);
  // Not reachable unless a buffer or a string changed meanwhile; a wrong length here would be stored for good.
  if (at !== size) throw new RangeError(`encoded ${at} bytes of ${size}`);
  return out;
}

function encodeFrame(frame: Frame, out: Buffer, start: number): number {
  const flags =
    (frame.traceId === null ? 0 : FLAG_TRACE) |
    (frame.producerSub === null ? 0 : FLAG_SUB) |
    (frame.encrypted ? FLAG_ENCRYPTED : 0);
  let at = start + LENGTH_BYTES;
  out[at++] = flags;
  at = writeId(frame.messageId, 'message id', out, at);
  if (frame.traceId !== null) at = writeId(frame.traceId, 'trace id', out, at);
  at = writeText(frame.transactionId, 'transactionId', out, at);
  if (frame.producerSub !== null) at = writeText(frame.producerSub, 'producer sub', out, at);
  out.set(frame.payload, at);
  at += frame.payload.length;
  out.writeUInt32LE(at - start - LENGTH_BYTES, start);
  return at;
}

function writeId(id: Buffer, what: string, out: Buffer, at: number): number {
  if (id.length !== ID_BYTES) throw new RangeError(`a ${what} has 16 bytes, not ${id.length}`);
  out.set(id, at);
  return at + ID_BYTES;
}

function writeText(text: string, what: string, out: Buffer, at: number): number {
  const length = out.write(text, at + 2);
  if (length > U16_MAX) throw new RangeError(`a ${what} of ${length} bytes does not fit into a frame`);
  out.writeUInt16LE(length, at);
  return at + 2 + length;
}

/**
 * Decodes the frames with the indices `from..to` (inclusive; default all) and validates all of them. Payloads and
 * ids are views into `bytes`. Throws MalformedSegment, also when `bytes` holds fewer than `to + 1` frames, or when
 * `count` is given and `bytes` holds another number.
 */
export function decodeFrames(bytes: Buffer, from = 0, to?: number, count?: number): Frame[] {
  const frames: Frame[] = [];
  let at = 0;
  let index = 0;
  while (at < bytes.length) {
    if (bytes.length - at < LENGTH_BYTES) throw fault(index, at, 'the length prefix is cut off');
    const start = at + LENGTH_BYTES;
    const length = bytes.readUInt32LE(at);
    if (length < BODY_BYTES_MIN) throw fault(index, at, `a body of ${length} bytes is too short`);
    if (length > bytes.length - start) {
      throw fault(index, at, `a body of ${length} bytes overruns the ${bytes.length - start} that are left`);
    }
    const wanted = index >= from && (to === undefined || index <= to);
    const frame = decodeBody(bytes, start, start + length, index, wanted);
    if (frame !== null) frames.push(frame);
    at = start + length;
    index++;
  }
  if (count !== undefined && index !== count)
    throw new MalformedSegment(`${index} frames instead of ${count}`);
  if (to !== undefined && to >= index)
    throw new MalformedSegment(`${index} frames, frame ${to} is not there`);
  return frames;
}

function decodeBody(bytes: Buffer, start: number, end: number, index: number, wanted: boolean): Frame | null {
  const flags = bytes[start]!;
  if ((flags & ~FLAGS_KNOWN) !== 0) throw fault(index, start, `unknown flags ${flags}`);
  const traced = (flags & FLAG_TRACE) !== 0;
  const txnAt = start + 1 + ID_BYTES + (traced ? ID_BYTES : 0);
  const txnEnd = textEnd(bytes, txnAt, end, index, 'transactionId');
  const subbed = (flags & FLAG_SUB) !== 0;
  const subEnd = subbed ? textEnd(bytes, txnEnd, end, index, 'producer sub') : txnEnd;
  if (!wanted) return null;
  return {
    messageId: bytes.subarray(start + 1, start + 1 + ID_BYTES),
    traceId: traced ? bytes.subarray(start + 1 + ID_BYTES, txnAt) : null,
    transactionId: readText(bytes, txnAt + 2, txnEnd, index, 'transactionId'),
    producerSub: subbed ? readText(bytes, txnEnd + 2, subEnd, index, 'producer sub') : null,
    encrypted: (flags & FLAG_ENCRYPTED) !== 0,
    payload: bytes.subarray(subEnd, end),
  };
}

/** The end of the length-prefixed text at `at`, which must lie within the body that ends at `end`. */
function textEnd(bytes: Buffer, at: number, end: number, index: number, what: string): number {
  if (at + 2 > end) throw fault(index, at, `the body ends before its ${what}`);
  const textEnd = at + 2 + bytes.readUInt16LE(at);
  if (textEnd > end) throw fault(index, at, `the ${what} overruns the body`);
  return textEnd;
}

function readText(bytes: Buffer, from: number, to: number, index: number, what: string): string {
  const text = bytes.toString('utf8', from, to);
  // Bytes that are no UTF-8 decode to U+FFFD, which is a legal character too: only then look closer.
  if (text.includes('\ufffd') && !isUtf8(bytes.subarray(from, to))) {
    throw fault(index, from, `the ${what} is not UTF-8`);
  }
  return text;
}

function fault(index: number, at: number, what: string): MalformedSegment {
  return new MalformedSegment(`frame ${index} at byte ${at}: ${what}`);
}
