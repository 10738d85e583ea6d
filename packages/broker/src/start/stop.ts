import type { Log } from '../observability/log.ts';

/** Thrown between two steps of the start when a signal came in the meantime. */
export class StopAsked extends Error {
  constructor() {
    super('asked to stop while starting');
    this.name = 'StopAsked';
  }
}

/** What is left of the grace, for parts that would wait for ever; then the process ends whatever runs. */
const PARTS_MS = 45_000;

/**
 * The way down. Parts register how they are closed as they come up, and go down in the reverse order. The
 * first SIGTERM, SIGINT or SIGHUP starts it, the second ends the process at once; an error that nobody caught
 * does too, since the state that it left is unknown.
 */
export class Stop {
  /** Settles when somebody asked. */
  readonly asked: Promise<string>;
  #reason: string | null = null;
  #ask: (reason: string) => void = () => {};
  readonly #log: Log;
  readonly #parts: { name: string; close: () => Promise<void> }[] = [];

  constructor(log: Log) {
    this.#log = log;
    this.asked = new Promise((resolve) => {
      this.#ask = resolve;
    });
  }

  watch(): void {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
      process.on(signal, () => this.#signal(signal));
    }
    for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
      process.on(event, (error: unknown) => {
        this.#log.fatal({ err: error, event }, 'a bug: the broker ends here and may be started again');
        process.exit(1);
      });
    }
    // Whoever read the log went away; that is no reason to stop.
    for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
  }

  /** A part that is up; `close` is called once, after every part that came later is closed. */
  add(name: string, close: () => Promise<void>): void {
    this.#parts.push({ name, close });
  }

  throwIfAsked(): void {
    if (this.#reason !== null) throw new StopAsked();
  }

  /** Closes all parts. A part that fails is logged and does not keep the others up. True: all went well. */
  async run(graceMs: number): Promise<boolean> {
    const limit = setTimeout(() => {
      this.#log.error({}, 'the stop takes too long: ending at once');
      process.exit(1);
    }, graceMs + PARTS_MS);
    limit.unref();
    let clean = true;
    for (const part of this.#parts.splice(0).reverse()) {
      try {
        await part.close();
      } catch (error) {
        clean = false;
        this.#log.error({ err: error, part: part.name }, 'could not be closed');
      }
    }
    clearTimeout(limit);
    return clean;
  }

  #signal(signal: string): void {
    if (this.#reason !== null) {
      this.#log.warn({ signal }, 'second signal: ending at once');
      process.exit(1);
    }
    this.#reason = signal;
    this.#log.info({ signal }, 'stopping; another signal ends at once');
    this.#ask(signal);
  }
}
