/**
 * The issuer's public keys, fetched from a URL: at the start, once a period, and when a token names a key that is not
 * among them. Keys that were fetched stay good while the issuer cannot be reached; only a list that was received whole
 * replaces them. Requests that wait for the same fetch share it, and strangers' key ids cannot make this broker hammer
 * the issuer: such a fetch begins at most every five seconds.
 */
import { createPublicKey, type KeyObject } from 'node:crypto';
import type { Clock, Timer } from '../../engine/clock.ts';

export type KeyType = 'RSA' | 'OKP';

export interface JwksLog {
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
}

export interface JwksOptions {
  url: string;
  refreshMs: number;
  /** Of one fetch, from the connection to the last byte. */
  timeoutMs: number;
  clock: Clock;
  log: JwksLog;
}

interface Key {
  id: string;
  type: KeyType;
  key: KeyObject;
}

const BYTES_MAX = 1024 * 1024;
/** Shorter ones are refused when a signature is checked (RFC 7518, 3.3). */
export const RSA_BITS_MIN = 2048;
const UNKNOWN_EVERY_MS = 5_000;

export class Jwks {
  /** Changes whenever the keys do. */
  generation = 0;
  readonly #options: JwksOptions;
  #keys: readonly Key[] = [];
  #print = '';
  #fetching: Promise<void> | null = null;
  #askedAt = Number.NEGATIVE_INFINITY;
  #timer: Timer | null = null;
  #stopped = false;

  constructor(options: JwksOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#keys.length;
  }

  /** Begins the first fetch. Nobody waits for it: the first token that needs a key does. */
  start(): void {
    void this.refresh();
    this.#plan();
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  /** Null: there is no such key. An empty id means the first key of the type. */
  find(id: string, type: KeyType): KeyObject | null {
    for (const key of this.#keys) {
      if (key.type === type && (id === '' || key.id === id)) return key.key;
    }
    return null;
  }

  /** The same, after a look at the issuer if one is due. */
  async look(id: string, type: KeyType): Promise<KeyObject | null> {
    const known = this.find(id, type);
    if (known !== null) return known;
    const now = this.#options.clock.now();
    if (this.#fetching !== null) await this.#fetching;
    else if (now - this.#askedAt >= UNKNOWN_EVERY_MS) {
      this.#askedAt = now;
      await this.refresh();
    }
    return this.find(id, type);
  }

  /** One fetch; who asks while it runs waits for the same one. Never rejects. */
  refresh(): Promise<void> {
    this.#fetching ??= this.#fetch().finally(() => {
      this.#fetching = null;
    });
    return this.#fetching;
  }

  #plan(): void {
    const { clock, refreshMs } = this.#options;
    this.#timer = clock.after(refreshMs, () => {
      void this.refresh().then(() => {
        if (!this.#stopped) this.#plan();
      });
    });
  }

  async #fetch(): Promise<void> {
    const { url, timeoutMs, log } = this.#options;
    try {
      const { keys, skipped } = readKeys(await receive(url, timeoutMs));
      const print = JSON.stringify(
        keys.map(({ id, type, key }) => [id, type, key.export({ format: 'jwk' })]),
      );
      if (print === this.#print) return;
      this.#keys = keys;
      this.#print = print;
      this.generation++;
      const facts = { keys: keys.length, skipped };
      if (keys.length === 0) log.warn(facts, 'the JWKS holds no key that can be used');
      else log.info(facts, 'keys of the JWKS loaded');
    } catch (error) {
      log.warn({ err: error, url: withoutSecrets(url) }, 'the JWKS could not be fetched');
    }
  }
}

async function receive(url: string, timeoutMs: number): Promise<unknown> {
  const signal = AbortSignal.timeout(timeoutMs);
  const response = await fetch(url, { redirect: 'error', signal, headers: { accept: 'application/json' } });
  if (!response.ok || response.body === null) {
    await response.body?.cancel();
    throw new Error(`the server answered ${response.status}`);
  }
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  // Leaving the loop early cancels the rest of the body.
  for await (const chunk of response.body) {
    bytes += chunk.length;
    if (bytes > BYTES_MAX) throw new Error(`the answer is larger than ${BYTES_MAX} bytes`);
    chunks.push(chunk);
  }
  return JSON.parse(Buffer.concat(chunks).toString('utf8'));
}

function readKeys(value: unknown): { keys: Key[]; skipped: number } {
  const list = (value as { keys?: unknown } | null)?.keys;
  if (!Array.isArray(list)) throw new Error('the answer has no array "keys"');
  const keys: Key[] = [];
  for (const entry of list) {
    const key = readKey(entry);
    if (key !== null) keys.push(key);
  }
  return { keys, skipped: list.length - keys.length };
}

/** Null for what cannot verify a signature here. Only the public numbers are taken over. */
function readKey(value: unknown): Key | null {
  if (typeof value !== 'object' || value === null) return null;
  const { kty, crv, n, e, x, kid, use } = value as Record<string, unknown>;
  if (use !== undefined && use !== 'sig') return null;
  const id = typeof kid === 'string' ? kid : '';
  try {
    if (kty === 'RSA' && typeof n === 'string' && typeof e === 'string') {
      const key = createPublicKey({ key: { kty, n, e }, format: 'jwk' });
      return (key.asymmetricKeyDetails?.modulusLength ?? 0) < RSA_BITS_MIN ? null : { id, type: 'RSA', key };
    }
    if (kty === 'OKP' && crv === 'Ed25519' && typeof x === 'string') {
      return { id, type: 'OKP', key: createPublicKey({ key: { kty, crv, x }, format: 'jwk' }) };
    }
  } catch {
    // Numbers that are no key.
  }
  return null;
}

function withoutSecrets(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}
