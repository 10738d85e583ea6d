/**
 * What clients saw, one event a line, to be judged afterwards by something that was not there (checker.ts).
 *
 * Every operation is an `invoke` and at most one end: `ok` (an answer came), `fail` (certainly not carried out),
 * `info` (no telling: it may have been, and may still be carried out later). Times are microseconds of this
 * process's monotonic clock, taken before the first byte is sent and after the last one has come, so whatever the
 * broker did for an operation lies between the two.
 */
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';

export interface PushedItem {
  queue: string;
  partition: string;
  txn: string;
  payload: string;
}

export interface PushOutcome {
  status: string;
  id: string;
  offset: number | null;
  error: string | null;
}

export interface Delivered {
  queue: string;
  partition: string;
  offset: number;
  id: string;
  txn: string;
  payload: string;
  attempt: number;
}

export interface AckedItem {
  queue: string;
  partition: string;
  offset: number;
  status: 'completed' | 'failed' | 'retry' | 'dlq';
}

export interface AckOutcome {
  success: boolean;
  noop: boolean;
  dlq: boolean;
  error: string | null;
}

export type Invocation =
  /** `via`: the broker that was asked, by its address; where it is not said there is one. */
  | { f: 'push'; items: PushedItem[]; via?: string }
  | { f: 'pop'; group: string; leaseMs: number; autoAck: boolean }
  | { f: 'ack'; group: string; lease: string; items: AckedItem[] }
  | { f: 'extend'; lease: string; seconds: number };

export type Answer =
  | { f: 'push'; results: PushOutcome[] }
  | { f: 'pop'; lease: string; messages: Delivered[] }
  | { f: 'ack'; verdicts: AckOutcome[] }
  | { f: 'extend'; renewed: number };

/** What is stored when everything has come to rest, read through the front door, and how far each group is. */
export interface Reading {
  log: { queue: string; partition: string; messages: Omit<Delivered, 'attempt'>[] }[];
  cursors: { group: string; queue: string; partition: string; committed: number }[];
}

interface Stamp {
  /** Microseconds, monotonic. */
  at: number;
  /** Number of the operation. */
  op: number;
  /** The client. */
  by: string;
}

export type HistoryEvent =
  | (Stamp & { type: 'invoke' } & Invocation)
  | (Stamp & { type: 'ok' } & Answer)
  | (Stamp & { type: 'fail' | 'info'; f: Invocation['f']; why: string })
  | (Stamp & { type: 'info'; f: 'nemesis'; what: string })
  | (Stamp & { type: 'ok'; f: 'reading' } & Reading);

const LINES_A_WRITE = 500;

export class History {
  readonly events: HistoryEvent[] = [];
  readonly file: string;
  readonly #directory: string;
  readonly #logs = new Map<string, () => string>();
  #removed = false;
  #written = 0;
  #ops = 0;

  /** A test that fails leaves the file behind and says where it is. */
  constructor(label: string, t: Cleanup & { diagnostic(text: string): void }) {
    this.#directory = mkdtempSync(join(tmpdir(), `queen-history-${label}-`));
    this.file = join(this.#directory, 'history.jsonl');
    atEnd(t, () => {
      if (this.#removed) return;
      for (const [name, text] of this.#logs) writeFileSync(join(this.#directory, `${name}.log`), text());
      t.diagnostic(`the history is in ${this.flush()}`);
    });
  }

  /** To be kept beside the history when the test fails. */
  keep(name: string, text: () => string): void {
    this.#logs.set(name, text);
  }

  /** Runs an operation and records both its ends. Never throws what the operation threw: that is an outcome. */
  async record<A extends Answer>(
    by: string,
    invocation: Invocation,
    run: () => Promise<A>,
  ): Promise<A | { failed: Error; certain: boolean }> {
    const op = ++this.#ops;
    this.#add({ at: micros(), op, by, type: 'invoke', ...invocation });
    try {
      const answer = await run();
      this.#add({ at: micros(), op, by, type: 'ok', ...answer });
      return answer;
    } catch (error) {
      const failed = error instanceof Error ? error : new Error(String(error));
      const certain = failed instanceof NotDone;
      const type = certain ? 'fail' : 'info';
      this.#add({ at: micros(), op, by, type, f: invocation.f, why: failed.message });
      return { failed, certain };
    }
  }

  nemesis(what: string): void {
    this.#add({ at: micros(), op: ++this.#ops, by: 'nemesis', type: 'info', f: 'nemesis', what });
  }

  reading(reading: Reading): void {
    this.#add({ at: micros(), op: ++this.#ops, by: 'reading', type: 'ok', f: 'reading', ...reading });
  }

  /** Everything on disk, for whoever looks into a failure. */
  flush(): string {
    const lines = this.events.slice(this.#written).map((event) => `${JSON.stringify(event)}\n`);
    this.#written = this.events.length;
    appendFileSync(this.file, lines.join(''));
    return this.file;
  }

  remove(): void {
    this.#removed = true;
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #add(event: HistoryEvent): void {
    this.events.push(event);
    if (!this.#removed && this.events.length - this.#written >= LINES_A_WRITE) this.flush();
  }
}

/** An operation that was certainly not carried out: it was never sent, or the answer says so. */
export class NotDone extends Error {}

export function readHistory(file: string): HistoryEvent[] {
  const lines = readFileSync(file, 'utf8').split('\n');
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as HistoryEvent);
}

function micros(): number {
  return Math.round(performance.now() * 1000);
}
