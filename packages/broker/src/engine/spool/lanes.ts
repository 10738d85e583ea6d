import type { Clock } from '../clock.ts';

/** Which lanes have messages on disk, and who waits for one of them to have none any more. */
export class SpoolLanes {
  readonly #clock: Clock;
  readonly #counts = new Map<string, number>();
  readonly #waiting = new Map<string, Set<(clear: boolean) => void>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#counts.size;
  }

  has(key: string): boolean {
    return this.#counts.has(key);
  }

  added(key: string, messages: number): void {
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + messages);
  }

  gone(key: string, messages: number): void {
    const left = (this.#counts.get(key) ?? 0) - messages;
    if (left > 0) {
      this.#counts.set(key, left);
      return;
    }
    this.#counts.delete(key);
    for (const settle of this.#waiting.get(key) ?? []) settle(true);
  }

  /** True as soon as nothing of the lane is left; false when that takes longer, or nobody should wait any more. */
  clear(key: string, withinMs: number): Promise<boolean> {
    if (!this.#counts.has(key)) return Promise.resolve(true);
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(key) ?? new Set();
      this.#waiting.set(key, waiting);
      const settle = (clear: boolean) => {
        timer.cancel();
        waiting.delete(settle);
        if (waiting.size === 0) this.#waiting.delete(key);
        resolve(clear);
      };
      const timer = this.#clock.after(withinMs, () => settle(false));
      waiting.add(settle);
    });
  }

  /** It will take longer than anybody should wait. */
  giveUp(): void {
    for (const waiting of [...this.#waiting.values()]) for (const settle of [...waiting]) settle(false);
  }
}
