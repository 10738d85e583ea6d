/**
 * Typed query parameters. One that cannot be read fails the whole request with a 400 that names it and says what is
 * allowed; unknown ones are ignored. Given twice, a known one is refused: there is no right choice.
 */
import { INT_MAX, INT_MIN } from '../engine/types.ts';
import { parseInstant, storableInstant } from '../log/instants.ts';
import { badQuery } from './errors.ts';
import { queryPairs, splitTarget } from './target.ts';

export interface PageSize {
  /** Without `limit`. */
  readonly limit: number;
  readonly most: number;
}

/** What a route says that its query may hold. */
type Declared = { readonly properties: object };

export class Query {
  readonly #declared: object | undefined;
  readonly #values = new Map<string, string>();
  readonly #malformed = new Set<string>();
  readonly #repeated = new Set<string>();

  /** @param declared a parameter that is not among these cannot be read: it would be in no document */
  constructor(query: string, declared?: Declared) {
    this.#declared = declared?.properties;
    for (const { name, value, malformed } of queryPairs(query)) {
      if (this.#values.has(name)) this.#repeated.add(name);
      this.#values.set(name, value);
      if (malformed) this.#malformed.add(name);
    }
  }

  /** Null: not sent. */
  text(name: string): string | null {
    if (this.#declared !== undefined && !Object.hasOwn(this.#declared, name))
      throw new Error(`the parameter ${name} is read but not declared`);
    const value = this.#values.get(name);
    if (value === undefined) return null;
    if (this.#malformed.has(name)) throw badQuery(name, 'holds a malformed percent escape or invalid UTF-8');
    if (this.#repeated.has(name)) throw badQuery(name, 'is given more than once');
    return value;
  }

  /** Null: not sent. */
  integer(name: string): number | null {
    const text = this.text(name);
    if (text === null) return null;
    const value = /^[+-]?\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= INT_MIN && value <= INT_MAX) return value;
    throw badQuery(name, `must be an integer between ${INT_MIN} and ${INT_MAX}`);
  }

  /** Null: not sent. */
  boolean(name: string): boolean | null {
    const text = this.text(name);
    if (text === null) return null;
    if (text === 'true') return true;
    if (text === 'false') return false;
    throw badQuery(name, 'must be true or false');
  }

  /** A boolean of a management route, where more words are known. Null: not sent, or sent empty. */
  flag(name: string): boolean | null {
    const text = this.text(name)?.toLowerCase() ?? '';
    if (text === '') return null;
    if (['true', '1', 'yes'].includes(text)) return true;
    if (['false', '0', 'no'].includes(text)) return false;
    throw badQuery(name, 'must be true or false');
  }

  /** An instant, in microseconds. Null: not sent, or sent empty. */
  instant(name: string): number | null {
    const text = this.text(name);
    if (text === null || text.trim() === '') return null;
    const micros = parseInstant(text);
    if (micros === null) throw badQuery(name, 'must be an ISO 8601 instant');
    return storableInstant(micros);
  }

  /** Which page: `limit` held between 1 and the most, `offset` not below 0. */
  page(size: PageSize): { limit: number; skip: number } {
    return { limit: this.limit(size), skip: Math.max(0, this.integer('offset') ?? 0) };
  }

  /** How many of what has no pages: held between 1 and the most. */
  limit({ limit, most }: PageSize): number {
    return Math.min(most, Math.max(1, this.integer('limit') ?? limit));
  }
}

/** The query of a request whose route has declared its parameters. */
export function queryOf(request: {
  raw: { url?: string | undefined };
  routeOptions: { schema?: { parameters?: Declared | undefined } | undefined };
}): Query {
  const { query } = splitTarget(request.raw.url!);
  return new Query(query, request.routeOptions.schema?.parameters ?? { properties: {} });
}
