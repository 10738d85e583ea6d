/** A consumer group on a queue: how far behind it is and where, and how it is moved. */
import { useState } from 'preact/hooks';
import { type GroupOnQueue, type GroupPartition, getGroupOnQueue } from '../api/groups.ts';
import { usePoll } from '../api/poll.ts';
import { Action } from '../components/action.tsx';
import { destroyGroup } from '../components/groups.tsx';
import { SearchBox, useList } from '../components/list.tsx';
import { groupName, groupPath, PartitionLink, queuePath } from '../components/messages.tsx';
import { Observed } from '../components/observed.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { SeekDialog } from '../components/seek.tsx';
import { type Column, PagedTable } from '../components/table.tsx';
import { Badge, Tile, Tiles, toneOfWait } from '../components/tiles.tsx';
import { compact, duration, plural, whole } from '../format.ts';
import { navigate } from '../router.ts';
import type { PageParams } from '../routes.ts';

/** All partitions of the queue are counted for it. */
const EVERY_MS = 10_000;

export default function GroupOnQueuePage({ params }: { params: PageParams }) {
  const group = params.group!;
  const queue = params.queue!;
  const { sorting, onOffset, ...query } = useList('lag', 50, 'desc');
  const live = usePoll(
    `group on queue ${JSON.stringify([group, queue, query])}`,
    (signal) => getGroupOnQueue(group, queue, query, signal),
    { everyMs: EVERY_MS, keep: true },
  );
  /** Null: the whole queue. */
  const [moving, setMoving] = useState<{ partition: GroupPartition | null }>();
  const destroy = async () => {
    if (await destroyGroup(group, queue)) navigate(groupPath(group));
  };
  const { data } = live;
  const name = groupName(group);
  return (
    <Page
      title={`${name} on ${queue}`}
      crumbs={[
        ['Consumer groups', '/groups'],
        [name, groupPath(group)],
      ]}
      lead={
        <p>
          Consumer group on the queue <a href={queuePath(queue)}>{queue}</a>
          {data?.conflation && ', which takes only the newest message of a partition'}
        </p>
      }
      actions={
        <>
          <Action needs="write" onClick={() => setMoving({ partition: null })}>
            Move…
          </Action>
          <Action needs="admin" danger onClick={() => void destroy()}>
            Delete…
          </Action>
        </>
      }
    >
      <Shown of={live}>{({ totals }) => <Totals totals={totals} />}</Shown>
      <Card title="Lag" note="Seen while this page was open">
        <div class="inside">
          <Observed
            id={`group ${JSON.stringify([group, queue])}`}
            title="Lag"
            labels={['Messages']}
            of={live}
            values={({ totals }) => [totals.totalLag]}
            format={compact}
          />
        </div>
      </Card>
      <Card
        title="Partitions"
        note="Those that are furthest behind first"
        actions={<SearchBox label="Search by name" />}
      >
        <Shown of={live}>
          {({ partitions, pagination: { total } }) => (
            <PagedTable
              caption={`Partitions of ${queue} for ${name}`}
              columns={columnsOf(queue, (partition) => setMoving({ partition }))}
              rows={partitions}
              id={({ partitionId }) => partitionId}
              sorting={sorting}
              empty={
                query.search === '' ? (
                  <Empty title="This group is in no partition of the queue">
                    <p>It has not popped here yet, was deleted, or the queue has no messages.</p>
                  </Empty>
                ) : (
                  <Empty title="No partition is like that" />
                )
              }
              noun="partition"
              offset={query.offset}
              limit={query.limit}
              total={total}
              onOffset={onOffset}
            />
          )}
        </Shown>
      </Card>
      {moving !== undefined && (
        <SeekDialog
          group={group}
          queue={queue}
          partition={moving.partition}
          lag={moving.partition?.offsetLag ?? data?.totals.totalLag ?? 0}
          partitions={data?.totals.partitions ?? 0}
          onClose={(moved) => {
            setMoving(undefined);
            if (moved) live.refresh();
          }}
        />
      )}
    </Page>
  );
}

function Totals({ totals }: { totals: GroupOnQueue['totals'] }) {
  const { partitions, partitionCursors, partitionsWithLag, totalLag, maxTimeLag } = totals;
  return (
    <Tiles>
      <Tile
        label="Lag"
        value={compact(totalLag)}
        note={totalLag < 10_000 ? 'messages' : plural(totalLag, 'message')}
      />
      <Tile
        label="Oldest has waited"
        value={totalLag === 0 ? '–' : duration(maxTimeLag)}
        tone={toneOfWait(maxTimeLag)}
      />
      <Tile label="Partitions behind" value={compact(partitionsWithLag)} note={`of ${whole(partitions)}`} />
      <Tile
        label="Cursors"
        value={compact(partitionCursors)}
        note={
          partitionCursors < partitions
            ? `${whole(partitions - partitionCursors)} not met yet`
            : 'on all of them'
        }
      />
    </Tiles>
  );
}

function columnsOf(queue: string, onMove: (partition: GroupPartition) => void): Column<GroupPartition>[] {
  return [
    {
      title: 'Partition',
      sort: 'name',
      key: true,
      cell: ({ partition }) => <PartitionLink queue={queue} partition={partition} />,
    },
    { title: 'Lag', sort: 'lag', right: true, cell: ({ offsetLag }) => whole(offsetLag) },
    {
      title: 'Oldest has waited',
      sort: 'waiting',
      right: true,
      cell: ({ offsetLag, timeLagSeconds }) => (offsetLag === 0 ? '–' : duration(timeLagSeconds)),
    },
    { title: 'Next offset', right: true, cell: ({ nextOffset }) => whole(nextOffset) },
    { title: 'End', right: true, cell: ({ endOffset }) => whole(endOffset) },
    { title: 'Consumed', right: true, cell: ({ totalConsumed }) => whole(totalConsumed) },
    { title: 'State', tight: true, cell: (partition) => <State of={partition} /> },
    {
      title: 'Actions',
      bare: true,
      right: true,
      cell: (partition) => (
        <Action
          needs="write"
          small
          label={`Move on partition ${partition.partition}`}
          onClick={() => onMove(partition)}
        >
          Move…
        </Action>
      ),
    },
  ];
}

function State({ of: { hasCursor, leaseActive, offsetLag } }: { of: GroupPartition }) {
  if (leaseActive) return <Badge tone="accent">Processing</Badge>;
  if (!hasCursor) return <Badge>Not met yet</Badge>;
  return offsetLag === 0 ? <Badge tone="good">At the end</Badge> : <Badge>Waiting</Badge>;
}
