/** One partition: who consumes it, and its messages by offset. */
import { type FetchedRecord, fetchRecords } from '../api/messages.ts';
import { usePoll } from '../api/poll.ts';
import { getPartition, type PartitionCursor, type PartitionDetail } from '../api/queues.ts';
import { Copyable } from '../components/copy.tsx';
import { Consumers } from '../components/groups.tsx';
import { Glimpse, messagePath, partitionName, queuePath } from '../components/messages.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { Payload } from '../components/payload.tsx';
import { type Column, Step, Table } from '../components/table.tsx';
import { Badge, Tile, Tiles } from '../components/tiles.tsx';
import { Ago, Moment } from '../components/time.tsx';
import { compact, whole } from '../format.ts';
import { useSearch } from '../router.ts';
import type { PageParams } from '../routes.ts';

/** Messages on one page. */
const LIMIT = 25;

export default function PartitionPage({ params }: { params: PageParams }) {
  const queue = params.queue!;
  const partition = params.partition!;
  const detail = usePoll(`partition ${queue}/${partition}`, (signal) =>
    getPartition(queue, partition, signal),
  );
  return (
    <Page
      title={partitionName(partition)}
      crumbs={[
        ['Queues', '/queues'],
        [queue, queuePath(queue)],
      ]}
    >
      <Shown of={detail}>
        {(data) => (
          <>
            <Totals of={data} />
            <Consumers caption="Consumers of the partition" columns={CONSUMERS} rows={data.groups} />
            <Records of={data} />
          </>
        )}
      </Shown>
    </Page>
  );
}

function Totals({ of }: { of: PartitionDetail }) {
  const { messages, logStartOffset, nextOffset } = of;
  return (
    <Tiles>
      <Tile label="Pending" value={compact(messages.pending)} note="for the group furthest behind" />
      <Tile label="Processing" value={compact(messages.processing)} note="under a lease now" />
      <Tile
        label="Dead letters"
        value={compact(messages.deadLetter)}
        tone={messages.deadLetter > 0 ? 'bad' : undefined}
      />
      <Tile
        label="Messages"
        value={compact(messages.total)}
        note={
          messages.total === 0
            ? `next offset ${nextOffset}`
            : `offsets ${logStartOffset} to ${nextOffset - 1}`
        }
      />
      <Tile
        label="Last written"
        value={<Ago at={of.lastActivity} />}
        note={
          <>
            made <Ago at={of.createdAt} />
          </>
        }
      />
    </Tiles>
  );
}

const CONSUMERS: readonly Column<PartitionCursor>[] = [
  { title: 'Next offset', right: true, cell: ({ nextOffset }) => whole(nextOffset) },
  { title: 'Lag', right: true, cell: ({ offsetLag }) => whole(offsetLag) },
  { title: 'Consumed, ever', right: true, cell: ({ totalConsumed }) => whole(totalConsumed) },
  {
    title: 'Lease',
    cell: ({ leaseActive, leaseUpToOffset, leaseExpiresAt }) =>
      leaseActive ? (
        <>
          <Badge tone="accent">up to {whole(leaseUpToOffset)}</Badge> ends <Ago at={leaseExpiresAt} />
        </>
      ) : (
        <span class="muted">none</span>
      ),
  },
  { title: 'Worker', cell: ({ workerId }) => (workerId === null ? '' : <code>{workerId}</code>) },
];

function Records({ of }: { of: PartitionDetail }) {
  const { queue, name, logStartOffset: start, nextOffset: end, id } = of;
  const [search, change] = useSearch();
  const asked = search.get('from');
  const newest = Math.max(start, end - LIMIT);
  const from = asked === null || !/^\d{1,15}$/.test(asked) ? newest : Math.max(start, Number(asked));
  const open = search.get('at');
  const follows = asked === null;
  // Records never change: they are asked for anew when the end of the partition has moved, which its counts tell.
  const fetched = usePoll(
    `records ${queue}/${name} ${from} ${follows ? end : ''}`,
    (signal) => fetchRecords(queue, name, from, signal),
    { everyMs: 0, keep: true },
  );
  const columns: Column<FetchedRecord>[] = [
    { title: 'Offset', key: true, tight: true, cell: ({ offset }) => whole(offset) },
    { title: 'Stored', tight: true, cell: ({ ts }) => <Moment at={ts} /> },
    {
      title: 'Transaction id',
      cell: ({ transactionId }) => (
        <a class="mono" href={messagePath(id, transactionId)}>
          {transactionId}
        </a>
      ),
    },
    { title: 'Payload', cell: ({ payload }) => <Glimpse text={payload.text} /> },
    {
      title: 'Open',
      bare: true,
      right: true,
      cell: ({ offset }) => {
        const isOpen = open === String(offset);
        return (
          <button
            type="button"
            class="button small"
            aria-expanded={isOpen}
            aria-label={`${isOpen ? 'Close' : 'Open'} the message at offset ${offset}`}
            onClick={() => change({ from, at: isOpen ? null : offset }, { replace: true })}
          >
            {isOpen ? 'Close' : 'Open'}
          </button>
        );
      },
    },
  ];
  return (
    <Card title="Messages" actions={<GoTo start={start} end={end} />}>
      <Shown of={fetched}>
        {({ records }) => {
          const shown = records.slice(0, LIMIT);
          const last = shown[shown.length - 1]?.offset ?? from - 1;
          return (
            <>
              <Table
                caption={`Messages of ${name} by offset`}
                columns={columns}
                rows={shown}
                id={({ offset }) => String(offset)}
                opened={(record) => (open === String(record.offset) ? <Opened record={record} /> : null)}
                empty={
                  <Empty
                    title={end > start ? 'There is nothing from that offset on' : 'The partition is empty'}
                  >
                    {end > start && <p>Its newest message has offset {whole(end - 1)}.</p>}
                  </Empty>
                }
              />
              <nav class="pager" aria-label="Pages of messages">
                <span role="status">
                  {shown.length > 0 && `Offsets ${whole(shown[0]!.offset)} to ${whole(last)}`}
                </span>
                <div class="actions">
                  <Step text="Oldest" off={from <= start} go={() => change({ from: start, at: null })} />
                  <Step
                    text="Older"
                    off={from <= start}
                    go={() => change({ from: Math.max(start, from - LIMIT), at: null })}
                  />
                  <Step text="Newer" off={last + 1 >= end} go={() => change({ from: last + 1, at: null })} />
                  <Step text="Newest" off={follows} go={() => change({ from: null, at: null })} />
                </div>
              </nav>
            </>
          );
        }}
      </Shown>
    </Card>
  );
}

function Opened({ record }: { record: FetchedRecord }) {
  return (
    <div class="opened-row">
      <Copyable text={record.transactionId} what="transaction id" />
      <Payload json={record.payload} />
    </div>
  );
}

function GoTo({ start, end }: { start: number; end: number }) {
  const [, change] = useSearch();
  return (
    <form
      class="actions"
      onSubmit={(event) => {
        event.preventDefault();
        const offset = new FormData(event.currentTarget).get('offset') as string;
        if (offset !== '') change({ from: offset, at: offset });
      }}
    >
      <label for="go-to-offset">Offset</label>
      <input
        id="go-to-offset"
        name="offset"
        type="number"
        min={start}
        max={Math.max(start, end - 1)}
        style={{ width: '120px' }}
      />
      <button type="submit" class="button">
        Go
      </button>
    </form>
  );
}
