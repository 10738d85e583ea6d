/** How long a value lives: for so many seconds, or until it is deleted. */
export type Life =
  | { readonly ttlSeconds: number; readonly forever?: undefined }
  | { readonly forever?: true; readonly ttlSeconds?: undefined };

interface Written {
  readonly ns: string;
  readonly key: string;
  /** Not applied: the whole call is undone. */
  readonly required?: boolean | undefined;
}

type WireLife = { readonly ttlSeconds: number } | { readonly forever: true };

/** An operation as the wire has it, for a batch of them or a transaction. */
export type KvOperation =
  | { readonly op: 'get'; readonly ns: string; readonly key: string }
  | { readonly op: 'getMany'; readonly ns: string; readonly keys: readonly string[] }
  | {
      readonly op: 'getPrefix';
      readonly ns: string;
      readonly prefix: string;
      readonly after?: string | undefined;
      readonly limit?: number | undefined;
      readonly keysOnly?: boolean | undefined;
    }
  | (Written &
      WireLife & { readonly op: 'put'; readonly value: unknown; readonly expect?: number | undefined })
  | (Written & WireLife & { readonly op: 'putIfAbsent'; readonly value: unknown })
  | (Written & { readonly op: 'delete'; readonly expect?: number | undefined })
  | (Written &
      WireLife & {
        readonly op: 'incr';
        readonly delta: number;
        readonly min?: number | undefined;
        readonly max?: number | undefined;
      });

export interface KvEntry<V = unknown> {
  readonly key: string;
  readonly value: V;
  /** For comparing only; every write changes it. */
  readonly version: number;
  readonly expiresAt: string | null;
  readonly updatedAt: string;
}

export interface KvWritten<V = unknown> {
  readonly applied: boolean;
  readonly key: string;
  /** What is there now; for a delete what was deleted. */
  readonly value: V | null;
  readonly version: number;
  /** Why not: `exists`, `absent`, `version`, `limit` or `type`. */
  readonly reason?: 'exists' | 'absent' | 'version' | 'limit' | 'type';
}

export function lifeOf(life: Life): WireLife {
  return life.ttlSeconds === undefined ? { forever: true } : { ttlSeconds: life.ttlSeconds };
}

/**
 * Whether a lost answer is no reason not to do it again: it cannot be applied twice. So it is with a write that names a version, as
 * no version comes again; "nothing is there" does, once somebody has deleted what the first try wrote. What a repetition finds may be
 * what it left itself, so one that is not applied tells nothing: the caller is told that nobody knows.
 */
export function isRepeatable(operation: KvOperation): boolean {
  switch (operation.op) {
    case 'put':
    case 'delete':
      return operation.expect !== undefined && operation.expect > 0;
    case 'putIfAbsent':
    case 'incr':
      return false;
    default:
      return true;
  }
}

export function isRead({ op }: KvOperation): boolean {
  return op === 'get' || op === 'getMany' || op === 'getPrefix';
}

/** The first write among the results of operations that was not applied. */
export function unapplied<R extends { readonly applied?: boolean }>(results: readonly R[]): R | undefined {
  return results.find((result) => result.applied === false);
}
