/**
 * A small number of connections that may work for one kind of caller at a time. What waits too long, or finds too many
 * waiting, is turned away: a queue in front of a database that stands still only grows.
 */
import type { Clock, Timer } from '../clock.ts';

export interface ShareSettings {
  connections: number;
  /** How long a caller waits; null: as long as it takes. */
  waitMs: number | null;
}

interface Waiter {
  start: () => void;
  timer: Timer | null;
}

/** Callers that may wait for one place each. */
const WAITING_FACTOR = 64;

export class Share {
  readonly #settings: ShareSettings;
  readonly #clock: Clock;
  readonly #refusal: () => Error;
  readonly #waiting: Set<Waiter> = new Set();
  #busy = 0;
  #refused = 0;

  constructor(settings: ShareSettings, clock: Clock, refusal: () => Error) {
    this.#settings = settings;
    this.#clock = clock;
    this.#refusal = refusal;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#busy >= this.#settings.connections || this.#waiting.size > 0) await this.#wait();
    else this.#busy++;
    try {
      return await work();
    } finally {
      this.#busy--;
      const next = this.#waiting.values().next().value;
      if (next !== undefined) {
        this.#leave(next);
        this.#busy++;
        next.start();
      }
    }
  }

  stats(): { size: number; busy: number; waiting: number; refused: number } {
    return {
      size: this.#settings.connections,
      busy: this.#busy,
      waiting: this.#waiting.size,
      refused: this.#refused,
    };
  }

  #wait(): Promise<void> {
    const { connections, waitMs } = this.#settings;
    return new Promise((resolve, reject) => {
      const refuse = () => {
        this.#refused++;
        reject(this.#refusal());
      };
      if (waitMs !== null && this.#waiting.size >= connections * WAITING_FACTOR) {
        refuse();
        return;
      }
      const waiter: Waiter = { start: resolve, timer: null };
      if (waitMs !== null) {
        waiter.timer = this.#clock.after(waitMs, () => {
          this.#waiting.delete(waiter);
          refuse();
        });
      }
      this.#waiting.add(waiter);
    });
  }

  #leave(waiter: Waiter): void {
    waiter.timer?.cancel();
    this.#waiting.delete(waiter);
  }
}
