import { AckError, AckInDoubtError, type AckResult, type MessageRef, type Outcome } from '@queen-mq/client';
import { type Command, Option } from 'commander';
import { type Call, does } from '../call.ts';
import { usage } from '../exit.ts';
import { textOf } from '../input/lines.ts';
import { durationSeconds } from '../input/values.ts';
import { parseExact } from '../output/exact_json.ts';
import type { Column } from '../output/table.ts';
import { examples } from './examples.ts';

interface Options {
  readonly partitionId?: string;
  readonly lease?: string;
  readonly group?: string;
  readonly status?: Outcome;
  readonly error?: string;
}

const COLUMNS: readonly Column<AckResult>[] = [
  { title: 'TRANSACTION ID', of: ({ transactionId }) => transactionId },
  {
    title: 'RESULT',
    of: ({ success, inDoubt, dlq, noop }) => {
      if (!success) return inDoubt === true ? 'in doubt' : 'refused';
      return dlq ? 'dead letter' : noop ? 'was done' : 'done';
    },
  },
  { title: 'LEASE', of: ({ leaseReleased }) => (leaseReleased ? 'over' : 'held') },
  { title: 'ERROR', of: ({ error }) => error, cut: true },
];

export function ackCommands(program: Command): void {
  const ack = addressed(program.command('ack [transactionIds...]'))
    .description(
      'complete messages that were popped; to complete one is to complete all before it in its partition',
    )
    .action(does<Options, [string[]]>((call, ids) => settle(call, ids, 'completed')));
  examples(ack, [
    ['queenctl pop orders -g billing -n 10 -o json | queenctl ack -', 'what a pop has printed'],
    ['queenctl ack order-1 --partition-id 7 --lease 01a2… --group billing'],
  ]);

  const nack = addressed(program.command('nack [transactionIds...]'))
    .description('say that messages which were popped have failed: they come again')
    .addOption(
      new Option('--status <what>', 'failed: uses up an attempt; retry: at no cost; dlq: a dead letter now')
        .choices(['failed', 'retry', 'dlq'])
        .default('failed'),
    )
    .option('--error <text>', 'the reason, which a dead letter shows')
    .action(does<Options, [string[]]>((call, ids) => settle(call, ids, call.options.status ?? 'failed')));
  examples(nack, [
    ['queenctl pop orders -g billing -o json | queenctl nack - --status dlq --error "no such customer"'],
  ]);

  program
    .command('renew <leaseId>')
    .description('make a lease last so long from now on')
    .option('--for <time>', 'how long', durationSeconds, 60)
    .action(
      does<{ for: number }, [string]>(async (call, leaseId) => {
        const { queen, out, options, signal } = call;
        const ref = { transactionId: '', partitionId: '', leaseId };
        const until = await queen.renew(ref, options.for, { signal });
        if (until === null) call.ends('notFound');
        out.facts({ leaseId, expiresAt: until?.toISOString() ?? null }, [
          ['lease', leaseId],
          ['expires', until?.toISOString() ?? 'it is over: somebody else may have the messages'],
        ]);
      }),
    );
}

function addressed(command: Command): Command {
  return command
    .option('--partition-id <id>', 'id of their partition, as a pop tells it')
    .option('--lease <id>', 'the lease that they were popped with')
    .option('-g, --group <name>', 'the group that they were popped for')
    .addHelpText(
      'before',
      'Transaction ids, or - for messages on standard input as `pop -o json` prints them.\n',
    );
}

async function settle(call: Call<Options>, ids: readonly string[], outcome: Outcome): Promise<void> {
  const { queen, out, options, signal } = call;
  const messages = ids.length === 1 && ids[0] === '-' ? read(await textOf('-')) : typed(ids, options);
  if (messages.length === 0) return out.note('no messages to ack');
  try {
    out.rows(await queen.ack(messages, outcome, { error: options.error, signal }), COLUMNS, '');
  } catch (error) {
    if (!(error instanceof AckError || error instanceof AckInDoubtError)) throw error;
    out.rows(error.results, COLUMNS, '');
    call.ends(error instanceof AckError ? 'failure' : 'inDoubt');
  }
}

function typed(ids: readonly string[], { partitionId, lease, group }: Options): MessageRef[] {
  if (ids.length === 0) throw usage('transaction ids are needed, or - for messages on standard input');
  if (partitionId === undefined) throw usage('--partition-id is needed with transaction ids');
  return ids.map((transactionId) => ({ transactionId, partitionId, leaseId: lease, consumerGroup: group }));
}

/** Messages one a line, or in an array. */
function read(text: string): MessageRef[] {
  const whole = text.trim();
  if (whole === '') return [];
  const found = whole.startsWith('[')
    ? json(whole, 'the array')
    : whole
        .split(/\r?\n/)
        .filter((line) => line.trim() !== '')
        .map((line, at) => json(line, `line ${at + 1}`));
  return (found as unknown[]).map((each, at) => {
    const { transactionId, partitionId, leaseId, consumerGroup, queue } = (each ?? {}) as Record<
      string,
      unknown
    >;
    if (typeof transactionId !== 'string' || typeof partitionId !== 'string')
      throw usage(
        `message ${at + 1} on standard input has no transactionId and partitionId, as a popped one has`,
      );
    return { transactionId, partitionId, leaseId, consumerGroup, queue } as MessageRef;
  });
}

function json(text: string, where: string): unknown {
  try {
    return parseExact(text);
  } catch (error) {
    throw usage(`standard input, ${where}: ${(error as Error).message}`);
  }
}
