/**
 * Passwords of connectors at rest: AES-256-GCM under the broker's key, bound to their tenant and connector, so that a
 * sealed value that is copied into another document does not open there.
 *
 * `v1.` and base64 of nonce (12 bytes, random), tag (16) and ciphertext.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import type { TenantId } from '../../../engine/types.ts';
import type { SealingKey } from '../../../log/envelope.ts';
import { ConnectorFault } from '../fault.ts';

const CIPHER = 'aes-256-gcm';
const VERSION = 'v1.';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

export interface Owner {
  readonly tenant: TenantId;
  readonly name: string;
}

export function sealPassword(key: SealingKey, owner: Owner, password: string): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key.bytes, nonce).setAAD(binding(owner));
  const sealed = Buffer.concat([cipher.update(password, 'utf8'), cipher.final()]);
  return VERSION + Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString('base64');
}

/** Throws ConnectorFault `unseal`. */
export function openPassword(key: SealingKey | null, owner: Owner, sealed: string): string {
  if (key === null) {
    throw new ConnectorFault(
      'unseal',
      'the password is sealed and this node has no QUEEN_ENCRYPTION_KEY: start it with the one of the other nodes',
    );
  }
  const bytes = Buffer.from(sealed.slice(VERSION.length), 'base64');
  try {
    if (!sealed.startsWith(VERSION)) throw new Error('another form');
    const nonce = bytes.subarray(0, NONCE_BYTES);
    const opener = createDecipheriv(CIPHER, key.bytes, nonce, { authTagLength: TAG_BYTES })
      .setAAD(binding(owner))
      .setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
    const rest = bytes.subarray(NONCE_BYTES + TAG_BYTES);
    return Buffer.concat([opener.update(rest), opener.final()]).toString('utf8');
  } catch {
    throw new ConnectorFault(
      'unseal',
      'this node cannot open the sealed password: give every node the same QUEEN_ENCRYPTION_KEY, or PUT the password again',
    );
  }
}

/** Neither a tenant nor a name holds a slash. */
function binding({ tenant, name }: Owner): Buffer {
  return Buffer.from(`queen-pg/${tenant}/${name}`);
}
