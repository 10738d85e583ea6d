import type { StoredMessage } from '@queen-mq/client';
import { type Command, Option } from 'commander';
import { does } from '../call.ts';
import { Failure } from '../exit.ts';
import { instant, integer } from '../input/values.ts';
import { jsonText } from '../output/exact_json.ts';
import { type Column, facts } from '../output/table.ts';
import { examples } from './examples.ts';

const STATUSES = ['pending', 'processing', 'completed', 'dead_letter'] as const;

interface Filter {
  readonly queue?: string;
  readonly partition?: string;
  readonly status?: (typeof STATUSES)[number];
  readonly from?: string;
  readonly to?: string;
  readonly limit: number;
  readonly offset: number;
}

const COLUMNS: readonly Column<StoredMessage>[] = [
  { title: 'CREATED', of: ({ createdAt }) => createdAt },
  { title: 'QUEUE', of: ({ queue }) => queue },
  { title: 'PARTITION', of: ({ partition }) => partition },
  { title: 'PARTITION ID', of: ({ partitionId }) => partitionId, right: true },
  { title: 'TRANSACTION ID', of: ({ transactionId }) => transactionId },
  { title: 'STATUS', of: ({ status }) => status },
  { title: 'PAYLOAD', of: ({ data }) => JSON.stringify(data), cut: true },
];

export function messageCommands(program: Command): void {
  const messages = program.command('messages').alias('message').description('stored messages: list, show');
  examples(messages, [
    ['queenctl messages list --queue orders --status pending --from 1h'],
    ['queenctl messages show 7 order-1', 'one, by the id of its partition and its transactionId'],
  ]);

  messages
    .command('list')
    .alias('ls')
    .description('messages, the newest first')
    .option('--queue <name>', 'of a queue')
    .option('-p, --partition <name>', 'of a partition')
    .addOption(new Option('--status <status>', 'only those').choices(STATUSES))
    .option('--from <instant>', 'stored at or after (default: an hour ago)', instant)
    .option('--to <instant>', 'stored before (default: now)', instant)
    .option('--limit <n>', 'at most', integer(1, 1_000), 50)
    .option('--offset <n>', 'skip so many', integer(0), 0)
    .action(
      does<Filter>(async ({ queen, out, options, signal }) => {
        const { queue, partition, status, from, to, limit, offset } = options;
        const rows = await queen.messages.list({ queue, partition, status, from, to, limit, offset, signal });
        out.rows(rows, COLUMNS, 'no messages; without --from only those of the last hour are shown');
      }),
    );

  messages
    .command('show <partitionId> <transactionId>')
    .description('one message: its payload, and which groups have passed it')
    .action(
      does<object, [string, string]>(async ({ queen, out, signal }, partitionId, transactionId) => {
        const message = await queen.messages.get({ partitionId, transactionId }, { signal });
        if (message === null)
          throw new Failure(
            'notFound',
            `there is no message "${transactionId}" in partition ${partitionId}`,
            'its transactionId may have been forgotten; `queenctl tail` still shows it',
          );
        out.one(message, () => {
          const { id, queue, partition, status, createdAt, data } = message;
          const groups =
            (message as { consumerGroups?: { name: string; consumed: boolean }[] }).consumerGroups ?? [];
          const lines = facts([
            ['id', id],
            ['queue', queue],
            ['partition', partition],
            ['transaction id', transactionId],
            ['created', createdAt],
            ['status', status],
            ...groups.map(
              ({ name, consumed }) => [`group ${name}`, consumed ? 'passed' : 'not passed'] as const,
            ),
          ]);
          return `${lines}\n${jsonText(data, 2)}\n`;
        });
      }),
    );
}
