/** Queues that messages are scheduled for. */
import { useState } from 'preact/hooks';
import { usePoll } from '../api/poll.ts';
import { listTimerQueues } from '../api/timers.ts';
import { Action } from '../components/action.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { type Column, CursorPager, Table } from '../components/table.tsx';
import { TimerForm } from '../components/timer_form.tsx';
import { toast } from '../components/toasts.tsx';
import { useTrail } from '../components/trail.ts';
import { exact } from '../format.ts';
import { navigate } from '../router.ts';
import { timerPath, timersPath } from './timers.tsx';

const LIMIT = 100;
const COLUMNS: readonly Column<string>[] = [
  { title: 'Queue', key: true, cell: (queue) => <a href={timersPath(queue)}>{queue}</a> },
];

export default function TimerQueuesPage() {
  const { after, trail, onTrail } = useTrail();
  const [adding, setAdding] = useState(false);
  const queues = usePoll(`timer queues ${after}`, (signal) => listTimerQueues(after, LIMIT, signal), {
    everyMs: 10_000,
    keep: true,
  });
  return (
    <Page
      title="Timers"
      lead="Messages that are to be pushed later, each under a key of its queue"
      actions={
        <Action needs="write" primary onClick={() => setAdding(true)}>
          Schedule…
        </Action>
      }
    >
      <Card title="Queues with pending timers">
        <Shown of={queues}>
          {({ queues: rows, nextAfter }) => (
            <>
              <Table
                caption="Queues with pending timers"
                columns={COLUMNS}
                rows={rows}
                id={(queue) => queue}
                empty={
                  <Empty title="No timer is pending">
                    <p>One that has fired is a message in its queue.</p>
                  </Empty>
                }
              />
              <CursorPager nouns="queues" trail={trail} next={nextAfter} onTrail={onTrail} />
            </>
          )}
        </Shown>
      </Card>
      {adding && (
        <TimerForm
          timer={null}
          onClose={() => setAdding(false)}
          onScheduled={({ queue, timerKey }, { deliverAt }) => {
            setAdding(false);
            toast(`Scheduled for ${exact(deliverAt!)}.`);
            navigate(timerPath(queue, timerKey));
          }}
        />
      )}
    </Page>
  );
}
