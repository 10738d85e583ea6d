import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Message, Verdict } from '../broker/client.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';

/** What a consumer process does: see worker_process.ts. */
export interface WorkerJob {
  url: string;
  /** Of the pop route. */
  path: string;
  parameters: Record<string, string | number | boolean>;
  /** How many messages it acks before it gets stuck with the rest. */
  finish: number;
  /** Renews its lease from inside its handler. */
  renew?: { everyMs: number; seconds: number };
}

export type WorkerReport =
  | { word: 'holds'; messages: Message[] }
  | { word: 'renewed'; partitions: number }
  | { word: 'gave back'; verdicts: Verdict[] };

export interface Worker {
  /** Its whole batch; the first `finish` of it are acked. */
  readonly holds: Message[];
  readonly reports: readonly WorkerReport[];
  /** Settles with its exit code; null when a signal ended it. */
  kill(signal: NodeJS.Signals): Promise<number | null>;
}

const PROGRAM = join(import.meta.dirname, 'worker_process.ts');

/** Starts it and waits until it holds its batch. It is killed when the test ends. */
export async function startWorker(job: WorkerJob, t: Cleanup): Promise<Worker> {
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(job)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
  atEnd(t, async () => {
    child.kill('SIGKILL');
    await ended;
  });
  const reports: WorkerReport[] = [];
  const holds = await firstReport(child, ended, reports);
  return {
    holds,
    reports,
    async kill(signal) {
      child.kill(signal);
      return ended;
    },
  };
}

function firstReport(
  child: ChildProcess,
  ended: Promise<number | null>,
  reports: WorkerReport[],
): Promise<Message[]> {
  return new Promise((resolve, reject) => {
    createInterface({ input: child.stdout! }).on('line', (line) => {
      const report = JSON.parse(line) as WorkerReport;
      reports.push(report);
      if (report.word === 'holds') resolve(report.messages);
    });
    void ended.then((code) => reject(new Error(`the worker ended with ${code} before it held anything`)));
  });
}
