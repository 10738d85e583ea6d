/** A broker that is started again whenever it ends, on the same port, as systemd or an orchestrator would do it. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CLUSTER } from '../../packages/broker/src/store/embedded/cluster.ts';
import { killLeftOvers } from '../../packages/broker/src/store/embedded/processes.ts';
import { type BrokerOptions, type BrokerProcess, spawnBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';

export interface SupervisedOptions extends BrokerOptions {
  name: string;
}

export class SupervisedBroker {
  readonly name: string;
  readonly port: number;
  readonly url: string;
  /** Ends that nobody here brought about: a broker has to live through everything but a kill. */
  readonly unexpected: string[] = [];
  starts = 0;
  readonly #earlier: string[] = [];
  readonly #options: SupervisedOptions;
  #broker: BrokerProcess | null = null;
  #expected = false;
  #stopped = false;
  #up: Promise<void> = Promise.resolve();

  static async start(options: SupervisedOptions, t: Cleanup): Promise<SupervisedBroker> {
    const own = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
    atEnd(t, () => rmSync(own, { recursive: true, force: true }));
    // One for all its lives: it finds there what it kept in an earlier one.
    const broker = new SupervisedBroker({ spoolDir: own, ...options }, await freePort());
    atEnd(t, async () => {
      await broker.halt();
      if (options.dataDir !== undefined) await killLeftOvers(join(options.dataDir, CLUSTER));
    });
    broker.#spawn();
    await broker.up();
    return broker;
  }

  private constructor(options: SupervisedOptions, port: number) {
    this.#options = options;
    this.name = options.name;
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
  }

  get pid(): number {
    return this.#broker?.pid ?? -1;
  }

  get process(): BrokerProcess {
    return this.#broker!;
  }

  /** What all of them have written, the last ones in full. */
  logs(): string {
    const current = this.#broker === null ? [] : [this.#broker.logs()];
    return [...this.#earlier, ...current].join('\n').slice(-LOG_CHARS_MAX);
  }

  /** Settles when the process of this moment listens; rejects when it ended before that. */
  up(): Promise<void> {
    return this.#up;
  }

  /** Settles when a broker listens that nobody kills meanwhile. */
  async settled(): Promise<void> {
    for (;;) {
      const before = this.starts;
      await this.#up.catch(() => {});
      if (before === this.starts && (await this.#up.then(() => true).catch(() => false))) return;
      // It ended while it started: the next one is spawned when the end is noticed.
      await this.#broker!.ended;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Ends it by a signal; the next one comes up by itself. Settles when it has ended. */
  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const broker = this.#broker!;
    this.#expected = true;
    await broker.kill(signal);
  }

  /** Ends it for good. */
  async halt(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    this.#stopped = true;
    this.#expected = true;
    await this.#broker?.kill(signal);
  }

  #spawn(): void {
    const { name: _, ...options } = this.#options;
    this.#expected = false;
    this.starts++;
    // Not with the test's own clean-up: that would kill what this starts again.
    const broker = spawnBroker({
      ...options,
      env: { ...options.env, PORT: String(this.port) },
    });
    this.#broker = broker;
    this.#up = broker.logged(/listening on http/, 120_000).then(() => {});
    this.#up.catch(() => {});
    void broker.ended.then(({ code, signal, logs }) => {
      this.#earlier.push(`${logs}--- ${this.name} ended (${signal ?? code})`);
      if (!this.#expected)
        this.unexpected.push(`${this.name} ended (${signal ?? code}):\n${logs.slice(-4000)}`);
      if (!this.#stopped) this.#spawn();
    });
  }
}

const LOG_CHARS_MAX = 20_000_000;

/** A port that was free a moment ago. */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => {
        if (address === null || typeof address === 'string') reject(new Error('no port'));
        else resolve(address.port);
      });
    });
  });
}
