import type { Claims } from './claims.ts';

const ENTRIES_MAX = 10_000;
/** Of token text. */
const CHARACTERS_MAX = 8 * 1024 * 1024;

interface Entry {
  claims: Claims;
  generation: number;
}

/**
 * Tokens that were verified, by their exact text: a client sends the same one with every request, and a signature costs
 * a hundred times the request's own work. An answer is given only while the token has not expired and the keys are those
 * that it was verified with. Nothing is remembered of a token that was refused.
 */
export class TokenMemo {
  /** The oldest first. */
  readonly #entries = new Map<string, Entry>();
  readonly #entriesMax: number;
  readonly #charactersMax: number;
  #characters = 0;

  constructor(entriesMax = ENTRIES_MAX, charactersMax = CHARACTERS_MAX) {
    this.#entriesMax = entriesMax;
    this.#charactersMax = charactersMax;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(token: string, generation: number, nowSeconds: number): Claims | null {
    const entry = this.#entries.get(token);
    if (entry === undefined) return null;
    if (entry.generation === generation && nowSeconds <= entry.claims.goodUntil) return entry.claims;
    this.#drop(token);
    return null;
  }

  set(token: string, claims: Claims, generation: number): void {
    this.#drop(token);
    this.#entries.set(token, { claims, generation });
    this.#characters += token.length;
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#entriesMax && this.#characters <= this.#charactersMax) return;
      this.#drop(oldest);
    }
  }

  #drop(token: string): void {
    if (this.#entries.delete(token)) this.#characters -= token.length;
  }
}
