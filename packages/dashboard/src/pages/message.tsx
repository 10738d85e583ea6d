/** One message: what it holds, and what became of it for each group. */
import { getMessage, type MessageDetail, removeDeadLetters, retryMessage } from '../api/messages.ts';
import { usePoll } from '../api/poll.ts';
import { Action } from '../components/action.tsx';
import { Copyable } from '../components/copy.tsx';
import { confirm } from '../components/dialog.tsx';
import { Consumers } from '../components/groups.tsx';
import { partitionName, partitionPath, queuePath, Status } from '../components/messages.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { Payload } from '../components/payload.tsx';
import type { Column } from '../components/table.tsx';
import { Facts } from '../components/tiles.tsx';
import { Ago, Exact } from '../components/time.tsx';
import { toast } from '../components/toasts.tsx';
import { whole } from '../format.ts';
import type { PageParams } from '../routes.ts';

export default function MessagePage({ params }: { params: PageParams }) {
  const partitionId = params.partitionId!;
  const transactionId = params.transactionId!;
  const message = usePoll(`message ${partitionId}/${transactionId}`, (signal) =>
    getMessage(partitionId, transactionId, signal),
  );
  const { data, error } = message;
  const crumbs: [string, string][] =
    data === undefined
      ? [['Messages', '/messages']]
      : [
          ['Queues', '/queues'],
          [data.queue, queuePath(data.queue)],
          [partitionName(data.partition), partitionPath(data.queue, data.partition)],
        ];
  return (
    <Page
      title={transactionId}
      crumbs={crumbs}
      lead={data !== undefined && <Status of={data.status} />}
      actions={data?.status === 'dead_letter' && <DeadLetter of={data} done={message.refresh} />}
    >
      {data === undefined && error?.code === 'message_not_found' ? (
        <Card>
          <Empty title="There is no such message">
            <p>Or its id was forgotten: then it is found by its offset, on the page of its partition.</p>
          </Empty>
        </Card>
      ) : (
        <Shown of={message} rows={6}>
          {(found) => (
            <>
              <About of={found} />
              <Card title="Payload">
                <div class="inside">
                  <Payload json={found.data} />
                </div>
              </Card>
              <Consumers
                caption="What each group has done with it"
                columns={CONSUMERS}
                rows={found.consumerGroups}
              />
            </>
          )}
        </Shown>
      )}
    </Page>
  );
}

function About({ of }: { of: MessageDetail }) {
  return (
    <Card>
      <div class="inside">
        <Facts
          of={[
            ['Transaction id', <Copyable key="" text={of.transactionId} what="transaction id" />],
            ['Message id', <Copyable key="" text={of.id} what="message id" />],
            [
              'Offset',
              <a key="" href={`${partitionPath(of.queue, of.partition)}?from=${of.offset}&at=${of.offset}`}>
                {whole(of.offset)}
              </a>,
            ],
            ['Stored', <Exact key="" at={of.createdAt} />],
            ['Producer', of.producerSub ?? '–'],
            ['Trace id', of.traceId === null ? '–' : <Copyable key="" text={of.traceId} what="trace id" />],
            ['Encrypted at rest', of.isEncrypted ? 'yes' : 'no'],
            ...(of.errorMessage === null && of.retryCount === 0
              ? []
              : ([
                  ['Failed', of.errorMessage ?? 'without a reason'],
                  ['Retries', String(of.retryCount)],
                ] as const)),
          ]}
        />
      </div>
    </Card>
  );
}

const CONSUMERS: readonly Column<MessageDetail['consumerGroups'][number]>[] = [
  { title: 'Status', tight: true, cell: ({ status }) => <Status of={status} /> },
  {
    title: 'Lease ends',
    cell: ({ leaseExpiresAt }) => (leaseExpiresAt === null ? '' : <Ago at={leaseExpiresAt} />),
  },
];

function DeadLetter({ of, done }: { of: MessageDetail; done: () => void }) {
  const replay = async () => {
    const { partitionId, transactionId } = of;
    let result = '';
    const yes = await confirm({
      title: 'Replay this message?',
      body: <p>It is pushed again at the end of its partition, where every group gets it.</p>,
      action: 'Replay',
      run: async () => {
        ({ result } = await retryMessage(partitionId, transactionId));
      },
    });
    if (!yes) return;
    if (result === 'moved') toast('The message is at the end of its partition again.');
    else toast('It was replayed before; its dead letter is kept.', 'bad');
    done();
  };
  const forget = async () => {
    const yes = await confirm({
      title: 'Remove its dead letters?',
      body: <p>The message is given up for good. The log itself is not changed.</p>,
      action: 'Remove',
      danger: true,
      run: () => removeDeadLetters(of.partitionId, of.transactionId),
    });
    if (!yes) return;
    toast('Its dead letters are removed.');
    done();
  };
  return (
    <>
      <Action needs="write" primary onClick={() => void replay()}>
        Replay…
      </Action>
      <Action needs="write" danger onClick={() => void forget()}>
        Remove…
      </Action>
    </>
  );
}
