import type { PartitionPage } from '@queen-mq/client';
import type { Command } from 'commander';
import { does } from '../call.ts';
import { integer } from '../input/values.ts';
import type { Column } from '../output/table.ts';
import { age } from '../output/text.ts';
import { examples } from './examples.ts';
import { suggested } from './suggested.ts';

type Partition = PartitionPage['partitions'][number];

const COLUMNS: readonly Column<Partition>[] = [
  { title: 'PARTITION', of: ({ name }) => name },
  { title: 'ID', of: ({ id }) => id, right: true },
  { title: 'MESSAGES', of: ({ messages }) => messages.total, right: true },
  { title: 'PENDING', of: ({ messages }) => messages.pending, right: true },
  { title: 'LEASED', of: ({ messages }) => messages.processing, right: true },
  { title: 'DEAD', of: ({ messages }) => messages.deadLetter, right: true },
  { title: 'OLDEST', of: ({ oldestMessage }) => age(oldestMessage), right: true },
  { title: 'NEWEST', of: ({ newestMessage }) => age(newestMessage), right: true },
];

/** The most that a broker gives in one answer. */
const PAGE_MAX = 10_000;

export function partitionCommands(program: Command): void {
  const command = program
    .command('partitions <queue>')
    .description('partitions of a queue by name, with the messages in them')
    .option('--limit <n>', 'partitions at most; 0: all', integer(0), 100)
    .option('--offset <n>', 'skip so many', integer(0), 0)
    .action(
      does<{ limit: number; offset: number }, [string]>(async ({ queen, out, options, signal }, name) => {
        const wanted = options.limit === 0 ? Number.POSITIVE_INFINITY : options.limit;
        const rows: Partition[] = [];
        let total = 0;
        do {
          const offset = options.offset + rows.length;
          const limit = Math.min(PAGE_MAX, wanted - rows.length);
          const page = await suggested(queen, name, queen.queue(name).partitions({ limit, offset, signal }));
          total = page.total;
          rows.push(...page.partitions);
          if (page.partitions.length < limit) break;
        } while (rows.length < wanted);
        out.rows(rows, COLUMNS, `${name} has no partitions there`);
        if (rows.length + options.offset < total) {
          out.note(
            `${rows.length} of ${total} partitions; --offset ${options.offset + rows.length} shows more`,
          );
        }
      }),
    );
  examples(command, [
    ['queenctl partitions orders --limit 20'],
    ['queenctl partitions orders --limit 0 -o json'],
  ]);
}
