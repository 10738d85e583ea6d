import type { Clock, Timer } from '../../src/engine/clock.ts';

/** Time that only moves when told to. Timers run in the order in which they are due. */
export class FakeClock implements Clock {
  #now = 0;
  #timers: { at: number; seq: number; work: () => void }[] = [];
  #seq = 0;

  now(): number {
    return this.#now;
  }

  after(ms: number, work: () => void): Timer {
    const timer = { at: this.#now + ms, seq: this.#seq++, work };
    this.#timers.push(timer);
    return {
      cancel: () => {
        this.#timers = this.#timers.filter((other) => other !== timer);
      },
    };
  }

  get pending(): number {
    return this.#timers.length;
  }

  /** Moves the time on, running what becomes due. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const due = this.#timers.filter((t) => t.at <= end).sort((a, b) => a.at - b.at || a.seq - b.seq)[0];
      if (due === undefined) break;
      this.#timers = this.#timers.filter((t) => t !== due);
      this.#now = Math.max(this.#now, due.at);
      due.work();
    }
    this.#now = end;
  }

  /** The same, letting promises settle after every timer. */
  async advanceAsync(ms: number, step = 10): Promise<void> {
    for (let left = ms; left > 0; left -= step) {
      this.advance(Math.min(step, left));
      for (let i = 0; i < 5; i++) await Promise.resolve();
    }
  }
}
