/**
 * Takes bundles from the bundler to the queues, one at a time and in order, while the next one is being filled. What is full
 * waits in a short line, which holds up the reading of the stream when it is full itself; what is merely due waits in the
 * bundler, where it can still grow, until nothing is under way.
 */
import type { Clock, Timer } from '../../../engine/clock.ts';
import type { Bundle, Bundler } from './bundler.ts';

export interface WriterOptions {
  readonly bundler: Bundler;
  readonly lingerMs: number;
  readonly clock: Clock;
  readonly commit: (bundle: Bundle) => Promise<void>;
  /** This bundle is committed after the one under way. */
  readonly prepare: (bundle: Bundle) => void;
  /** A bundle is in the queues. */
  readonly committed: (bundle: Bundle) => void;
  /** Nothing is written any more after it. */
  readonly failed: (error: unknown) => void;
}

/** Full bundles that wait. */
const QUEUED_MAX = 2;

export class BundleWriter {
  readonly #options: WriterOptions;
  readonly #queue: Bundle[] = [];
  #flight: Promise<void> | null = null;
  #linger: Timer | null = null;
  #immediate: NodeJS.Immediate | null = null;
  #stopped = false;

  constructor(options: WriterOptions) {
    this.#options = options;
  }

  /** The line is full: nothing more should be read. */
  get full(): boolean {
    return this.waiting >= QUEUED_MAX;
  }

  /** Nothing waits and nothing is under way. */
  get idle(): boolean {
    return this.#flight === null && this.#queue.length === 0;
  }

  /** Beside the one under way. */
  get waiting(): number {
    return Math.max(0, this.#queue.length - (this.#flight === null ? 0 : 1));
  }

  /** For the bundler. */
  add(bundle: Bundle): void {
    if (this.#stopped) return;
    this.#queue.push(bundle);
    if (this.#flight === null) this.#flight = this.#write();
    else this.#prepare();
  }

  /** Something may have gathered: it leaves when it has waited long enough. */
  gathered(): void {
    const { bundler, lingerMs, clock } = this.#options;
    const since = bundler.waitingSinceMs;
    if (since === null || this.#flight !== null || this.#stopped) return;
    if (lingerMs === 0) {
      // What one read of the socket has brought goes together.
      this.#immediate ??= setImmediate(() => {
        this.#immediate = null;
        this.#leave();
      });
      return;
    }
    this.#linger ??= clock.after(Math.max(0, since + lingerMs - clock.now()), () => {
      this.#linger = null;
      this.#leave();
    });
  }

  /** No bundle is begun after it. Resolves when the one under way has ended, or after so many milliseconds. */
  async stop(graceMs: number): Promise<void> {
    this.#stopped = true;
    this.#queue.length = 0;
    this.#linger?.cancel();
    if (this.#immediate !== null) clearImmediate(this.#immediate);
    if (this.#flight === null) return;
    let timer: Timer | undefined;
    const expired = new Promise<void>((resolve) => {
      timer = this.#options.clock.after(graceMs, resolve);
    });
    await Promise.race([this.#flight, expired]);
    timer?.cancel();
  }

  #leave(): void {
    const { bundler, lingerMs, clock } = this.#options;
    const since = bundler.waitingSinceMs;
    if (since === null || this.#flight !== null || this.#stopped) return;
    if (clock.now() - since >= lingerMs) bundler.flush();
    else this.gathered();
  }

  #prepare(): void {
    const next = this.#queue[1];
    if (next !== undefined) this.#options.prepare(next);
  }

  async #write(): Promise<void> {
    const { commit, committed, failed } = this.#options;
    try {
      for (let bundle = this.#queue[0]; bundle !== undefined; bundle = this.#queue[0]) {
        const done = commit(bundle);
        this.#prepare();
        await done;
        this.#queue.shift();
        committed(bundle);
        if (this.#stopped) return;
      }
    } catch (error) {
      this.#stopped = true;
      failed(error);
    } finally {
      this.#flight = null;
    }
    // Whatever has gathered meanwhile may be due already.
    this.#leave();
  }
}
