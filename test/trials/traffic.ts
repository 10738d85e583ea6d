/** Producers and consumers that keep going, repeat what failed, and count what came through and when. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client, Message, Pushed } from '../broker/client.ts';
import { percentile } from './rig.ts';

export interface TrafficOptions {
  /** Used in turn. */
  clients: readonly Client[];
  queue: string;
  lanes: number;
  pushers: number;
  consumers: number;
  /** Messages in a push. */
  batch: number;
  /** Between two pushes of a pusher, ms; may be changed while it runs. */
  pauseMs: number;
}

const RETRY_PAUSE_MS = 50;

export class Traffic {
  pauseMs: number;
  /** Ids that were answered `queued` or `duplicate`. */
  readonly stored = new Set<string>();
  /** Ids that came out. (Not those that were acked: an ack whose answer was lost may have counted.) */
  readonly delivered = new Set<string>();
  /** Requests that failed and were repeated. */
  failures = 0;
  readonly #options: TrafficOptions;
  readonly #stored: { at: number; count: number }[] = [];
  readonly #settled: { at: number; count: number }[] = [];
  readonly #tookMs: { at: number; ms: number }[] = [];
  readonly #pushing: Promise<void>[] = [];
  readonly #consuming: Promise<void>[] = [];
  #pushes = true;
  #pops = true;

  constructor(options: TrafficOptions) {
    this.#options = options;
    this.pauseMs = options.pauseMs;
  }

  start(): this {
    const { pushers, consumers } = this.#options;
    for (let i = 0; i < pushers; i++) this.#pushing.push(this.#push(i));
    for (let i = 0; i < consumers; i++) this.#consuming.push(this.#consume(i));
    return this;
  }

  /** Messages a second that were stored, and that were settled, since `from` (performance.now()). */
  rates(from: number): { pushed: number; settled: number } {
    const seconds = (performance.now() - from) / 1000;
    const sum = (list: { at: number; count: number }[]) =>
      list.reduce((total, { at, count }) => total + (at >= from ? count : 0), 0);
    return { pushed: sum(this.#stored) / seconds, settled: sum(this.#settled) / seconds };
  }

  /** The median of a push since `from`, ms. */
  medianMs(from: number): number {
    return percentile(
      this.#tookMs.filter(({ at }) => at >= from).map(({ ms }) => ms),
      0.5,
    );
  }

  /** Stops the producers, lets the consumers finish, and answers the ids that never came out. */
  async finish(withinMs: number): Promise<string[]> {
    this.#pushes = false;
    await Promise.all(this.#pushing);
    const deadline = performance.now() + withinMs;
    const missing = () => [...this.stored].filter((id) => !this.delivered.has(id));
    while (missing().length > 0 && performance.now() < deadline) await sleep(50);
    this.#pops = false;
    await Promise.all(this.#consuming);
    return missing();
  }

  async #push(pusher: number): Promise<void> {
    const { clients, queue, lanes, batch } = this.#options;
    const client = clients[pusher % clients.length]!;
    for (let n = 0; this.#pushes; n++) {
      const partition = `lane${(pusher + n) % lanes}`;
      const items = Array.from({ length: batch }, (_, i) => ({
        queue,
        partition,
        transactionId: `${pusher}.${n}.${i}`,
        payload: { pusher, n, pad: 'x'.repeat(100) },
      }));
      const began = performance.now();
      while (!(await this.#attempt(async () => allStored(await client.push(items)))))
        await sleep(RETRY_PAUSE_MS);
      const at = performance.now();
      this.#stored.push({ at, count: batch });
      this.#tookMs.push({ at, ms: at - began });
      for (const { transactionId } of items) this.stored.add(transactionId);
      if (this.pauseMs > 0) await sleep(this.pauseMs);
    }
  }

  async #consume(consumer: number): Promise<void> {
    const { clients, queue } = this.#options;
    const client = clients[consumer % clients.length]!;
    const wish = { wait: true, timeout: 1_000, batch: 100, partitions: 4, leaseSeconds: 5 };
    while (this.#pops) {
      let held: Message[] = [];
      const popped = await this.#attempt(async () => {
        held = await client.pop(queue, wish);
        return true;
      });
      if (!popped) await sleep(RETRY_PAUSE_MS);
      if (held.length === 0) continue;
      for (const { transactionId } of held) this.delivered.add(transactionId);
      const acked = await this.#attempt(async () => {
        const verdicts = await client.ackBatch(held);
        return verdicts.every(({ success }) => success);
      });
      // What was not acked comes again when its lease ends.
      if (!acked) continue;
      this.#settled.push({ at: performance.now(), count: held.length });
    }
  }

  async #attempt(work: () => Promise<boolean>): Promise<boolean> {
    try {
      if (await work()) return true;
    } catch {
      // Counted like a refusal.
    }
    this.failures++;
    return false;
  }
}

function allStored(results: readonly Pushed[]): boolean {
  return results.every(({ status }) => status === 'queued' || status === 'duplicate');
}
