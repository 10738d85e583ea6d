/**
 * Producers and consumers that keep going through every fault, each of them with a conscience: a producer repeats what
 * it does not know the outcome of, with the same transaction ids, before it goes on; a consumer acks what it was given
 * and nothing else. What they did is in the history.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { FaultClient, type Held } from './client.ts';
import type { AckedItem, History, PushedItem, PushOutcome } from './history.ts';
import type { Chance } from './seed.ts';

export interface LoadOptions {
  history: History;
  chance: Chance;
  /** Where a client sends its next request. */
  address: (client: string) => string;
  queues: readonly string[];
  partitions: number;
  producers: number;
  groups: readonly string[];
  consumersPerGroup: number;
  /** A producer's pause between two requests, ms: from and to. */
  pauseMs: [number, number];
  /** Messages in a request at most. */
  batchMax: number;
  leaseMs: number;
  /** How often a consumer does something else than acking its whole batch: dies with it, acks a part, gives it back. */
  mischief: number;
  /** How long a client waits for an answer, ms. */
  timeoutMs?: number;
}

const RETRY_PAUSE_MS = 100;
const POP_WAIT_MS = 1_000;
const OLD_KEPT = 50;

export class Load {
  /** Messages that a producer need not send again. */
  acknowledged = 0;
  /** Those that a producer knows to be in the log. */
  stored = 0;
  /** When the last push was stored, on performance.now(). */
  lastStoredAt = 0;
  readonly #options: LoadOptions;
  readonly #clients: FaultClient[] = [];
  readonly #producing: Promise<void>[] = [];
  readonly #consuming: Promise<void>[] = [];
  #pushing = true;
  #popping = true;
  #abandoned = false;

  constructor(options: LoadOptions) {
    this.#options = options;
  }

  /** With the end of the test it ends too, whatever it is at. */
  start(t: Cleanup): void {
    atEnd(t, () => {
      this.#pushing = this.#popping = false;
      this.#abandoned = true;
      for (const client of this.#clients) client.close();
    });
    const { producers, groups, consumersPerGroup } = this.#options;
    for (let i = 0; i < producers; i++) this.#producing.push(this.#produce(`producer-${i}`));
    for (const group of groups) {
      for (let i = 0; i < consumersPerGroup; i++) this.#consuming.push(this.#consume(`${group}-${i}`, group));
    }
  }

  /** Each producer finishes the request that it is at, however often it has to repeat it. */
  async stopProducers(): Promise<void> {
    this.#pushing = false;
    await Promise.all(this.#producing);
  }

  async stopConsumers(): Promise<void> {
    this.#popping = false;
    await Promise.all(this.#consuming);
    for (const client of this.#clients) client.close();
  }

  #client(name: string): FaultClient {
    const client = new FaultClient(() => this.#options.address(name), this.#options.timeoutMs);
    this.#clients.push(client);
    return client;
  }

  async #produce(name: string): Promise<void> {
    const { history, chance: root, pauseMs } = this.#options;
    const client = this.#client(name);
    const chance = root.fork(name);
    const old: PushedItem[][] = [];
    for (let n = 0; this.#pushing; ) {
      let items: PushedItem[];
      if (old.length > 0 && chance.chance(0.05)) {
        // Somebody who has lost his memory: it must be told that all of it is there.
        items = chance.pick(old);
      } else {
        items = this.#items(name, n, chance);
        n += items.length;
        old.push(items);
        if (old.length > OLD_KEPT) old.shift();
      }
      while (!this.#abandoned) {
        const via = this.#options.address(name);
        const outcome = await history.record(name, { f: 'push', items, via }, async () => ({
          f: 'push' as const,
          results: await client.push(items, via),
        }));
        if (!('failed' in outcome) && outcome.results.every(({ status }) => status !== 'failed')) {
          this.#count(outcome.results);
          break;
        }
        await sleep(RETRY_PAUSE_MS);
      }
      await sleep(chance.integer(...pauseMs));
    }
  }

  #count(results: readonly PushOutcome[]): void {
    this.acknowledged += results.length;
    if (results.some(({ status }) => status === 'buffered')) return;
    this.stored += results.length;
    this.lastStoredAt = performance.now();
  }

  #items(name: string, from: number, chance: Chance): PushedItem[] {
    const { queues, partitions, batchMax } = this.#options;
    const lane = () => ({ queue: chance.pick(queues), partition: `p${chance.integer(0, partitions - 1)}` });
    const first = lane();
    const count = chance.integer(1, batchMax);
    return Array.from({ length: count }, (_, i) => {
      // Mostly one lane a request, sometimes several: then it is several units.
      const at = chance.chance(0.85) ? first : lane();
      const txn = `${name}.${from + i}`;
      return { ...at, txn, payload: JSON.stringify({ txn, pad: 'x'.repeat(chance.integer(0, 200)) }) };
    });
  }

  async #consume(name: string, group: string): Promise<void> {
    const { history, chance: root, queues, leaseMs } = this.#options;
    const client = this.#client(name);
    const chance = root.fork(name);
    while (this.#popping) {
      const wish = {
        queue: chance.pick(queues),
        group,
        batch: chance.pick([1, 10, 50]),
        partitions: chance.pick([1, 3]),
        waitMs: POP_WAIT_MS,
        leaseMs,
      };
      let held: Held[] = [];
      const outcome = await history.record(name, { f: 'pop', group, leaseMs, autoAck: false }, async () => {
        const { lease, messages } = await client.pop(wish);
        held = messages;
        return { f: 'pop' as const, lease, messages: messages.map(({ partitionId: _, ...seen }) => seen) };
      });
      if ('failed' in outcome) await sleep(RETRY_PAUSE_MS);
      else if (held.length > 0) await this.#work(client, name, group, outcome.lease, held, chance);
    }
  }

  /** Acks the batch, until the broker has said something or the lease has run out. */
  async #work(
    client: FaultClient,
    name: string,
    group: string,
    lease: string,
    held: readonly Held[],
    chance: Chance,
  ): Promise<void> {
    const { history, leaseMs, mischief } = this.#options;
    let messages = held;
    let statuses: AckedItem['status'][] = held.map(() => 'completed');
    if (chance.chance(mischief)) {
      const deed = chance.integer(0, 2);
      if (deed === 0) return;
      const at = chance.integer(0, held.length - 1);
      if (deed === 1) messages = held.slice(0, at + 1);
      else statuses = held.map((_, i) => (i === at ? 'retry' : 'completed'));
    }
    const items = messages.map(({ queue, partition, offset }, i) => ({
      queue,
      partition,
      offset,
      status: statuses[i] as AckedItem['status'],
    }));
    const until = performance.now() + leaseMs;
    do {
      const outcome = await history.record(name, { f: 'ack', group, lease, items }, async () => ({
        f: 'ack' as const,
        verdicts: await client.ack(group, lease, messages, statuses),
      }));
      // What was refused for good stays so, and what the database did not take is worth another try.
      if (
        !('failed' in outcome) &&
        !outcome.verdicts.some(({ error }) => /flush failed|pool/.test(error ?? ''))
      )
        return;
      await sleep(RETRY_PAUSE_MS);
    } while (performance.now() < until);
  }
}
