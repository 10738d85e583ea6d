/** Bodies of the management routes: small, so they become values. */
import { JsonReader } from '../log/json/reader.ts';

/** Bytes of a management body. Nothing legal comes near it, and a value tree can take forty times its text. */
export const MANAGEMENT_BODY_BYTES_MAX = 1024 * 1024;

/**
 * The value of a body, or undefined for an empty one. Throws BodyFault for bytes that are not UTF-8, not JSON, or
 * nested too deeply; the reader looks first because it needs no memory to find that out.
 */
export function parseJsonBody(bytes: Buffer): unknown {
  if (bytes.length === 0) return undefined;
  const reader = new JsonReader(bytes);
  reader.skip();
  reader.end();
  return JSON.parse(bytes.toString('utf8'));
}
