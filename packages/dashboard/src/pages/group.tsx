/** One consumer group on all its queues. */
import { listGroups } from '../api/groups.ts';
import { usePoll } from '../api/poll.ts';
import { Action } from '../components/action.tsx';
import { destroyGroup, GROUP_QUEUE_COLUMNS } from '../components/groups.tsx';
import { SearchBox, useList } from '../components/list.tsx';
import { groupName } from '../components/messages.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { PagedTable } from '../components/table.tsx';
import { navigate } from '../router.ts';
import type { PageParams } from '../routes.ts';

const EVERY_MS = 10_000;

export default function GroupPage({ params }: { params: PageParams }) {
  const group = params.group!;
  const { sorting, onOffset, ...query } = useList('name');
  const groups = usePoll(
    `group ${group} ${JSON.stringify(query)}`,
    (signal) => listGroups({ ...query, group }, signal),
    { everyMs: EVERY_MS, keep: true },
  );
  const destroy = async () => {
    if (await destroyGroup(group, null)) navigate('/groups');
  };
  return (
    <Page
      title={groupName(group)}
      crumbs={[['Consumer groups', '/groups']]}
      lead="Consumer group"
      actions={
        <Action needs="admin" danger onClick={() => void destroy()}>
          Delete the group…
        </Action>
      }
    >
      <Card title="Queues" note="Counted now" actions={<SearchBox label="Search by queue" />}>
        <Shown of={groups}>
          {({ groups: rows, pagination: { total } }) => (
            <PagedTable
              caption={`Queues of ${groupName(group)}`}
              columns={GROUP_QUEUE_COLUMNS}
              rows={rows}
              id={({ queueName }) => queueName}
              sorting={sorting}
              empty={
                query.search === '' ? (
                  <Empty title="Nobody knows this group">
                    <p>It has not popped yet, or was deleted.</p>
                  </Empty>
                ) : (
                  <Empty title="No queue is like that" />
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
