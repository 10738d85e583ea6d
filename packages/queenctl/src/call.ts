import { readFileSync } from 'node:fs';
import { type ClientOptions, Queen, QueenError } from '@queen-mq/client';
import { type Command, Option } from 'commander';
import { EXIT, type ExitName, Failure, usage } from './exit.ts';
import { durationMs, several } from './input/values.ts';
import { parseExact } from './output/exact_json.ts';
import { FORMATS, type Format, Output } from './output/output.ts';

const DEFAULT_URL = 'http://127.0.0.1:6632';
const TIMEOUT_MS_MAX = 600_000;

/** What every command takes. */
export interface GlobalOptions {
  readonly url?: readonly string[];
  readonly token?: string;
  readonly tokenFile?: string;
  readonly tenant?: string;
  readonly timeout: number;
  readonly output: Format;
  readonly quiet?: boolean;
}

export function addGlobalOptions(program: Command): void {
  program
    .addOption(
      new Option('-u, --url <url>', `a broker; several with commas, or given again (default: ${DEFAULT_URL})`)
        .env('QUEEN_URL')
        .argParser(several),
    )
    .addOption(
      new Option('--token <token>', 'token to show the brokers; others see it in the list of processes').env(
        'QUEEN_TOKEN',
      ),
    )
    .option('--token-file <file>', 'file that has the token')
    .addOption(new Option('--tenant <uuid>', 'tenant, where the brokers know tenants').env('QUEEN_TENANT'))
    .addOption(
      new Option('--timeout <time>', 'longest wait for an answer')
        .argParser(durationMs)
        .default(30_000, '30s'),
    )
    .addOption(new Option('-o, --output <format>', 'how to print').choices(FORMATS).default('table'))
    .option('-q, --quiet', 'say only what went wrong');
}

/** One run of a command: its options, where it prints, and the brokers. */
export class Call<O = object> {
  readonly options: Readonly<O & GlobalOptions>;
  readonly out: Output;
  /** Fires when the process is told to end. */
  readonly signal: AbortSignal;
  #queen: Queen | undefined;
  readonly #opened: Queen[] = [];

  constructor(options: O & GlobalOptions, signal: AbortSignal) {
    this.options = options;
    this.out = new Output(options.output, options.quiet === true);
    this.signal = signal;
  }

  /** The brokers that were named. */
  get urls(): readonly string[] {
    const { url = [] } = this.options;
    return url.length === 0 ? [DEFAULT_URL] : url;
  }

  /** A client of all of them. */
  get queen(): Queen {
    this.#queen ??= this.client({});
    return this.#queen;
  }

  /** Another one, for what needs to be set differently. */
  client(different: Partial<ClientOptions>): Queen {
    const { tenant, timeout } = this.options;
    if (timeout < 1 || timeout > TIMEOUT_MS_MAX) throw usage('--timeout is from 1ms to 10m');
    const queen = new Queen({
      urls: this.urls,
      token: tokenOf(this.options as GlobalOptions),
      headers: tenant === undefined ? undefined : { 'x-queen-tenant': tenant },
      timeoutMs: timeout,
      parse: parseExact,
      ...different,
    });
    this.#opened.push(queen);
    return queen;
  }

  /** Some of what was asked for did not work, and that has been said; the rest went on. */
  ends(how: ExitName): void {
    process.exitCode = EXIT[how].code;
  }

  async close(): Promise<void> {
    await Promise.all(this.#opened.map((queen) => queen.close({ timeoutMs: 0 }).catch(() => {})));
  }
}

function tokenOf({ token, tokenFile }: GlobalOptions): string | undefined {
  if (tokenFile === undefined) return token === undefined || token === '' ? undefined : token.trim();
  try {
    return readFileSync(tokenFile, 'utf8').trim();
  } catch (error) {
    throw usage(`--token-file cannot be read: ${(error as Error).message}`);
  }
}

type Work<O, A extends unknown[]> = (call: Call<O>, ...args: A) => Promise<void>;

/** An action of commander that runs `work` in a Call of its own. */
export function does<O, A extends unknown[] = []>(work: Work<O, A>): (...given: unknown[]) => Promise<void> {
  return async (...given) => {
    const command = given.at(-1) as Command;
    const args = given.slice(0, -2) as A;
    const interruption = new Interruption();
    const call = new Call<O>(command.optsWithGlobals() as O & GlobalOptions, interruption.signal);
    try {
      await work(call, ...args);
    } catch (error) {
      // Whatever waited says in its own words that it was interrupted.
      const own = error instanceof Failure || error instanceof QueenError;
      throw interruption.signal.aborted && !own ? new Failure('interrupted', 'interrupted') : error;
    } finally {
      interruption.unwatch();
      await call.close();
    }
  };
}

/** A signal that the first SIGINT or SIGTERM fires; the second one ends the process. */
class Interruption {
  readonly #controller = new AbortController();
  readonly #interrupt = () => {
    if (this.#controller.signal.aborted) process.exit(EXIT.interrupted.code);
    this.#controller.abort(new Error('interrupted'));
    // Nothing that comes there is waited for any longer.
    process.stdin.destroy();
  };

  constructor() {
    for (const name of ['SIGINT', 'SIGTERM']) process.on(name, this.#interrupt);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  unwatch(): void {
    for (const name of ['SIGINT', 'SIGTERM']) process.off(name, this.#interrupt);
  }
}
