/**
 * The outline of a zstd frame (RFC 8878, section 3.1.1), read without decompressing it. The decompressor of the
 * platform stops after the first frame and says nothing about bytes that follow, and it learns of a size only by
 * producing it; a stored segment has to be exactly one frame, of a size that is known before memory is taken.
 *
 * And the one frame that needs no compressor: a single block that holds its content as it is, which every decompressor
 * reads.
 */
import { createXXHash64 } from 'hash-wasm';
import { MalformedSegment } from './frame.ts';

const MAGIC = 0xfd2fb528;
/** Of the descriptor: the content is one piece, whose size the header tells; a checksum ends the frame. */
const SINGLE = 0x20;
const CHECKED = 0x04;
const CHECKSUM_BYTES = 4;
const BLOCK_RAW = 0;
const BLOCK_RLE = 1;
const BLOCK_RESERVED = 3;

export interface ZstdOutline {
  /** Bytes after decompression as the header tells them; null when it does not. */
  contentBytes: number | null;
  /** Index of the first byte after the frame. */
  end: number;
  /** Where the content begins when it stands in the frame as it is, with a checksum behind it; else null. */
  plain: number | null;
}

const hasher = await createXXHash64();

/** The last four bytes of the XXH64 of the content, whose canonical form is big-endian. */
function checksum(content: Buffer): number {
  const digest = hasher.init().update(content).digest('binary');
  return ((digest[4]! << 24) | (digest[5]! << 16) | (digest[6]! << 8) | digest[7]!) >>> 0;
}

/** A frame with its size and checksum that holds 1 to 65,791 bytes as they are. */
export function plainZstdFrame(content: Buffer): Buffer {
  const { length } = content;
  const sizeBytes = length < 256 ? 1 : 2;
  const from = 5 + sizeBytes + 3;
  const frame = Buffer.allocUnsafe(from + length + CHECKSUM_BYTES);
  frame.writeUInt32LE(MAGIC, 0);
  frame[4] = ((sizeBytes - 1) << 6) | SINGLE | CHECKED;
  if (sizeBytes === 1) frame[5] = length;
  else frame.writeUInt16LE(length - 256, 5);
  // The only block, and the last.
  frame.writeUIntLE((length << 3) | (BLOCK_RAW << 1) | 1, 5 + sizeBytes, 3);
  content.copy(frame, from);
  frame.writeUInt32LE(checksum(content), from + length);
  return frame;
}

/** The content of a frame whose outline says `plain`, copied. Throws MalformedSegment when it is damaged. */
export function plainContent(frame: Buffer, { plain, end }: ZstdOutline): Buffer {
  const content = Buffer.from(frame.subarray(plain!, end - CHECKSUM_BYTES));
  if (checksum(content) !== frame.readUInt32LE(end - CHECKSUM_BYTES)) {
    throw new MalformedSegment('zstd: the checksum of the content is another');
  }
  return content;
}

/** Throws MalformedSegment when `blob` does not begin with a whole zstd frame. */
export function outlineZstdFrame(blob: Buffer): ZstdOutline {
  if (blob.length < 6 || blob.readUInt32LE(0) !== MAGIC) throw new MalformedSegment('not a zstd frame');
  const descriptor = blob[4]!;
  const single = (descriptor & SINGLE) !== 0;
  if ((descriptor & 0x08) !== 0) throw new MalformedSegment('zstd: reserved bit set');
  const dictionaryBytes = [0, 1, 2, 4][descriptor & 3]!;
  const sizeBytes = [single ? 1 : 0, 2, 4, 8][descriptor >> 6]!;
  let at = 5 + (single ? 0 : 1) + dictionaryBytes;
  if (at + sizeBytes > blob.length) throw new MalformedSegment('zstd: the header is cut off');
  const contentBytes = readContentSize(blob, at, sizeBytes);
  at += sizeBytes;
  let plain: number | null = null;
  for (let last = false, first = true; !last; first = false) {
    if (at + 3 > blob.length) throw new MalformedSegment('zstd: a block header is cut off');
    const header = blob.readUIntLE(at, 3);
    const type = (header >> 1) & 3;
    if (type === BLOCK_RESERVED) throw new MalformedSegment('zstd: reserved block type');
    last = (header & 1) !== 0;
    if (first && last && type === BLOCK_RAW && (descriptor & CHECKED) !== 0) plain = at + 3;
    at += 3 + (type === BLOCK_RLE ? 1 : header >> 3);
  }
  if ((descriptor & CHECKED) !== 0) at += CHECKSUM_BYTES;
  if (at > blob.length) throw new MalformedSegment(`zstd: ${blob.length} bytes of ${at}`);
  return { contentBytes, end: at, plain };
}

function readContentSize(blob: Buffer, at: number, bytes: number): number | null {
  if (bytes === 0) return null;
  if (bytes === 1) return blob[at]!;
  if (bytes === 2) return blob.readUInt16LE(at) + 256;
  if (bytes === 4) return blob.readUInt32LE(at);
  return Number(blob.readBigUInt64LE(at));
}
