/** Keeps the lease of a batch while somebody works on it. */
import type { Clock, Timer } from '../../../engine/clock.ts';

export interface KeeperDeps {
  readonly clock: Clock;
  readonly leaseMs: number;
  /** Lengthens the lease; false: it is lost. May reject. */
  readonly extend: () => Promise<boolean>;
}

const RETRY_MS = 1_000;

/**
 * A lease that is lost does not stop the work: the progress rows keep it right. It is only not renewed any more. Nor is it
 * between two attempts, so that a sink whose database is away lets go and another node may try.
 */
export class Keeper {
  readonly #deps: KeeperDeps;
  #until: number;
  #renewedAt: number;
  #timer: Timer | null = null;
  #working = false;
  #lost = false;

  /** @param since when the lease was asked for, by the clock */
  constructor(deps: KeeperDeps, since: number) {
    this.#deps = deps;
    this.#renewedAt = since;
    this.#until = since + deps.leaseMs;
  }

  /** As far as this broker can tell, the lease is held. */
  get held(): boolean {
    return !this.#lost && this.#deps.clock.now() < this.#until;
  }

  /** When it ends unless it is renewed, by the clock. */
  get until(): number {
    return this.#until;
  }

  resume(): void {
    if (this.#working) return;
    this.#working = true;
    const { clock, leaseMs } = this.#deps;
    this.#schedule(Math.max(0, this.#renewedAt + leaseMs / 3 - clock.now()));
  }

  pause(): void {
    this.#working = false;
    this.#timer?.cancel();
    this.#timer = null;
  }

  #schedule(ms: number): void {
    if (this.#lost) return;
    this.#timer = this.#deps.clock.after(ms, () => void this.#renew());
  }

  async #renew(): Promise<void> {
    const { clock, leaseMs, extend } = this.#deps;
    const asked = clock.now();
    let next = leaseMs / 3;
    try {
      if (await extend()) {
        this.#renewedAt = asked;
        this.#until = asked + leaseMs;
      } else this.#lost = true;
    } catch {
      next = RETRY_MS;
    }
    if (this.#working) this.#schedule(next);
  }
}
