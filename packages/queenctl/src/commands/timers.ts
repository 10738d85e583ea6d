import type { PendingTimer, TimerResult } from '@queen-mq/client';
import type { Command } from 'commander';
import { does } from '../call.ts';
import { Failure, usage } from '../exit.ts';
import { durationMs, integer, moment, payload } from '../input/values.ts';
import { jsonText } from '../output/exact_json.ts';
import { type Column, facts } from '../output/table.ts';
import { duration } from '../output/text.ts';
import { examples } from './examples.ts';
import { limited } from './limited.ts';

const COLUMNS: readonly Column<PendingTimer>[] = [
  { title: 'KEY', of: ({ key }) => key },
  { title: 'PARTITION', of: ({ partition }) => partition },
  { title: 'DUE', of: ({ deliverAt }) => deliverAt },
  { title: 'IN', of: ({ deliverAt }) => left(deliverAt), right: true },
  { title: 'TRANSACTION ID', of: ({ transactionId }) => transactionId },
  { title: 'TRIES', of: ({ attempts }) => attempts, right: true },
  { title: 'LAST ERROR', of: ({ lastError }) => lastError, cut: true },
];

const RESULTS: readonly Column<TimerResult>[] = [
  { title: 'KEY', of: ({ key }) => key },
  { title: 'STATUS', of: ({ status }) => status },
];

interface Schedule {
  readonly in?: number;
  readonly at?: string;
  readonly partition?: string;
  readonly transactionId?: string;
  readonly text?: boolean;
}

export function timerCommands(program: Command): void {
  const timers = program
    .command('timers')
    .alias('timer')
    .description('messages that are to be pushed later: schedule, list, show, count, cancel');
  examples(timers, [
    ['queenctl timers schedule orders remind-4711 \'{"id": 4711}\' --in 1h'],
    ['queenctl timers list orders --prefix remind-'],
    ['queenctl timers cancel orders remind-4711'],
  ]);

  timers
    .command('schedule <queue> <key> <payload>')
    .description('push a message later; one that is pending under the key is replaced')
    .option('--in <time>', 'so long from now', durationMs)
    .option('--at <instant>', 'at an instant', moment)
    .option('-p, --partition <name>', 'partition of the message (default: Default)')
    .option('--transaction-id <id>', 'of the message (default: a new UUID)')
    .option('--text', 'the payload is a text, not JSON')
    .action(
      does<Schedule, [string, string, string]>(async ({ queen, out, options, signal }, queue, key, text) => {
        const { partition, transactionId } = options;
        if ((options.in === undefined) === (options.at === undefined))
          throw usage('--in or --at is needed, and one of them');
        const due = options.in === undefined ? { at: options.at! } : { delayMs: options.in };
        const data = payload(text, options.text === true, 'the payload');
        const result = await queen
          .queue(queue)
          .timers.schedule(key, { ...due, data, partition, transactionId }, { signal });
        if (result.status === 'too_late')
          throw new Failure('refused', `the timer "${key}" is being fired right now`);
        out.one(result, () => `${key} is ${result.status} for ${result.deliverAt}\n`);
      }),
    );

  timers
    .command('list <queue>')
    .alias('ls')
    .description('pending timers of a queue, by key')
    .option('--prefix <text>', 'only keys that begin so')
    .option('--limit <n>', 'at most; 0: all', integer(0), 100)
    .action(
      does<{ prefix?: string; limit: number }, [string]>(async ({ queen, out, options, signal }, queue) => {
        const { prefix, limit } = options;
        const { timers } = queen.queue(queue);
        const pending = timers.list({ ...(prefix === undefined ? {} : { prefix }), signal });
        await limited(out, pending, limit, COLUMNS, `no timers are pending for ${queue}`);
      }),
    );

  timers
    .command('show <queue> <key>')
    .description('one pending timer with its payload')
    .action(
      does<object, [string, string]>(async ({ queen, out, signal }, queue, key) => {
        const timer = await queen.queue(queue).timers.get(key, { signal });
        if (timer === null)
          throw new Failure('notFound', `no timer "${key}" is pending for ${queue}`, 'it may have fired');
        const { data, ...rest } = timer;
        out.one(timer, () => `${facts(Object.entries(rest))}\n${jsonText(data, 2)}\n`);
      }),
    );

  timers
    .command('count <queue> <prefix>')
    .description('how many are pending under keys that begin so')
    .action(
      does<object, [string, string]>(async ({ queen, out, signal }, queue, prefix) => {
        const pending = await queen.queue(queue).timers.count(prefix, { signal });
        out.one({ queue, prefix, pending }, () => `${pending}\n`);
      }),
    );

  timers
    .command('cancel <queue> <keys...>')
    .description('take timers back')
    .action(
      does<object, [string, string[]]>(async (call, queue, keys) => {
        const { queen, out, signal } = call;
        const results: TimerResult[] = [];
        for (const key of keys) results.push(await queen.queue(queue).timers.cancel(key, { signal }));
        out.rows(results, RESULTS, '');
        if (results.some(({ status }) => status === 'too_late')) call.ends('refused');
        else if (results.some(({ status }) => status === 'absent')) call.ends('notFound');
      }),
    );
}

function left(deliverAt: string): string {
  const seconds = (Date.parse(deliverAt) - Date.now()) / 1_000;
  return seconds <= 0 ? 'due' : duration(seconds);
}
