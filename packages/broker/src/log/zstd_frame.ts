/**
 * The outline of a zstd frame (RFC 8878, section 3.1.1), read without decompressing it. The decompressor of the
 * platform stops after the first frame and says nothing about bytes that follow, and it learns of a size only by
 * producing it; a stored segment has to be exactly one frame, of a size that is known before memory is taken.
 */
import { MalformedSegment } from './frame.ts';

const MAGIC = 0xfd2fb528;
const BLOCK_RLE = 1;
const BLOCK_RESERVED = 3;

export interface ZstdOutline {
  /** Bytes after decompression as the header tells them; null when it does not. */
  contentBytes: number | null;
  /** Index of the first byte after the frame. */
  end: number;
}

/** Throws MalformedSegment when `blob` does not begin with a whole zstd frame. */
export function outlineZstdFrame(blob: Buffer): ZstdOutline {
  if (blob.length < 6 || blob.readUInt32LE(0) !== MAGIC) throw new MalformedSegment('not a zstd frame');
  const descriptor = blob[4]!;
  const single = (descriptor & 0x20) !== 0;
  if ((descriptor & 0x08) !== 0) throw new MalformedSegment('zstd: reserved bit set');
  const dictionaryBytes = [0, 1, 2, 4][descriptor & 3]!;
  const sizeBytes = [single ? 1 : 0, 2, 4, 8][descriptor >> 6]!;
  let at = 5 + (single ? 0 : 1) + dictionaryBytes;
  if (at + sizeBytes > blob.length) throw new MalformedSegment('zstd: the header is cut off');
  const contentBytes = readContentSize(blob, at, sizeBytes);
  at += sizeBytes;
  for (let last = false; !last; ) {
    if (at + 3 > blob.length) throw new MalformedSegment('zstd: a block header is cut off');
    const header = blob.readUIntLE(at, 3);
    const type = (header >> 1) & 3;
    if (type === BLOCK_RESERVED) throw new MalformedSegment('zstd: reserved block type');
    last = (header & 1) !== 0;
    at += 3 + (type === BLOCK_RLE ? 1 : header >> 3);
  }
  if ((descriptor & 0x04) !== 0) at += 4;
  if (at > blob.length) throw new MalformedSegment(`zstd: ${blob.length} bytes of ${at}`);
  return { contentBytes, end: at };
}

function readContentSize(blob: Buffer, at: number, bytes: number): number | null {
  if (bytes === 0) return null;
  if (bytes === 1) return blob[at]!;
  if (bytes === 2) return blob.readUInt16LE(at) + 256;
  if (bytes === 4) return blob.readUInt32LE(at);
  return Number(blob.readBigUInt64LE(at));
}
