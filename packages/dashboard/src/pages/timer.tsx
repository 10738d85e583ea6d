/** One timer: when it fires, and what it pushes. */
import { useState } from 'preact/hooks';
import { ApiError } from '../api/client.ts';
import { RawJson } from '../api/json_text.ts';
import { usePoll } from '../api/poll.ts';
import { cancel, getTimer, payloadText, type Timer } from '../api/timers.ts';
import { Action } from '../components/action.tsx';
import { Copyable } from '../components/copy.tsx';
import { confirm } from '../components/dialog.tsx';
import { PartitionLink, queuePath } from '../components/messages.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { Payload } from '../components/payload.tsx';
import { Facts } from '../components/tiles.tsx';
import { Exact, ExactAgo } from '../components/time.tsx';
import { TimerForm } from '../components/timer_form.tsx';
import { toast } from '../components/toasts.tsx';
import { exact } from '../format.ts';
import { navigate, useSearch } from '../router.ts';
import type { PageParams } from '../routes.ts';
import { TimerState, timersPath } from './timers.tsx';

type Whole = Timer & { payload: string };

export default function TimerPage({ params }: { params: PageParams }) {
  const queue = params.queue!;
  const [search] = useSearch();
  const timerKey = search.get('key') ?? '';
  const timer = usePoll(`timer ${JSON.stringify([queue, timerKey])}`, (signal) =>
    getTimer(queue, timerKey, signal),
  );
  const [replacing, setReplacing] = useState<Whole>();
  const found = timer.data ?? null;
  return (
    <Page
      title={timerKey}
      crumbs={[
        ['Timers', '/timers'],
        [queue, timersPath(queue)],
      ]}
      lead={found !== null && <TimerState of={found} />}
      actions={
        found !== null && (
          <>
            <Action needs="write" primary onClick={() => setReplacing(found)}>
              Reschedule…
            </Action>
            <Action needs="write" danger onClick={() => void takeBack(found)}>
              Cancel the timer…
            </Action>
          </>
        )
      }
    >
      <Shown of={timer}>
        {(data) =>
          data === null ? (
            <Card>
              <Empty title="Nothing is pending under this key">
                <p>It has fired and is a message in its queue, was cancelled, or was never scheduled.</p>
                <a href={queuePath(queue)}>Look into the queue</a>
              </Empty>
            </Card>
          ) : (
            <Content timer={data} />
          )
        }
      </Shown>
      {replacing !== undefined && (
        <TimerForm
          timer={replacing}
          onClose={() => setReplacing(undefined)}
          onScheduled={(_, { status, deliverAt }) => {
            setReplacing(undefined);
            if (status === 'too_late') toast('It is being fired just now, so nothing was changed.', 'bad');
            else if (status === 'scheduled')
              toast(`The former one had fired; scheduled anew for ${exact(deliverAt!)}.`);
            else toast(`Rescheduled for ${exact(deliverAt!)}.`);
            timer.refresh();
          }}
        />
      )}
    </Page>
  );
}

function Content({ timer }: { timer: Whole }) {
  const { queue, partition, deliverAt, txn, messageId, producerSub, createdAt, updatedAt, lastError } = timer;
  const text = payloadText(timer);
  return (
    <>
      <Card>
        <div class="inside">
          <Facts
            of={[
              ['Due', <ExactAgo key="" at={deliverAt} />],
              [
                'Queue',
                <a key="" href={queuePath(queue)}>
                  {queue}
                </a>,
              ],
              ['Partition', <PartitionLink key="" queue={queue} partition={partition} />],
              ['Transaction id', <Copyable key="" text={txn} what="transaction id" />],
              ['Message id', <Copyable key="" text={messageId} what="message id" />],
              ['Scheduled', <Exact key="" at={createdAt} />],
              ['Changed', <Exact key="" at={updatedAt} />],
              ['Producer', producerSub ?? '–'],
            ]}
          />
        </div>
      </Card>
      {lastError !== null && (
        <Card title="Last error" note="It is tried five times, then it is a dead letter">
          <div class="inside">
            <pre class="error-text">{lastError}</pre>
          </div>
        </Card>
      )}
      <Card title="Payload">
        <div class="inside">
          {text === null ? (
            <p class="muted">
              It is stored {timer.encrypted ? 'encrypted' : 'compressed'}, and shown once it is a message.
            </p>
          ) : (
            <Payload json={new RawJson(text)} />
          )}
        </div>
      </Card>
    </>
  );
}

async function takeBack({ queue, timerKey, deliverAt }: Timer): Promise<void> {
  const yes = await confirm({
    title: `Cancel the timer ${timerKey}?`,
    body: (
      <p>
        The message that <strong>{queue}</strong> would get at {exact(deliverAt)} is never pushed, and its
        payload is gone.
      </p>
    ),
    action: 'Cancel the timer',
    danger: true,
    run: async () => {
      const { status } = await cancel(queue, timerKey);
      if (status === 'cancelled') return;
      const why = status === 'too_late' ? 'It is being fired just now.' : 'It is not pending any more.';
      throw new ApiError(409, status, why);
    },
  });
  if (!yes) return;
  toast(`Cancelled ${timerKey}.`);
  navigate(timersPath(queue));
}
