import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

/**
 * Payloads at rest: AES-256-GCM in a JSON envelope, so that a sealed payload is still a JSON value and a
 * consumer without the key receives something that it can name.
 *
 *   {"encrypted":"<base64>","iv":"<base64 of 16 bytes>","authTag":"<base64 of 16 bytes>"}
 *
 * The first 12 bytes of `iv` are the nonce, drawn at random for every payload. GCM's bound of 2^32 messages
 * for one key with random nonces (NIST SP 800-38D, 8.3) is the product's bound too: there is no rotation.
 */
export interface SealingKey {
  readonly bytes: Buffer;
}

const IV_BYTES = 16;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** What is longer than this around the ciphertext cannot be an envelope of ours. */
const ENVELOPE =
  /^\{"encrypted":"([A-Za-z0-9+/]*={0,2})","iv":"([A-Za-z0-9+/]{22}==)","authTag":"([A-Za-z0-9+/]{22}==)"\}$/;
/** Fixed text of an envelope: the keys, the quotes, 24 characters each for iv and tag. */
const ENVELOPE_BYTES_MIN = 24 + 24 + '{"encrypted":"","iv":"","authTag":""}'.length;

/** Null: not 64 hexadecimal digits. */
export function parseSealingKey(text: string): SealingKey | null {
  return /^[0-9A-Fa-f]{64}$/.test(text) ? { bytes: Buffer.from(text, 'hex') } : null;
}

/** Every call draws a new nonce, so equal payloads have unlike envelopes. */
export function sealPayload(key: SealingKey, payload: Uint8Array): Buffer {
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv('aes-256-gcm', key.bytes, iv.subarray(0, NONCE_BYTES));
  const encrypted = Buffer.concat([cipher.update(payload), cipher.final()]).toString('base64');
  const tag = cipher.getAuthTag().toString('base64');
  return Buffer.from(
    `{"encrypted":"${encrypted}","iv":"${iv.toString('base64')}","authTag":"${tag}"}`,
    'latin1',
  );
}

/** True when the bytes have the shape of an envelope. A client's own payload may have it too. */
export function looksSealed(payload: Uint8Array): boolean {
  return payload.length >= ENVELOPE_BYTES_MIN && ENVELOPE.test(latin1(payload));
}

/**
 * The payload as it was before sealing. Null: not an envelope, another key, or changed bytes; the caller hands
 * out what is stored.
 */
export function openPayload(key: SealingKey, sealed: Uint8Array): Buffer | null {
  if (sealed.length < ENVELOPE_BYTES_MIN) return null;
  const parts = ENVELOPE.exec(latin1(sealed));
  if (parts === null) return null;
  const iv = Buffer.from(parts[2]!, 'base64');
  const tag = Buffer.from(parts[3]!, 'base64');
  if (iv.length !== IV_BYTES || tag.length !== TAG_BYTES) return null;
  const decipher = createDecipheriv('aes-256-gcm', key.bytes, iv.subarray(0, NONCE_BYTES), {
    authTagLength: TAG_BYTES,
  });
  decipher.setAuthTag(tag);
  try {
    return Buffer.concat([decipher.update(parts[1]!, 'base64'), decipher.final()]);
  } catch {
    return null;
  }
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
}
