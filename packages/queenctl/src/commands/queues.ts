import type { GroupStanding, QueueDetail, QueueOptions, QueueSummary } from '@queen-mq/client';
import type { Command } from 'commander';
import { optionsOf, QUEUE_DEFAULTS } from '../apply/queue_options.ts';
import { does } from '../call.ts';
import { Failure } from '../exit.ts';
import { confirm } from '../input/confirm.ts';
import { type Column, facts, table } from '../output/table.ts';
import { age, bytes, count } from '../output/text.ts';
import { examples } from './examples.ts';
import { suggested } from './suggested.ts';

const COLUMNS: readonly Column<QueueSummary>[] = [
  { title: 'QUEUE', of: ({ name }) => name },
  { title: 'PARTITIONS', of: ({ partitions }) => partitions, right: true },
  { title: 'MESSAGES', of: ({ messages }) => messages.total, right: true },
  { title: 'PENDING', of: ({ messages }) => messages.pending, right: true },
  { title: 'LEASED', of: ({ messages }) => messages.processing, right: true },
  { title: 'SIZE', of: ({ retainedBytes, messages }) => size(retainedBytes, messages.total), right: true },
  { title: 'NAMESPACE', of: ({ namespace }) => namespace },
  { title: 'TASK', of: ({ task }) => task },
  { title: 'AGE', of: ({ createdAt }) => age(createdAt), right: true },
];

/** Brokers count bytes every few minutes: a young queue with messages has not been counted. */
function size(retainedBytes: number, messages: number): string {
  return retainedBytes === 0 && messages > 0 ? '-' : bytes(retainedBytes);
}

export function queueCommands(program: Command): void {
  const queues = program
    .command('queues')
    .alias('queue')
    .description('queues: list, describe, configure, delete');
  examples(queues, [
    ['queenctl queues configure orders leaseTime=60 retryLimit=5'],
    ['queenctl queues describe orders'],
    ['queenctl queues delete orders --yes'],
  ]);

  queues
    .command('list')
    .alias('ls')
    .description('all queues with what is in them; pending follows the group that is furthest behind')
    .option('--namespace <name>', 'only those of a namespace')
    .option('--task <name>', 'only those of a task')
    .action(
      does<{ namespace?: string; task?: string }>(async ({ queen, out, options, signal }) => {
        const { namespace, task } = options;
        const all = await queen.admin.queues({ signal });
        const wanted = all.filter(
          (queue) =>
            (namespace === undefined || queue.namespace === namespace) &&
            (task === undefined || queue.task === task),
        );
        out.rows(wanted, COLUMNS, 'there are no queues');
      }),
    );

  queues
    .command('describe <queue>')
    .alias('get')
    .description('one queue: its options, what is in it, the groups that read it')
    .action(
      does<object, [string]>(async ({ queen, out, signal }, name) => {
        const page = await suggested(queen, name, queen.queue(name).partitions({ limit: 1, signal }));
        const [queues, standings] = await Promise.all([
          queen.admin.queues({ signal }),
          queen.groups.list({ signal }),
        ]);
        const summary = queues.find((queue) => queue.name === name);
        if (summary === undefined) throw new Failure('notFound', `the queue "${name}" was deleted just now`);
        const { messages: _, ...rest } = summary;
        const { messages: totals } = page;
        const detail = { ...rest, options: page.queue.options, totals };
        const groups = standings.filter(({ queueName }) => queueName === name);
        out.one({ ...detail, groups }, () => described(detail) + groupsOf(groups));
      }),
    );

  const configure = queues
    .command('configure <queue> [options...]')
    .description('make a queue, or change the options that are named (name=value; name= is its default)')
    .option('--replace', 'options that are not named go back to their defaults')
    .action(
      does<{ replace?: boolean }, [string, string[]]>(
        async ({ queen, out, options, signal }, name, pairs) => {
          const given = optionsOf(pairs);
          const replace = options.replace === true;
          const { ignored, ...made } = await queen.queue(name).configure(given, { replace, signal });
          for (const option of ignored) out.warn(`${option} is stored and has no effect`);
          out.facts({ ...made, ignored }, [
            ['queue', made.queue],
            ...shownOptions({ ...made, ...made.options }),
          ]);
        },
      ),
    );
  configure.addHelpText(
    'after',
    `\nOptions of a queue, with their defaults (see docs/http.md):\n${Object.entries(QUEUE_DEFAULTS)
      .map(([name, value]) => `  ${name}=${value}`)
      .join('\n')}`,
  );

  queues
    .command('delete <queues...>')
    .alias('rm')
    .description('delete queues with their messages, cursors and dead letters')
    .option('-y, --yes', 'do not ask')
    .option('--if-exists', 'one that is not there is no error')
    .action(
      does<{ yes?: boolean; ifExists?: boolean }, [string[]]>(async (call, names) => {
        const { queen, out, options, signal } = call;
        await confirm(`${names.join(', ')} will be deleted with all messages`, options.yes, signal);
        const results: { queue: string; deleted: boolean }[] = [];
        for (const queue of names)
          results.push({ queue, deleted: await queen.queue(queue).delete({ signal }) });
        out.one(results, () =>
          results
            .map(({ queue, deleted }) => `${queue} ${deleted ? 'is deleted' : 'was not there'}\n`)
            .join(''),
        );
        if (options.ifExists !== true && results.some(({ deleted }) => !deleted)) call.ends('notFound');
      }),
    );
}

type Detail = Omit<QueueSummary, 'messages'> & Pick<QueueDetail, 'options' | 'totals'>;

function described({ totals, options, ...queue }: Detail): string {
  const standing = facts([
    ['queue', queue.name],
    ['created', queue.createdAt],
    ['partitions', queue.partitions],
    ['messages', totals.total],
    ['pending', totals.pending],
    ['leased', totals.processing],
    ['dead letters', totals.deadLetter],
    ['size', size(queue.retainedBytes, totals.total)],
  ]);
  return `${standing}\nOptions (* differs from the default)\n${facts(shownOptions(options))}`;
}

function shownOptions(options: Readonly<Record<string, unknown>> | QueueOptions): [string, string][] {
  return Object.entries(QUEUE_DEFAULTS).map(([name, usual]) => {
    const value = (options as Record<string, unknown>)[name];
    return [name, `${value === '' ? '""' : value}${value === usual ? '' : ' *'}`];
  });
}

function groupsOf(groups: readonly GroupStanding[]): string {
  if (groups.length === 0) return '\nNo group reads it.\n';
  const rows = table(groups, [
    { title: 'GROUP', of: ({ name }) => name },
    { title: 'CURSORS', of: ({ partitionCursors }) => partitionCursors, right: true },
    { title: 'LAG', of: ({ totalLag }) => totalLag, right: true },
    { title: 'STATE', of: ({ state }) => state },
  ]);
  return `\n${count(groups.length, 'group')}\n${rows}`;
}
