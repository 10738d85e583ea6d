import { InDoubtError, RefusedError } from '../errors.ts';
import type { CallOptions, Transport } from '../wire/transport.ts';
import {
  isRead,
  isRepeatable,
  type KvEntry,
  type KvOperation,
  type KvWritten,
  type Life,
  lifeOf,
  unapplied,
} from './kv_operations.ts';

type Put = Life & CallOptions & { readonly expect?: number | undefined };

/** JSON values by key, within one namespace. Where no life is given a value stays until it is deleted. */
export class KeyValues<V = unknown> {
  readonly #transport: Transport;
  readonly #ns: string;

  constructor(transport: Transport, namespace: string) {
    this.#transport = transport;
    this.#ns = namespace;
  }

  /** Null: there is none, or it has expired. */
  async get<W = V>(key: string, { signal }: CallOptions = {}): Promise<KvEntry<W> | null> {
    const found = await this.#one<KvEntry<W> & { found: boolean }>({ op: 'get', ns: this.#ns, key }, signal);
    if (!found.found) return null;
    return entryOf(found);
  }

  /** Those that are there, by key. @param keys 1..4096 */
  async getMany<W = V>(
    keys: readonly string[],
    { signal }: CallOptions = {},
  ): Promise<Map<string, KvEntry<W>>> {
    const entries = new Map<string, KvEntry<W>>();
    let open = [...new Set(keys)];
    while (open.length > 0) {
      const page = await this.#one<{ rows: KvEntry<W>[]; missing: string[]; truncated: boolean }>(
        { op: 'getMany', ns: this.#ns, keys: open },
        signal,
      );
      for (const row of page.rows) entries.set(row.key, row);
      if (!page.truncated) break;
      // What did not fit into one answer is in neither list.
      const missing = new Set(page.missing);
      open = open.filter((key) => !entries.has(key) && !missing.has(key));
    }
    return entries;
  }

  /** All keys that begin so, in order, page by page. @param prefix not empty */
  async *list<W = V>(prefix: string, options: CallOptions = {}): AsyncGenerator<KvEntry<W>, void, undefined> {
    for (let after: string | undefined; ; ) {
      const page = await this.#one<{ rows: KvEntry<W>[]; truncated: boolean; nextAfter: string | null }>(
        { op: 'getPrefix', ns: this.#ns, prefix, after, limit: 500 },
        options.signal,
      );
      yield* page.rows;
      if (!page.truncated || page.nextAfter === null) return;
      after = page.nextAfter;
    }
  }

  /**
   * Writes a value; with `expect` only over that version, 0: only where nothing is.
   *
   * @throws InDoubtError when the answer was lost. Over a version it is sent again, and this means that the repetition was not
   *   applied: what it found may be this very value. Everything else is not: it could undo what somebody did since
   */
  put<W extends V>(key: string, value: W, options: Put = {}): Promise<KvWritten<W>> {
    const { expect, signal } = options;
    return this.#one({ op: 'put', ns: this.#ns, key, value, ...lifeOf(options), expect }, signal);
  }

  /**
   * Writes a value where nothing is.
   *
   * @throws InDoubtError when the answer was lost: to write again could undo that somebody has deleted it since
   */
  putIfAbsent<W extends V>(key: string, value: W, options: Life & CallOptions = {}): Promise<KvWritten<W>> {
    const operation: KvOperation = { op: 'putIfAbsent', ns: this.#ns, key, value, ...lifeOf(options) };
    return this.#one(operation, options.signal);
  }

  /**
   * Deletes a key; with `expect` only that version.
   *
   * @throws InDoubtError when the answer was lost, as `put` does
   */
  delete(key: string, options: CallOptions & { expect?: number } = {}): Promise<KvWritten<V>> {
    return this.#one({ op: 'delete', ns: this.#ns, key, expect: options.expect }, options.signal);
  }

  /**
   * Adds to a number, from 0 on where there is none; the life counts for a new key. Not applied when the result would leave
   * `min` to `max`.
   *
   * @throws InDoubtError when the answer was lost: to add again could count twice
   */
  incr(
    key: string,
    delta: number,
    options: Life & CallOptions & { min?: number; max?: number } = {},
  ): Promise<KvWritten<number>> {
    const { min, max, signal } = options;
    return this.#one({ op: 'incr', ns: this.#ns, key, delta, ...lifeOf(options), min, max }, signal);
  }

  /**
   * Reads, computes and writes until nobody came between.
   *
   * @param change gets what is there, or null, and may be called several times
   * @throws RefusedError `contended` after 100 times; InDoubtError when an answer was lost and nobody knows whether the change is in
   *   what is there now
   */
  async update<W extends V>(
    key: string,
    change: (value: W | null) => W | Promise<W>,
    options: Life & CallOptions = {},
  ): Promise<KvWritten<W>> {
    const first = await this.get<W>(key, options);
    let value: W | null = first?.value ?? null;
    let expect = first?.version ?? 0;
    for (let tries = 0; tries < 100; tries++) {
      const written = await this.put<W>(key, await change(value), { ...options, expect });
      if (written.applied) return written;
      value = written.reason === 'absent' ? null : written.value;
      expect = written.reason === 'absent' ? 0 : written.version;
    }
    throw new RefusedError(`"${key}" is written by too many at once`, { code: 'contended' });
  }

  async #one<R>(operation: KvOperation, signal: AbortSignal | undefined): Promise<R> {
    const [result] = await kvBatch(this.#transport, [operation], { signal });
    return result as R;
  }
}

/**
 * Operations in one database transaction, at most 256.
 *
 * @throws RefusedError `kv_precondition` when a `required` write was not applied: then none is; InDoubtError of the same code when
 *   the answer was lost and a write of the repetition was not applied
 */
export async function kvBatch(
  transport: Transport,
  operations: readonly KvOperation[],
  { signal }: CallOptions,
): Promise<unknown[]> {
  const { body, repeated } = await transport.call<KvAnswer>({
    method: 'POST',
    path: '/api/v1/kv',
    body: { operations },
    affinity: 'kv',
    repeatable: operations.every(isRepeatable),
    reads: operations.every(isRead),
    signal,
  });
  const refused = body.ok === false ? { reason: body.kvReason } : undefined;
  // What stands in the way of a repetition may be what the first try has written.
  const doubted = repeated ? (refused ?? unapplied(body.results)) : undefined;
  const facts = { code: 'kv_precondition', reason: (refused ?? doubted)?.reason, status: 200, body };
  if (doubted !== undefined) {
    throw new InDoubtError(`a write was not applied: ${facts.reason} (an earlier try may have been)`, facts);
  }
  if (refused !== undefined) {
    throw new RefusedError(`a required write was not applied: ${facts.reason}`, facts);
  }
  return body.results;
}

interface KvAnswer {
  readonly results: { readonly applied?: boolean; readonly reason?: string }[];
  readonly ok?: boolean;
  readonly kvReason?: string;
}

function entryOf<W>({ key, value, version, expiresAt, updatedAt }: KvEntry<W>): KvEntry<W> {
  return { key, value, version, expiresAt, updatedAt };
}
