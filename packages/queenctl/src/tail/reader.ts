import { setTimeout } from 'node:timers/promises';
import type { LogPart, PartitionHead, Queen } from '@queen-mq/client';

export interface Tailed {
  readonly queue: string;
  readonly partition: string;
  readonly offset: number;
  readonly transactionId: string;
  readonly createdAt: string;
  readonly data: unknown;
}

export type Start = 'beginning' | 'end' | { readonly at: string };

/** Places in one read; the most that a broker takes. */
const PLACES_MAX = 1_024;
/** Bytes of one read, over all its partitions: as values they take ten times as much. */
const READ_BYTES = 4 * 1024 * 1024;
/** With so few partitions a read waits at all of them at once, so a message is seen as soon as it is there. */
const WAITED_FOR_MAX = 256;
/** How long such a wait lasts before new partitions are looked for, ms. */
const WAIT_MS = 1_000;
/** With more of them, which were written is asked so often, ms. */
const LOOK_EVERY_MS = 500;

/**
 * Reads the partitions of a queue from where they stand, and goes on as they are written and as new ones appear.
 *
 * A position is kept for each partition, and whatever lies behind it is read. Which partitions were written is asked since
 * the safe time of the round before: nothing older can still appear, so none is missed, and one that is seen twice has
 * nothing behind its position.
 */
export class Reader {
  /** Messages that retention took before they were read, by partition. */
  readonly lost = new Map<string, number>();
  readonly #queen: Queen;
  readonly #queue: string;
  readonly #only: readonly string[] | null;
  /** The next offset of each partition that is known. */
  readonly #next = new Map<string, number>();
  /** Those that have more than what was read. */
  readonly #behind = new Set<string>();
  /** Where reading ends, of each partition that was behind at the beginning. */
  readonly #end = new Map<string, number>();
  #since: string | undefined;

  constructor(queen: Queen, queue: string, only: readonly string[] | null) {
    this.#queen = queen;
    this.#queue = queue;
    this.#only = only === null ? null : [...new Set(only)];
  }

