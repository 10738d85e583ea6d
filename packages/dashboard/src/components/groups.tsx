/** What pages that show consumer groups have in common. */
import { deleteGroup, type GroupRow } from '../api/groups.ts';
import { duration, plural, whole } from '../format.ts';
import { confirm } from './dialog.tsx';
import { Group, groupName, groupPath, queuePath } from './messages.tsx';
import { Card, Empty } from './page.tsx';
import { type Column, Table } from './table.tsx';
import { Badge } from './tiles.tsx';
import { toast } from './toasts.tsx';

export const onQueuePath = (group: string, queue: string) =>
  `${groupPath(group)}/queues/${encodeURIComponent(queue)}`;

/** Columns of a list of groups, each on a queue. */
export const GROUP_COLUMNS: readonly Column<GroupRow>[] = [
  {
    title: 'Group',
    sort: 'name',
    key: true,
    cell: ({ name, queueName }) => <a href={onQueuePath(name, queueName)}>{groupName(name)}</a>,
  },
  { title: 'Queue', cell: ({ queueName }) => <a href={queuePath(queueName)}>{queueName}</a> },
  { title: 'Lag', sort: 'lag', right: true, cell: ({ totalLag }) => whole(totalLag) },
  {
    title: 'Oldest has waited',
    sort: 'waiting',
    right: true,
    cell: ({ totalLag, maxTimeLag }) => (totalLag === 0 ? '–' : duration(maxTimeLag)),
  },
  { title: 'Partitions behind', right: true, cell: ({ partitionsWithLag }) => whole(partitionsWithLag) },
  {
    title: 'Cursors',
    sort: 'partitions',
    right: true,
    cell: ({ partitionCursors }) => whole(partitionCursors),
  },
  { title: 'State', tight: true, cell: ({ state }) => <GroupState of={state} /> },
];

/** Columns where the group is known. */
export const GROUP_QUEUE_COLUMNS: readonly Column<GroupRow>[] = [
  {
    title: 'Queue',
    sort: 'name',
    key: true,
    cell: ({ name, queueName }) => <a href={onQueuePath(name, queueName)}>{queueName}</a>,
  },
  ...GROUP_COLUMNS.slice(2),
];

function GroupState({ of }: { of: GroupRow['state'] }) {
  if (of === 'Lagging') return <Badge tone="warn">Late</Badge>;
  return of === 'Stable' ? <Badge tone="good">Keeps up</Badge> : <Badge>Has consumed nothing</Badge>;
}

/** Asks, deletes the group on a queue or (null) on all, and tells. True: it is done. */
export async function destroyGroup(group: string, queue: string | null): Promise<boolean> {
  const name = groupName(group);
  let cursors = 0;
  const yes = await confirm({
    title: queue === null ? `Delete the group ${name}?` : `Delete the group ${name} on ${queue}?`,
    body: (
      <p>
        Where <strong>{name}</strong> is{' '}
        {queue === null ? (
          'in every queue'
        ) : (
          <>
            in <strong>{queue}</strong>
          </>
        )}{' '}
        is forgotten, its leases end, and so is where it began. No message is touched. If it pops again it is
        a new group, and may get everything once more or miss what is there now, as its pop says.
      </p>
    ),
    action: 'Delete the group',
    danger: true,
    typed: group,
    run: async () => {
      cursors = (await deleteGroup(group, queue)).deletedPartitions;
    },
  });
  if (yes) toast(`Deleted ${name}: it was on ${plural(cursors, 'partition')}.`);
  return yes;
}

interface ConsumersProps<Row> {
  caption: string;
  /** Beside the group's name. */
  columns: readonly Column<Row>[];
  rows: readonly Row[];
}

/** The groups that consume a partition, each with what is known of it. */
export function Consumers<Row extends { group: string }>({ caption, columns, rows }: ConsumersProps<Row>) {
  return (
    <Card title="Consumers">
      <Table
        caption={caption}
        columns={[{ title: 'Group', key: true, cell: ({ group }) => <Group name={group} /> }, ...columns]}
        rows={rows}
        id={({ group }) => group}
        empty={
          <Empty title="Nobody has consumed from it">
            <p>A group appears with its first pop.</p>
          </Empty>
        }
      />
    </Card>
  );
}
