/** All consumer groups, with their lag. */
import { listGroups } from '../api/groups.ts';
import { usePoll } from '../api/poll.ts';
import { GROUP_COLUMNS } from '../components/groups.tsx';
import { SearchBox, useList } from '../components/list.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { PagedTable } from '../components/table.tsx';

/** All of their cursors are counted for it. */
const EVERY_MS = 10_000;

export default function GroupsPage() {
  const { sorting, onOffset, ...query } = useList('name');
  const groups = usePoll(`groups ${JSON.stringify(query)}`, (signal) => listGroups(query, signal), {
    everyMs: EVERY_MS,
    keep: true,
  });
  return (
    <Page title="Consumer groups">
      <Card
        title="Groups by queue"
        note="Counted now, in messages that are stored"
        actions={<SearchBox label="Search by group or queue" />}
      >
        <Shown of={groups}>
          {({ groups: rows, pagination: { total } }) => (
            <PagedTable
              caption="Consumer groups"
              columns={GROUP_COLUMNS}
              rows={rows}
              id={({ name, queueName }) => `${name}\n${queueName}`}
              sorting={sorting}
              empty={
                query.search === '' && query.offset === 0 ? (
                  <Empty title="There are no consumer groups yet">
                    <p>A group is made by its first pop.</p>
                  </Empty>
                ) : (
                  <Empty title="No group is like that">
                    <a href="/groups">Show all of them</a>
                  </Empty>
                )
              }
              noun="group on a queue"
              nouns="groups on queues"
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
