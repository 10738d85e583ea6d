/** Payloads that were scheduled compressed. */
import { zstdDecompressSync } from 'node:zlib';

/**
 * The text of a zstd compressed payload. `too_large`: it has more than `bytesMax` bytes; null: it is no zstd. A payload is
 * bounded, and about as long to inflate here as to send to another thread.
 */
export function inflate(payload: Buffer, bytesMax: number): Buffer | 'too_large' | null {
  try {
    return zstdDecompressSync(payload, { maxOutputLength: Math.max(1, bytesMax) });
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE' ? 'too_large' : null;
  }
}
