/**
 * A segment's blob: the frames, compressed together by zstd into exactly one zstd frame that carries its content
 * size and a checksum of its content. The checksum (4 bytes) is what turns a bit that flips inside a payload into
 * an error; without it zstd happily decodes another payload.
 *
 * zlib's fixed cost is about 40 µs a call, and 20 to read. So what has at most {@link PLAIN_BYTES_MAX}, a message or two
 * that came alone, stands in its frame as it is: zstd would save a quarter of it, which is little beside its row.
 *
 * Below 64 KiB a call on this thread is cheaper than the way to the pool and back, above it the pool keeps the event loop
 * free. `pledgedSrcSize` is not a nicety: without it an asynchronous call on a small input costs 290 µs instead of 80, and
 * the frame would lack its content size.
 */
import { promisify } from 'node:util';
import {
  constants,
  type ZstdOptions,
  zstdCompress,
  zstdCompressSync,
  zstdDecompress,
  zstdDecompressSync,
} from 'node:zlib';
import { decodeFrames, encodeFrames, type Frame, MalformedSegment } from './frame.ts';
import { outlineZstdFrame, plainContent, plainZstdFrame } from './zstd_frame.ts';

/**
 * Bytes of a segment before compression. Enforced on both ways, so that nothing can be stored that could not be read
 * back; four times the default limit of a request body, which is where a fused segment ends.
 */
export const SEGMENT_BYTES_MAX = 256 * 1024 * 1024;
const SYNC_BYTES_MAX = 64 * 1024;
const PLAIN_BYTES_MAX = 512;

const compressOnPool = promisify<Buffer, ZstdOptions, Buffer>(zstdCompress);
const decompressOnPool = promisify<Buffer, ZstdOptions, Buffer>(zstdDecompress);

/**
 * The blob of `frames` at zstd level `level` (-7..22). At once below 64 KiB, else a promise. Throws (or rejects with)
 * a RangeError when the frames exceed {@link SEGMENT_BYTES_MAX} or one of them does not fit its format.
 */
export function packSegment(frames: readonly Frame[], level: number): Buffer | Promise<Buffer> {
  const raw = encodeFrames(frames, SEGMENT_BYTES_MAX);
  if (raw.length > 0 && raw.length <= PLAIN_BYTES_MAX) return plainZstdFrame(raw);
  const options: ZstdOptions = {
    pledgedSrcSize: raw.length,
    params: { [constants.ZSTD_c_compressionLevel]: level, [constants.ZSTD_c_checksumFlag]: 1 },
  };
  if (raw.length >= SYNC_BYTES_MAX) return compressOnPool(raw, options);
  // zlib else takes 64 KiB for every call, and the blob is a view that keeps all of it alive.
  options.chunkSize = compressedBytesMax(raw.length) + 1;
  return zstdCompressSync(raw, options);
}

/** What zstd makes of incompressible input below 128 KiB, at most (`ZSTD_COMPRESSBOUND` in zstd.h), plus the checksum. */
function compressedBytesMax(rawBytes: number): number {
  return rawBytes + (rawBytes >> 8) + ((128 * 1024 - rawBytes) >> 11) + 4;
}

/**
 * The frames `from..to` (inclusive indices, default all) of a segment that must hold exactly `count`. Payloads are
 * views into one buffer. At once when small, else a promise. Throws (or rejects with) MalformedSegment for a
 * blob that is not, to the last byte, what packSegment wrote.
 */
export function unpackSegment(
  blob: Buffer,
  count: number,
  from = 0,
  to = count - 1,
): Frame[] | Promise<Frame[]> {
  const outline = outlineZstdFrame(blob);
  const { contentBytes, end } = outline;
  if (end !== blob.length) throw new MalformedSegment(`${blob.length - end} bytes after the zstd frame`);
  const bytesMax = contentBytes ?? SEGMENT_BYTES_MAX;
  if (bytesMax > SEGMENT_BYTES_MAX)
    throw new MalformedSegment(`a segment of ${bytesMax} bytes is above the limit`);
  const options: ZstdOptions = { maxOutputLength: Math.max(1, bytesMax) };
  if (contentBytes !== null && contentBytes >= 64) options.chunkSize = contentBytes;
  const decode = (raw: Buffer): Frame[] => {
    if (contentBytes !== null && raw.length !== contentBytes) {
      throw new MalformedSegment(`${raw.length} bytes instead of ${contentBytes}`);
    }
    return decodeFrames(raw, from, to, count);
  };
  if (Math.max(contentBytes ?? 0, blob.length) < SYNC_BYTES_MAX) {
    try {
      return decode(outline.plain === null ? zstdDecompressSync(blob, options) : plainContent(blob, outline));
    } catch (error) {
      throw malformed(error);
    }
  }
  return decompressOnPool(blob, options)
    .then(decode)
    .catch((error: unknown) => {
      throw malformed(error);
    });
}

/** What the decompressor refuses is a malformed segment; running out of memory and the like is not. */
function malformed(error: unknown): unknown {
  if (error instanceof MalformedSegment) return error;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (code === 'ZSTD_error_memory_allocation') return error;
  if (code.startsWith('ZSTD_') || code.startsWith('Z_') || code === 'ERR_BUFFER_TOO_LARGE') {
    return new MalformedSegment(`zstd: ${(error as Error).message}`, { cause: error });
  }
  return error;
}
