/**
 * What brokers tell each other in a notification: JSON, below 8000 bytes (PostgreSQL's limit for a payload), marked
 * with the sender so that it can ignore its own.
 *
 *   {"b": sender, "q": [[tenant, queue, id, last, id, last, ...], ...]   appended; without pairs: "look yourself"
 *                 "r": [[group, id, committed | null], ...]              a lease ended
 *                 "d": [[tenant, queue], ...]                            queue deleted
 *                 "x": 1,                                                 repairs were published
 *                 "t": 1,                                                 timers were scheduled
 *                 "s": 1}                                                 a switch was set (only the database says that)
 * An empty tenant stands for the default one. Unknown keys are ignored, so that brokers of adjacent versions get on.
 */
import { DEFAULT_TENANT } from '../types.ts';

/** PostgreSQL refuses 8000 and more. */
export const PAYLOAD_BYTES_MAX = 7_900;

export interface AppendedNews {
  tenant: string;
  queue: string;
  /** id, last offset, id, last offset, ... Empty: which partitions is not known. */
  pairs: readonly number[];
}

export interface ReleasedNews {
  group: string;
  partitionId: number;
  committed: number | null;
}

export interface News {
  sender: string;
  appended: AppendedNews[];
  released: ReleasedNews[];
  deleted: { tenant: string; queue: string }[];
  repairs: boolean;
  switches: boolean;
  /** Some that are due soon, while nobody may be looking. */
  timers: boolean;
}

export type Outgoing = Omit<News, 'sender' | 'switches'>;

/** As few payloads as hold the news. */
export function encodeNews(sender: string, news: Outgoing): string[] {
  const pack = new Packer(sender, news.repairs, news.timers);
  for (const { tenant, queue } of news.deleted) pack.add('d', JSON.stringify([short(tenant), queue]));
  for (const { tenant, queue, pairs } of news.appended) pack.addPairs(short(tenant), queue, pairs);
  for (const { group, partitionId, committed } of news.released) {
    pack.add('r', JSON.stringify([group, partitionId, committed]));
  }
  return pack.finish();
}

/** Whether `sender` made the payload; without reading it. */
export function isFrom(sender: string, payload: string): boolean {
  const head = `{"b":${JSON.stringify(sender)}`;
  return payload.startsWith(head) && (payload[head.length] === ',' || payload[head.length] === '}');
}

/** Null: not a payload of ours. */
export function decodeNews(payload: string): News | null {
  let value: unknown;
  try {
    value = JSON.parse(payload);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null) return null;
  const { b, q, r, d, x, t, s } = value as Record<string, unknown>;
  if (typeof b !== 'string') return null;
  const news: News = {
    sender: b,
    appended: [],
    released: [],
    deleted: [],
    repairs: x === 1,
    switches: s === 1,
    timers: t === 1,
  };
  for (const [tenant, queue, ...pairs] of lists(q)) {
    if (typeof tenant !== 'string' || typeof queue !== 'string' || !pairs.every(Number.isSafeInteger))
      continue;
    news.appended.push({ tenant: long(tenant), queue, pairs: pairs as number[] });
  }
  for (const [group, partitionId, committed] of lists(r)) {
    if (typeof group !== 'string' || !Number.isSafeInteger(partitionId)) continue;
    const cursor = Number.isSafeInteger(committed) ? (committed as number) : null;
    news.released.push({ group, partitionId: partitionId as number, committed: cursor });
  }
  for (const [tenant, queue] of lists(d)) {
    if (typeof tenant === 'string' && typeof queue === 'string')
      news.deleted.push({ tenant: long(tenant), queue });
  }
  return news;
}

/** Fills payloads one after the other. Sizes are bytes of UTF-8. */
class Packer {
  readonly #sender: string;
  readonly #out: string[] = [];
  #parts: Record<'q' | 'r' | 'd', string[]> = { q: [], r: [], d: [] };
  #bytes = 0;
  #repairs: boolean;
  #timers: boolean;

  constructor(sender: string, repairs: boolean, timers: boolean) {
    this.#sender = sender;
    this.#repairs = repairs;
    this.#timers = timers;
  }

  add(kind: 'q' | 'r' | 'd', text: string): void {
    const bytes = Buffer.byteLength(text) + 1;
    if (this.#bytes + bytes > this.#room) this.#flush();
    this.#parts[kind].push(text);
    this.#bytes += bytes;
  }

  /** Cuts a long list of pairs into pieces that fit. */
  addPairs(tenant: string, queue: string, pairs: readonly number[]): void {
    const head = JSON.stringify([tenant, queue]).slice(0, -1);
    const headBytes = Buffer.byteLength(head) + 2;
    let text = head;
    let bytes = headBytes;
    const end = () => this.add('q', `${text}]`);
    for (let i = 0; i < pairs.length; i += 2) {
      const pair = `,${pairs[i]},${pairs[i + 1]}`;
      if (this.#bytes + bytes + pair.length > this.#room && bytes > headBytes) {
        end();
        this.#flush();
        text = head;
        bytes = headBytes;
      }
      text += pair;
      bytes += pair.length;
    }
    end();
  }

  finish(): string[] {
    if (this.#bytes > 0 || this.#repairs || this.#timers) this.#flush();
    return this.#out;
  }

  get #room(): number {
    return PAYLOAD_BYTES_MAX - Buffer.byteLength(JSON.stringify(this.#sender)) - 40;
  }

  #flush(): void {
    const { q, r, d } = this.#parts;
    if (q.length + r.length + d.length === 0 && !this.#repairs && !this.#timers) return;
    let text = `{"b":${JSON.stringify(this.#sender)}`;
    if (d.length > 0) text += `,"d":[${d.join(',')}]`;
    if (q.length > 0) text += `,"q":[${q.join(',')}]`;
    if (r.length > 0) text += `,"r":[${r.join(',')}]`;
    if (this.#repairs) text += ',"x":1';
    if (this.#timers) text += ',"t":1';
    this.#out.push(`${text}}`);
    this.#repairs = false;
    this.#timers = false;
    this.#parts = { q: [], r: [], d: [] };
    this.#bytes = 0;
  }
}

function lists(value: unknown): unknown[][] {
  return Array.isArray(value) ? value.filter(Array.isArray) : [];
}

function short(tenant: string): string {
  return tenant === DEFAULT_TENANT ? '' : tenant;
}

function long(tenant: string): string {
  return tenant === '' ? DEFAULT_TENANT : tenant;
}
