/** One dead letter: where it failed, why, and what was in it. */
import { useState } from 'preact/hooks';
import { type DeadLetter, getDeadLetter } from '../api/dead_letters.ts';
import { removeDeadLetters } from '../api/messages.ts';
import { usePoll } from '../api/poll.ts';
import { Action } from '../components/action.tsx';
import { Copyable } from '../components/copy.tsx';
import { confirm } from '../components/dialog.tsx';
import { deadLettersPath, Group, messagePath, PartitionLink, queuePath } from '../components/messages.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { Payload } from '../components/payload.tsx';
import { ReplayDialog } from '../components/replay.tsx';
import { Badge, Facts } from '../components/tiles.tsx';
import { Exact } from '../components/time.tsx';
import { toast } from '../components/toasts.tsx';
import { whole } from '../format.ts';
import { navigate } from '../router.ts';
import type { PageParams } from '../routes.ts';

export default function DeadLetterPage({ params }: { params: PageParams }) {
  const id = params.id!;
  const letter = usePoll(`dead letter ${id}`, (signal) => getDeadLetter(id, signal), { everyMs: 0 });
  const [replaying, setReplaying] = useState(false);
  const gone = letter.error?.status === 404;
  const { data } = letter;
  return (
    <Page
      title={data === undefined ? 'Dead letter' : data.transactionId}
      crumbs={[['Dead letters', '/dlq']]}
      lead={data !== undefined && <Badge tone="bad">Dead letter</Badge>}
      actions={
        data !== undefined &&
        !gone && (
          <>
            <Action needs="write" primary onClick={() => setReplaying(true)}>
              Replay…
            </Action>
            <Action needs="write" danger onClick={() => void destroy(data)}>
              Delete…
            </Action>
          </>
        )
      }
    >
      {gone ? (
        <Card>
          <Empty title="This dead letter is gone">
            <p>It was pushed again, or deleted.</p>
            <a href="/dlq">Look at the others</a>
          </Empty>
        </Card>
      ) : (
        <Shown of={letter}>{(each) => <Content letter={each} />}</Shown>
      )}
      {replaying && data !== undefined && (
        <ReplayDialog
          of={{ kind: 'some', letters: [data] }}
          onClose={(moved) => {
            setReplaying(false);
            if (moved) navigate(deadLettersPath(data.queue));
          }}
        />
      )}
    </Page>
  );
}

function Content({ letter }: { letter: DeadLetter }) {
  const { queue, partition, consumerGroup, errorMessage, failedAt, retryCount, data } = letter;
  return (
    <>
      <Card>
        <div class="inside">
          <Facts
            of={[
              [
                'Queue',
                <a key="" href={queuePath(queue)}>
                  {queue}
                </a>,
              ],
              ['Partition', <PartitionLink key="" queue={queue} partition={partition} />],
              ['Consumer group', <Group key="" name={consumerGroup} />],
              ['Failed', <Exact key="" at={failedAt} />],
              ['Failures forgiven before', whole(retryCount)],
              [
                'Message',
                <a key="" href={messagePath(letter.partitionId, letter.transactionId)}>
                  What became of it for each group
                </a>,
              ],
              ['Transaction id', <Copyable key="" text={letter.transactionId} what="transaction id" />],
              ['Id of the dead letter', <Copyable key="" text={letter.id} what="id of the dead letter" />],
            ]}
          />
        </div>
      </Card>
      <Card title="Error">
        <div class="inside">
          {errorMessage === null || errorMessage === '' ? (
            <p class="muted">The consumer gave none.</p>
          ) : (
            <pre class="error-text" tabIndex={0} role="group" aria-label="error">
              {errorMessage}
            </pre>
          )}
        </div>
      </Card>
      <Card
        title="Payload"
        note={letter.isEncrypted === true ? 'Stored encrypted, shown decrypted' : undefined}
      >
        <div class="inside">
          <Payload json={data} />
        </div>
      </Card>
    </>
  );
}

async function destroy(letter: DeadLetter): Promise<void> {
  const yes = await confirm({
    title: 'Delete this dead letter?',
    body: (
      <p>
        The dead letters of message <code>{letter.transactionId}</code> of {letter.queue} are gone for good,
        with payload and error, for every consumer group that failed on it.
      </p>
    ),
    action: 'Delete',
    danger: true,
    run: () => removeDeadLetters(letter.partitionId, letter.transactionId),
  });
  if (!yes) return;
  toast(`Deleted the dead letters of ${letter.transactionId}.`);
  navigate('/dlq');
}
