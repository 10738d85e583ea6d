/** Timers of a queue, by key. */
import { useState } from 'preact/hooks';
import { usePoll } from '../api/poll.ts';
import { listTimers, type Timer } from '../api/timers.ts';
import { Action } from '../components/action.tsx';
import { NameFilter } from '../components/filter.tsx';
import { PartitionLink } from '../components/messages.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { type Column, CursorPager, Table } from '../components/table.tsx';
import { Badge } from '../components/tiles.tsx';
import { Ago, Exact } from '../components/time.tsx';
import { TimerForm } from '../components/timer_form.tsx';
import { toast } from '../components/toasts.tsx';
import { useTrail } from '../components/trail.ts';
import { exact, plural } from '../format.ts';
import { navigate, useSearch } from '../router.ts';
import type { PageParams } from '../routes.ts';

const LIMIT = 50;

export const timersPath = (queue: string) => `/timers/${encodeURIComponent(queue)}`;
export const timerPath = (queue: string, timerKey: string) =>
  `${timersPath(queue)}/timer?key=${encodeURIComponent(timerKey)}`;

export default function TimersPage({ params }: { params: PageParams }) {
  const queue = params.queue!;
  const [search] = useSearch();
  const prefix = search.get('prefix') ?? '';
  const { after, trail, onTrail } = useTrail();
  const [adding, setAdding] = useState(false);
  const timers = usePoll(
    `timers ${JSON.stringify([queue, prefix, after])}`,
    (signal) => listTimers(queue, { prefix, after, limit: LIMIT }, signal),
    { keep: true },
  );
  return (
    <Page
      title={queue}
      crumbs={[['Timers', '/timers']]}
      lead="Messages that are to be pushed into this queue"
      actions={
        <Action needs="write" primary onClick={() => setAdding(true)}>
          Schedule…
        </Action>
      }
    >
      <Card>
        <div class="filters">
          <NameFilter label="Key begins with" name="prefix" placeholder="Any" />
        </div>
        <Shown of={timers}>
          {({ rows, nextAfter }) => (
            <>
              <Table
                caption={`Timers of ${queue}`}
                columns={COLUMNS}
                rows={rows}
                id={({ timerKey }) => timerKey}
                empty={
                  prefix === '' && after === '' ? (
                    <Empty title="No timer is pending for this queue">
                      <p>One that has fired is a message in the queue.</p>
                    </Empty>
                  ) : (
                    <Empty title="No key begins like that">
                      <a href={timersPath(queue)}>Show all of them</a>
                    </Empty>
                  )
                }
              />
              <CursorPager nouns="timers" trail={trail} next={nextAfter} onTrail={onTrail} />
            </>
          )}
        </Shown>
      </Card>
      {adding && (
        <TimerForm
          queue={queue}
          timer={null}
          onClose={() => setAdding(false)}
          onScheduled={({ timerKey }, { deliverAt }) => {
            setAdding(false);
            toast(`Scheduled for ${exact(deliverAt!)}.`);
            navigate(timerPath(queue, timerKey));
          }}
        />
      )}
    </Page>
  );
}

const COLUMNS: readonly Column<Timer>[] = [
  {
    title: 'Key',
    key: true,
    cell: ({ queue, timerKey }) => <a href={timerPath(queue, timerKey)}>{timerKey}</a>,
  },
  {
    title: 'Due',
    tight: true,
    cell: ({ deliverAt }) => (
      <>
        <Exact at={deliverAt} />
        <span class="under">
          <Ago at={deliverAt} />
        </span>
      </>
    ),
  },
  {
    title: 'Partition',
    cell: ({ queue, partition }) => <PartitionLink queue={queue} partition={partition} />,
  },
  { title: 'Transaction id', cell: ({ txn }) => <span class="mono">{txn}</span> },
  { title: 'State', tight: true, cell: (timer) => <TimerState of={timer} /> },
];

export function TimerState({ of: { claimed, attempts } }: { of: Timer }) {
  if (claimed) return <Badge tone="accent">Being fired</Badge>;
  if (attempts > 0) return <Badge tone="warn">Failed {plural(attempts, 'time')}</Badge>;
  return <Badge>Waiting</Badge>;
}