  /** Partitions that were asked for by name and are not there. */
  get absent(): string[] {
    return (this.#only ?? []).filter((name) => !this.#next.has(name));
  }

  /** Finds out where to begin in every partition. @throws RefusedError when there is no such queue */
  async begin(start: Start, signal: AbortSignal): Promise<void> {
    for await (const heads of this.#heads(signal)) {
      const firsts = typeof start === 'string' ? null : await this.#firstsAt(heads, start.at, signal);
      heads.forEach(({ name, lastOffset, logStart }, at) => {
        const end = lastOffset + 1;
        const first = firsts === null ? (start === 'end' ? end : logStart) : (firsts[at] ?? end);
        this.#next.set(name, first);
        if (first >= end) return;
        this.#behind.add(name);
        this.#end.set(name, end);
      });
    }
  }

  /** What was there when it began, round by round, each in the order of times. */
  async *present(signal: AbortSignal): AsyncGenerator<Tailed[], void, undefined> {
    for (;;) {
      const names = [...this.#behind].filter((name) => this.#next.get(name)! < this.#end.get(name)!);
      if (names.length === 0) return;
      const messages = await this.#round(names.slice(0, PLACES_MAX), 0, signal);
      yield messages.filter(({ partition, offset }) => offset < this.#end.get(partition)!);
    }
  }

  /** All of it and what comes, until the signal fires. */
  async *follow(signal: AbortSignal): AsyncGenerator<Tailed[], void, undefined> {
    for (;;) {
      while (this.#behind.size > 0)
        yield await this.#round([...this.#behind].slice(0, PLACES_MAX), 0, signal);
      const known = [...this.#next.keys()];
      if (known.length > 0 && known.length <= WAITED_FOR_MAX) yield await this.#round(known, WAIT_MS, signal);
      else await setTimeout(LOOK_EVERY_MS, undefined, { signal });
      for await (const heads of this.#heads(signal)) {
        for (const { name, lastOffset, logStart } of heads) {
          // One that is new here came into being after the beginning, so all of it is wanted.
          const next = this.#next.get(name) ?? logStart;
          this.#next.set(name, next);
          if (lastOffset >= next) this.#behind.add(name);
        }
      }
    }
  }

  /** Reads on at some partitions. */
  async #round(names: readonly string[], waitMs: number, signal: AbortSignal): Promise<Tailed[]> {
    const places = names.map((partition) => ({
      queue: this.#queue,
      partition,
      offset: this.#next.get(partition)!,
      maxBytes: Math.ceil(READ_BYTES / names.length),
    }));
    const parts = await this.#queen.log.read(places, { waitMs, signal });
    const found = parts.flatMap((part) => this.#taken(part));
    return found.sort((one, other) =>
      one.createdAt < other.createdAt ? -1 : one.createdAt > other.createdAt ? 1 : 0,
    );
  }

  #taken({ partition, records, highWatermark, logStartOffset, error }: LogPart): Tailed[] {
    const next = this.#next.get(partition)!;
    if (error === 'UNKNOWN_TOPIC_OR_PARTITION') {
      this.#next.delete(partition);
      this.#behind.delete(partition);
      return [];
    }
    let reached = records.length === 0 ? next : records.at(-1)!.offset + 1;
    if (error === 'OFFSET_OUT_OF_RANGE') {
      // Retention was faster; or the queue was deleted and made again, and begins anew.
      if (next < logStartOffset)
        this.lost.set(partition, (this.lost.get(partition) ?? 0) + logStartOffset - next);
      reached = logStartOffset;
    }
    this.#next.set(partition, reached);
    if (reached < highWatermark) this.#behind.add(partition);
    else this.#behind.delete(partition);
    return records.map(({ offset, transactionId, ts, payload }) => ({
      queue: this.#queue,
      partition,
      offset,
      transactionId,
      createdAt: ts,
      data: payload,
    }));
  }

  /** The partitions that may have been written since the last look, page by page. */
  async *#heads(signal: AbortSignal): AsyncGenerator<readonly PartitionHead[], void, undefined> {
    if (this.#only !== null) return yield* this.#headsOf(this.#only, signal);
    const since = this.#since;
    let safeTime: string | undefined;
    for (let after: string | undefined; ; ) {
      const page = await this.#queen.log.changed(this.#queue, { since, after, signal });
      // The time of the first page, which was asked first, holds for all of them.
      safeTime ??= page.safeTime;
      yield page.partitions;
      if (page.next === null) break;
      after = page.next;
    }
    this.#since = safeTime;
  }

  /** Those of some partitions: a read beyond the end of each tells where that is. */
  async *#headsOf(
    names: readonly string[],
    signal: AbortSignal,
  ): AsyncGenerator<readonly PartitionHead[], void, undefined> {
    // One page, for its error when there is no such queue.
    if (this.#next.size === 0) await this.#queen.log.changed(this.#queue, { limit: 1, signal });
    for (let from = 0; from < names.length; from += PLACES_MAX) {
      const places = names
        .slice(from, from + PLACES_MAX)
        .map((partition) => ({ queue: this.#queue, partition, offset: Number.MAX_SAFE_INTEGER }));
      const parts = await this.#queen.log.read(places, { signal });
      yield parts
        .filter(({ error }) => error !== 'UNKNOWN_TOPIC_OR_PARTITION')
        .map(({ partition, highWatermark, logStartOffset }) => ({
          name: partition,
          lastOffset: highWatermark - 1,
          logStart: logStartOffset,
          lastWriteAt: '',
        }));
    }
  }

  async #firstsAt(
    heads: readonly PartitionHead[],
    at: string,
    signal: AbortSignal,
  ): Promise<(number | null)[]> {
    const names = heads.map(({ name }) => name);
    return names.length === 0 ? [] : this.#queen.log.offsetsAt(this.#queue, names, at, { signal });
  }
}
