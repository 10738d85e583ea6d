/** All queues, with what waits in them. */
import { usePoll } from '../api/poll.ts';
import { listQueues, type QueueRow } from '../api/queues.ts';
import { SearchBox, useList } from '../components/list.tsx';
import { deadLettersPath, queuePath } from '../components/messages.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { type Column, PagedTable } from '../components/table.tsx';
import { Ago } from '../components/time.tsx';
import { bytes, whole } from '../format.ts';

const COLUMNS: readonly Column<QueueRow>[] = [
  { title: 'Queue', sort: 'name', key: true, cell: ({ name }) => <a href={queuePath(name)}>{name}</a> },
  {
    title: 'Namespace, task',
    cell: ({ namespace, task }) => [namespace, task].filter((each) => each !== '').join(', '),
  },
  { title: 'Partitions', sort: 'partitions', right: true, cell: ({ partitions }) => whole(partitions) },
  { title: 'Pending', sort: 'pending', right: true, cell: ({ messages }) => whole(messages.pending) },
  {
    title: 'Processing',
    sort: 'processing',
    right: true,
    cell: ({ messages }) => whole(messages.processing),
  },
  {
    title: 'Dead letters',
    sort: 'deadLetter',
    right: true,
    cell: ({ name, messages: { deadLetter } }) =>
      deadLetter === 0 ? '0' : <a href={deadLettersPath(name)}>{whole(deadLetter)}</a>,
  },
  { title: 'Messages', sort: 'total', right: true, cell: ({ messages }) => whole(messages.total) },
  {
    title: 'Retained',
    sort: 'retainedBytes',
    right: true,
    cell: ({ retainedBytes, messages }) =>
      // Counted every ten minutes: until then it is not known.
      retainedBytes === 0 && messages.total > 0 ? '–' : bytes(retainedBytes),
  },
  { title: 'Made', tight: true, cell: ({ createdAt }) => <Ago at={createdAt} /> },
];

export default function QueuesPage() {
  const { sorting, onOffset, ...query } = useList('name');
  const queues = usePoll(`queues ${JSON.stringify(query)}`, (signal) => listQueues(query, signal), {
    keep: true,
  });
  return (
    <Page title="Queues">
      <Card
        title="All queues"
        note="As last counted, some seconds ago"
        actions={<SearchBox label="Search by name" />}
      >
        <Shown of={queues}>
          {({ queues: rows, pagination: { total } }) => (
            <PagedTable
              caption="Queues"
              columns={COLUMNS}
              rows={rows}
              id={({ id }) => id}
              sorting={sorting}
              empty={
                query.search === '' && query.offset === 0 ? (
                  <Empty title="There are no queues yet">
                    <p>A queue is made by the first push to it, or by the first pop from it.</p>
                  </Empty>
                ) : (
                  <Empty title="No queue is like that">
                    <p>No name holds what you search for, or the page is behind the last one.</p>
                  </Empty>
                )
              }
              noun="queue"
              offset={query.offset}
              limit={query.limit}
              total={total}
              onOffset={onOffset}
            />
          )}
        </Shown>
      </Card>
    </Page>
  );
}
