/** One queue: what is in it, what runs through it, its partitions. */
import { usePoll } from '../api/poll.ts';
import { getQueue, getQueueOps, type LiveQueue, type PartitionRow, type QueueOps } from '../api/queues.ts';
import { SearchBox, useList } from '../components/list.tsx';
import { deadLettersPath, PartitionLink, queuePath } from '../components/messages.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { QueueTabs } from '../components/queue_tabs.tsx';
import { RangeChoice, useRange } from '../components/range.tsx';
import { type Column, PagedTable, type Sorting } from '../components/table.tsx';
import { Tile, Tiles } from '../components/tiles.tsx';
import { Ago } from '../components/time.tsx';
import { Traffic } from '../components/traffic.tsx';
import { compact, whole } from '../format.ts';
import type { PageParams } from '../routes.ts';

/** Counting a queue of many partitions is work for the database. */
const EVERY_MS = 10_000;

export default function QueuePage({ params }: { params: PageParams }) {
  const queue = params.queue!;
  const { sorting, onOffset, ...query } = useList('name');
  const range = useRange();
  const live = usePoll(
    `queue ${queue} ${JSON.stringify(query)}`,
    (signal) => getQueue(queue, query, signal),
    { everyMs: EVERY_MS, keep: true },
  );
  const ops = usePoll(
    `queue-ops ${queue} ${range.name}`,
    (signal) => getQueueOps(queue, range.from(), signal),
    { everyMs: EVERY_MS, keep: true },
  );
  const messages = `/messages?queue=${encodeURIComponent(queue)}`;
  return (
    <Page
      title={queue}
      crumbs={[['Queues', '/queues']]}
      actions={
        <>
          <RangeChoice />
          <a class="button" href={messages}>
            Messages
          </a>
        </>
      }
    >
      <QueueTabs queue={queue} />
      <Shown of={live}>{(data) => <Totals live={data} />}</Shown>
      <Shown of={ops}>
        {(data) => {
          const { bars, line } = barsOf(data);
          return (
            <Traffic
              note="Messages a second"
              bars={bars}
              counts={{
                Stored: line('pushMessages'),
                Delivered: line('popMessages'),
                Failed: line('ackFailed'),
              }}
              avgLagMs={line('avgLagMs')}
              maxLagMs={line('maxLagMs')}
            />
          );
        }}
      </Shown>
      <Card title="Partitions" note="Counted now" actions={<SearchBox label="Search by name" />}>
        <Shown of={live}>
          {(data) => (
            <Partitions live={data} searched={query.search !== ''} sorting={sorting} onOffset={onOffset} />
          )}
        </Shown>
      </Card>
    </Page>
  );
}

function Totals({ live }: { live: LiveQueue }) {
  const { partitions, messages } = live.totals;
  const { name } = live.queue;
  return (
    <Tiles>
      <Tile label="Pending" value={compact(messages.pending)} note="for the group furthest behind" />
      <Tile label="Processing" value={compact(messages.processing)} note="under a lease now" />
      <Tile
        label="Dead letters"
        value={compact(messages.deadLetter)}
        tone={messages.deadLetter > 0 ? 'bad' : undefined}
        note={messages.deadLetter > 0 ? <a href={deadLettersPath(name)}>Look at them</a> : 'none'}
      />
      <Tile label="Messages" value={compact(messages.total)} note="retained" />
      <Tile
        label="Partitions"
        value={compact(partitions)}
        note={
          <>
            made <Ago at={live.queue.createdAt} />
          </>
        }
      />
    </Tiles>
  );
}

/** Every bar of the range; the broker leaves those out in which nothing happened. */
function barsOf({ timeRange, bucketMinutes, series }: QueueOps) {
  const width = bucketMinutes * 60_000;
  const first = Math.floor(Date.parse(timeRange.from) / width) * width;
  const end = Date.parse(timeRange.to);
  const byBucket = new Map(series.map((row) => [Date.parse(row.bucket), row]));
  const buckets: string[] = [];
  const rows: (QueueOps['series'][number] | undefined)[] = [];
  for (let at = first; at < end; at += width) {
    buckets.push(new Date(at).toISOString());
    rows.push(byBucket.get(at));
  }
  const line = (of: Exclude<keyof QueueOps['series'][number], 'bucket'>) =>
    rows.map((row) => row?.[of] ?? null);
  return { bars: { timeRange, bucketMinutes, buckets }, line };
}

interface PartitionsProps {
  live: LiveQueue;
  searched: boolean;
  sorting: Sorting;
  onOffset: (offset: number) => void;
}

function Partitions({ live, searched, sorting, onOffset }: PartitionsProps) {
  const { name } = live.queue;
  const columns: Column<PartitionRow>[] = [
    {
      title: 'Partition',
      sort: 'name',
      key: true,
      cell: (row) => <PartitionLink queue={name} partition={row.name} />,
    },
    { title: 'Pending', sort: 'pending', right: true, cell: ({ messages }) => whole(messages.pending) },
    { title: 'Processing', right: true, cell: ({ messages }) => whole(messages.processing) },
    { title: 'Dead letters', right: true, cell: ({ messages }) => whole(messages.deadLetter) },
    { title: 'Messages', right: true, cell: ({ messages }) => whole(messages.total) },
    { title: 'Oldest', tight: true, cell: ({ oldestMessage }) => <Ago at={oldestMessage} /> },
    {
      title: 'Last written',
      sort: 'lastActivity',
      tight: true,
      cell: ({ lastActivity }) => <Ago at={lastActivity} />,
    },
  ];
  const { limit, offset, total } = live.pagination;
  return (
    <PagedTable
      caption={`Partitions of ${name}`}
      columns={columns}
      rows={live.partitions}
      id={({ id }) => id}
      sorting={sorting}
      empty={
        searched || offset > 0 ? (
          <Empty title="No partition is like that">
            <a href={queuePath(name)}>Show all of them</a>
          </Empty>
        ) : (
          <Empty title="Nothing was pushed yet">
            <p>A partition is made by the first message that names it.</p>
          </Empty>
        )
      }
      noun="partition"
      offset={offset}
      limit={limit}
      total={total}
      onOffset={onOffset}
    />
  );
}
