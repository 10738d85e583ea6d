import type { Command } from 'commander';
import { type Call, does } from '../call.ts';
import { instantOr, integer, several } from '../input/values.ts';
import type { Column } from '../output/table.ts';
import { Reader, type Start, type Tailed } from '../tail/reader.ts';
import { examples } from './examples.ts';
import { suggested } from './suggested.ts';

interface Options {
  readonly partition?: string[];
  readonly from?: string;
  readonly lines?: number;
  readonly follow: boolean;
}

const COLUMNS: readonly Column<Tailed>[] = [
  { title: 'CREATED', of: ({ createdAt }) => createdAt },
  { title: 'PARTITION', of: ({ partition }) => partition },
  { title: 'OFFSET', of: ({ offset }) => offset, right: true },
  { title: 'TRANSACTION ID', of: ({ transactionId }) => transactionId },
  { title: 'PAYLOAD', of: ({ data }) => JSON.stringify(data), cut: true },
];

export function tailCommand(program: Command): void {
  const command = program
    .command('tail <queue>')
    .description('messages of a queue as they come; no group moves, and nothing is taken')
    .option('-p, --partition <name>', 'only of a partition; several with commas, or given again', several)
    .option(
      '--from <where>',
      'end, beginning, or an instant or a time ago (default: end; beginning with --no-follow)',
      instantOr('beginning', 'end'),
    )
    .option('-n, --lines <n>', 'end after so many messages', integer(1))
    .option('--no-follow', 'end at what is there now')
    .action(does<Options, [string]>(tail));
  examples(command, [
    ['queenctl tail orders'],
    ['queenctl tail orders --from 15m --partition customer-7,customer-8'],
    [
      'queenctl tail orders --from beginning --no-follow -o json > orders.ndjson',
      'all of a queue, a message a line',
    ],
  ]);
  command.addHelpText(
    'after',
    '\nOrder holds within a partition. Delays and windows of the queue do not apply. With -o json: a message a line.',
  );
}

async function tail(call: Call<Options>, queue: string): Promise<void> {
  const { queen, out, options, signal } = call;
  const reader = new Reader(queen, queue, options.partition ?? null);
  const print = out.stream(COLUMNS);
  let left = options.lines ?? Number.POSITIVE_INFINITY;
  try {
    await suggested(queen, queue, reader.begin(startOf(options), signal));
    for (const name of reader.absent) out.note(`${queue} has no partition "${name}" yet`);
    const rounds = options.follow ? reader.follow(signal) : reader.present(signal);
    for await (const messages of rounds) {
      for (const message of messages.slice(0, left)) print(message);
      left -= messages.length;
      if (left <= 0) return;
    }
  } catch (error) {
    // To be told to end is how following ends.
    if (!signal.aborted || !options.follow) throw error;
  } finally {
    for (const [partition, lost] of reader.lost)
      out.warn(`${lost} messages of ${partition} were gone before they were read`);
  }
}

function startOf({ from, follow }: Options): Start {
  const where = from ?? (follow ? 'end' : 'beginning');
  if (where === 'end' || where === 'beginning') return where;
  return { at: where };
}
