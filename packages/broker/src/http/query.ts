/**
 * Typed query parameters. One that cannot be read fails the whole request with a 400 that names it and says what is
 * allowed; unknown ones are ignored. Given twice, a known one is refused: there is no right choice.
 */
import { badQuery } from './errors.ts';
import { queryPairs } from './target.ts';

/** What an integer of a message route may be: PostgreSQL's `int`. */
export const INT_MIN = -2_147_483_648;
export const INT_MAX = 2_147_483_647;

export class Query {
  readonly #values = new Map<string, string>();
  readonly #malformed = new Set<string>();
  readonly #repeated = new Set<string>();

  constructor(query: string) {
    for (const { name, value, malformed } of queryPairs(query)) {
      if (this.#values.has(name)) this.#repeated.add(name);
      this.#values.set(name, value);
      if (malformed) this.#malformed.add(name);
    }
  }

  /** Null: not sent. */
  text(name: string): string | null {
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
}
