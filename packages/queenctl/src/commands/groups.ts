import type { GroupStanding, LaggingPartition, Queen } from '@queen-mq/client';
import type { Command } from 'commander';
import { does } from '../call.ts';
import { Failure } from '../exit.ts';
import { confirm } from '../input/confirm.ts';
import { durationMs, instant, integer } from '../input/values.ts';
import type { Column } from '../output/table.ts';
import { count, duration } from '../output/text.ts';
import { examples } from './examples.ts';
import { notFound } from './suggested.ts';

const COLUMNS: readonly Column<GroupStanding>[] = [
  { title: 'GROUP', of: ({ name }) => name },
  { title: 'QUEUE', of: ({ queueName }) => queueName },
  { title: 'CURSORS', of: ({ partitionCursors }) => partitionCursors, right: true },
  { title: 'BEHIND', of: ({ partitionsWithLag }) => partitionsWithLag, right: true },
  { title: 'LAG', of: ({ totalLag }) => totalLag, right: true },
  { title: 'OLDEST', of: ({ maxTimeLag }) => duration(maxTimeLag), right: true },
  { title: 'STATE', of: ({ state }) => state },
  { title: 'STARTED AT', of: startedAt },
];

const LAGGING: readonly Column<LaggingPartition>[] = [
  { title: 'GROUP', of: ({ group }) => group },
  { title: 'QUEUE', of: ({ queue }) => queue },
  { title: 'PARTITION', of: ({ partition }) => partition },
  { title: 'LAG', of: ({ offsetLag }) => offsetLag, right: true },
  { title: 'OLDEST', of: ({ timeLagSeconds }) => duration(timeLagSeconds), right: true },
];

interface Place {
  readonly queue: string;
  readonly partition: string;
  readonly offsetLag: number;
  readonly timeLagSeconds: number;
  readonly totalConsumed: number;
  readonly leaseActive: boolean;
}

const PLACES: readonly Column<Place>[] = [
  { title: 'QUEUE', of: ({ queue }) => queue },
  { title: 'PARTITION', of: ({ partition }) => partition },
  { title: 'LAG', of: ({ offsetLag }) => offsetLag, right: true },
  { title: 'OLDEST', of: ({ timeLagSeconds }) => duration(timeLagSeconds), right: true },
  { title: 'CONSUMED', of: ({ totalConsumed }) => totalConsumed, right: true },
  { title: 'LEASED', of: ({ leaseActive }) => (leaseActive ? 'yes' : 'no') },
];

export function groupCommands(program: Command): void {
  const groups = program
    .command('groups')
    .alias('group')
    .description('consumer groups: list, describe, lagging, start-from, delete (seek moves one)');
  examples(groups, [
    ['queenctl groups list --queue orders'],
    ['queenctl groups describe billing', 'partition by partition, the worst first'],
    ['queenctl groups lagging --min 10m', 'what is late, over all groups'],
  ]);

  groups
    .command('list')
    .alias('ls')
    .description(
      'groups by queue, with their lag in messages and the age of the oldest that they have not passed',
    )
    .option('--queue <name>', 'only those of a queue')
    .option('--min-lag <n>', 'only those that are so many messages behind', integer(0), 0)
    .action(
      does<{ queue?: string; minLag: number }>(async ({ queen, out, options, signal }) => {
        const all = await queen.groups.list({ signal });
        const wanted = all.filter(
          ({ queueName, totalLag }) =>
            (options.queue === undefined || queueName === options.queue) && totalLag >= options.minLag,
        );
        out.rows(wanted, COLUMNS, 'there are no groups');
      }),
    );

  groups
    .command('describe <group>')
    .alias('get')
    .description('where a group stands in each partition that it has a cursor on, the furthest behind first')
    .option('--queue <name>', 'only on a queue')
    .option('--limit <n>', 'partitions at most; 0: all', integer(0), 50)
    .action(
      does<{ queue?: string; limit: number }, [string]>(async ({ queen, out, options, signal }, group) => {
        const detail = await queen.groups.inspect(group, { signal });
        const places: Place[] = [];
        for (const [queue, { partitions }] of Object.entries(detail)) {
          if (options.queue !== undefined && queue !== options.queue) continue;
          for (const place of partitions) places.push({ queue, ...place });
        }
        if (places.length === 0) throw await noGroup(queen, group, options.queue);
        places.sort((one, other) => other.offsetLag - one.offsetLag);
        const shown = options.limit === 0 ? places : places.slice(0, options.limit);
        out.rows(shown, PLACES, '');
        const lag = places.reduce((sum, { offsetLag }) => sum + offsetLag, 0);
        out.note(
          `${shown.length} of ${count(places.length, 'partition')}, ${count(lag, 'message')} behind in all`,
        );
      }),
    );

  groups
    .command('lagging')
    .description('partitions on which a group is late')
    .option('--min <time>', 'later than so long', durationMs, 3_600_000)
    .action(
      does<{ min: number }>(async ({ queen, out, options, signal }) => {
        const minLagSeconds = Math.round(options.min / 1_000);
        const rows = await queen.groups.lagging({ minLagSeconds, signal });
        rows.sort((one, other) => other.timeLagSeconds - one.timeLagSeconds);
        out.rows(rows, LAGGING, `no group is later than ${duration(minLagSeconds)}`);
      }),
    );

  groups
    .command('start-from')
    .argument('<group>')
    .argument('<instant>', 'or a time ago', instant)
    .description('where a group starts on partitions that it has no cursor on')
    .action(
      does<object, [string, string]>(async ({ queen, out, signal }, group, from) => {
        const changed = await queen.groups.startFrom(group, from, { signal });
        if (changed === 0) throw new Failure('notFound', `nobody has popped for the group "${group}" yet`);
        out.one(
          { group, startFrom: from, registrations: changed },
          () => `${group} starts at ${from} on new partitions\n`,
        );
      }),
    );

  groups
    .command('delete <group>')
    .alias('rm')
    .description('forget where a group is: the next pop makes it anew')
    .option('--queue <name>', 'only on a queue')
    .option('--keep-registration', 'keep where it started, so that it starts there again')
    .option('-y, --yes', 'do not ask')
    .action(
      does<{ queue?: string; keepRegistration?: boolean; yes?: boolean }, [string]>(async (call, group) => {
        const { queen, out, options, signal } = call;
        const where = options.queue === undefined ? 'all its queues' : options.queue;
        await confirm(`The group ${group} will forget where it is on ${where}`, options.yes, signal);
        const { queue, keepRegistration } = options;
        const deleted = await queen.groups.delete(group, {
          ...(queue === undefined ? {} : { queue }),
          ...(keepRegistration === undefined ? {} : { keepRegistration }),
          signal,
        });
        out.one(
          { group, queue: queue ?? null, deletedCursors: deleted },
          () => `${count(deleted, 'cursor')} of ${group} deleted\n`,
        );
        if (deleted === 0) call.ends('notFound');
      }),
    );
}

function startedAt({ subscriptionMode, subscriptionTimestamp }: GroupStanding): string | null {
  return subscriptionMode === 'all' ? 'the oldest' : subscriptionTimestamp;
}

async function noGroup(queen: Queen, group: string, queue: string | undefined): Promise<Failure> {
  const names = [...new Set((await queen.groups.list()).map(({ name }) => name))];
  const where = queue === undefined ? '' : ` on ${queue}`;
  return notFound(`the group "${group}" has no cursor${where}`, 'groups', group, names);
}
