import { rank } from './rank.ts';

/** A broker that did not answer is asked last for so long, ms. */
const AVOIDED_MS = 5_000;

/** The brokers that a client knows, and which of them have lately failed. All of them can serve every call. */
export class Brokers {
  readonly urls: readonly string[];
  readonly #downUntil = new Map<string, number>();
  readonly #now: () => number;

  /**
   * @param urls base URLs; a path in front of `/api` is kept
   * @throws TypeError for an empty list and for what is no http or https URL
   */
  constructor(urls: readonly string[], now: () => number = Date.now) {
    this.urls = [...new Set(urls.map(baseOf))];
    if (this.urls.length === 0) throw new TypeError('at least one URL of a broker is needed');
    this.#now = now;
  }

  /** In which order to ask them: by affinity to the key, those that have just failed at the end. */
  order(key: string): string[] {
    const ranked = rank(this.urls, key);
    const now = this.#now();
    const up = ranked.filter((url) => (this.#downUntil.get(url) ?? 0) <= now);
    return [...up, ...ranked.filter((url) => !up.includes(url))];
  }

  failed(url: string): void {
    this.#downUntil.set(url, this.#now() + AVOIDED_MS);
  }

  answered(url: string): void {
    this.#downUntil.delete(url);
  }
}

function baseOf(text: string): string {
  const url = new URL(text);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new TypeError(`"${text}" is not an http or https URL`);
  }
  if (url.username !== '' || url.password !== '') {
    throw new TypeError('a URL of a broker holds no password: give a token');
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}
