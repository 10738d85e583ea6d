import type { Message } from '@queen-mq/client';
import { type Command, Option } from 'commander';
import { type Call, does } from '../call.ts';
import { usage } from '../exit.ts';
import { durationMs, durationSeconds, instantOr, integer } from '../input/values.ts';
import type { Column } from '../output/table.ts';
import { count } from '../output/text.ts';
import { examples } from './examples.ts';

interface Options {
  readonly group?: string;
  readonly partition?: string;
  readonly batch: number;
  readonly partitions?: number;
  readonly wait?: number;
  readonly lease?: number;
  readonly ack: 'none' | 'auto' | 'retry';
  readonly start?: string;
}

const COLUMNS: readonly Column<Message>[] = [
  { title: 'PARTITION', of: ({ partition }) => partition },
  { title: 'OFFSET', of: ({ offset }) => offset, right: true },
  { title: 'TRANSACTION ID', of: ({ transactionId }) => transactionId },
  { title: 'CREATED', of: ({ createdAt }) => createdAt },
  { title: 'TRY', of: ({ deliveryAttempt }) => deliveryAttempt, right: true },
  { title: 'PAYLOAD', of: ({ data }) => JSON.stringify(data), cut: true },
];

const WAIT_MS_MAX = 60_000;

export function popCommand(program: Command): void {
  const command = program
    .command('pop <queue>')
    .description('take messages from a queue')
    .option('-g, --group <name>', 'for a consumer group; without one a cursor that all such pops share')
    .option('-p, --partition <name>', 'from one partition')
    .option('-n, --batch <n>', 'messages at most', integer(1, 100_000), 1)
    .option('--partitions <n>', 'partitions at most; 0: any number (default: 1)', integer(0))
    .option('--wait <time>', 'wait for messages when there are none, up to 60s', durationMs)
    .option('--lease <time>', "how long they are yours (default: the queue's leaseTime)", durationSeconds)
    .addOption(
      new Option(
        '--ack <how>',
        'none: they stay leased, and come again when that is over; auto: done, once they are printed; retry: given back at no cost',
      )
        .choices(['none', 'auto', 'retry'])
        .default('none'),
    )
    .option(
      '--start <where>',
      'where a group that is new begins: all, new, or an instant (default: new)',
      instantOr('all', 'new'),
    )
    .action(does<Options, [string]>(pop));
  examples(command, [
    ['queenctl pop orders --group billing --start all', 'look at the next one: it stays leased'],
    ['queenctl pop orders -g billing -n 10 -o json | queenctl ack -', 'take ten and complete them'],
    ['queenctl pop orders -g billing --wait 30s --ack auto'],
  ]);
  command.addHelpText('after', '\nWith -o json: a message a line.');
}

async function pop(call: Call<Options>, name: string): Promise<void> {
  const { queen, out, options, signal } = call;
  const { group, partition, batch, partitions, wait, lease, ack } = options;
  if (wait !== undefined && wait > WAIT_MS_MAX) throw usage('--wait is at most 60s');
  let from = queen.queue(name);
  if (partition !== undefined) from = from.partition(partition);
  if (group !== undefined) from = from.group(group);
  const messages = await from.pop({
    batch,
    partitions,
    waitMs: wait,
    leaseSeconds: lease,
    ...startOf(options.start),
    signal,
  });
  if (out.forPeople) out.rows(messages, COLUMNS, `nothing to take from ${name}`);
  else for (const message of messages) out.stream(COLUMNS)(message);
  if (messages.length === 0) return;
  if (ack === 'none') {
    out.note(`${count(messages.length, 'message')} leased: ${messages[0]!.leaseId}`);
    return;
  }
  // Also when it was interrupted meanwhile: they have been printed.
  await queen.ack(messages, ack === 'auto' ? 'completed' : 'retry');
}

/** Where a group that is new begins. */
function startOf(start: string | undefined) {
  if (start === undefined) return {};
  if (start === 'all' || start === 'new') return { subscriptionMode: start } as const;
  return { subscriptionFrom: start };
}
