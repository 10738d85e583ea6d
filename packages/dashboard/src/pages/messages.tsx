/** Messages: the newest of them, narrowed; and one that is looked for by its id or its offset. */
import { useState } from 'preact/hooks';
import { ApiError } from '../api/client.ts';
import { type FoundMessage, findMessages, listMessages, type MessageRow } from '../api/messages.ts';
import { usePoll } from '../api/poll.ts';
import { listQueues } from '../api/queues.ts';
import { useOffset } from '../components/list.tsx';
import {
  Glimpse,
  messagePath,
  PartitionLink,
  partitionName,
  partitionPath,
  queuePath,
  Status,
} from '../components/messages.tsx';
import { Card, Empty, ErrorNote, Page, Shown } from '../components/page.tsx';
import { type Column, PagedTable, Table } from '../components/table.tsx';
import { Badge } from '../components/tiles.tsx';
import { Ago, Moment } from '../components/time.tsx';
import { whole } from '../format.ts';
import { navigate, useSearch } from '../router.ts';

const LIMIT = 50;

/** Hours back; the broker looks an hour back unless it is told. */
const BACK: readonly (readonly [string, string])[] = [
  ['1', 'Last hour'],
  ['24', 'Last day'],
  ['168', 'Last 7 days'],
  ['720', 'Last 30 days'],
];

export default function MessagesPage() {
  return (
    <Page title="Messages">
      <QueueNames />
      <div class="columns">
        <FindById />
        <FindByOffset />
      </div>
      <Newest />
    </Page>
  );
}

/** What the fields for a queue's name suggest. */
function QueueNames() {
  const query = { limit: 100, offset: 0 };
  const { data } = usePoll('queue-names', (signal) => listQueues(query, signal), { everyMs: 0 });
  return (
    <datalist id="queue-names">
      {data?.queues.map(({ id, name }) => (
        <option key={id} value={name} />
      ))}
    </datalist>
  );
}

function FindById() {
  const [search] = useSearch();
  const [found, setFound] = useState<FoundMessage[]>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);

  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget as HTMLFormElement);
    const transactionId = String(fields.get('transactionId'));
    if (transactionId === '' || busy) return;
    setBusy(true);
    setError(undefined);
    try {
      const signal = AbortSignal.timeout(60_000);
      const { messages } = await findMessages(transactionId, String(fields.get('queue')), signal);
      setFound(messages);
      if (messages.length === 1) navigate(messagePath(messages[0]!.partitionId, transactionId));
    } catch (failure) {
      setError(
        failure instanceof ApiError ? failure : new ApiError(0, '', 'It takes too long. Name the queue.'),
      );
    } finally {
      setBusy(false);
    }
  };

  return (
    <Card title="Find by transaction id">
      <form class="filters" onSubmit={submit}>
        <label class="field">
          Transaction id
          <input name="transactionId" required spellcheck={false} autocomplete="off" />
        </label>
        <label class="field">
          Queue
          <input
            name="queue"
            list="queue-names"
            placeholder="any"
            defaultValue={search.get('queue') ?? ''}
            spellcheck={false}
          />
        </label>
        <div class="actions">
          <button type="submit" class="button primary" disabled={busy}>
            {busy ? 'Looking…' : 'Find'}
          </button>
        </div>
      </form>
      {error !== undefined && <ErrorNote error={error} />}
      {found !== undefined && <Found messages={found} />}
    </Card>
  );
}

const FOUND: readonly Column<FoundMessage>[] = [
  {
    title: 'Partition',
    key: true,
    cell: ({ partitionId, transactionId, queue, partition }) => (
      <a href={messagePath(partitionId, transactionId)}>
        {queue} / {partitionName(partition)}
      </a>
    ),
  },
  { title: 'Offset', right: true, cell: ({ offset }) => whole(offset) },
  { title: 'Stored', tight: true, cell: ({ createdAt }) => <Ago at={createdAt} /> },
  { title: '', bare: true, cell: ({ deadLetter }) => deadLetter && <Badge tone="bad">Dead letter</Badge> },
];

function Found({ messages }: { messages: FoundMessage[] }) {
  return (
    <div role="status">
      <Table
        caption="Messages with this transaction id"
        columns={FOUND}
        rows={messages}
        id={({ partitionId, offset }) => `${partitionId}/${offset}`}
        empty={
          <Empty title="No message has this id">
            <p>
              Ids are known as long as deduplication or an ack may need them. An older message is found by its
              offset.
            </p>
          </Empty>
        }
      />
    </div>
  );
}

function FindByOffset() {
  const [search] = useSearch();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget as HTMLFormElement);
    const [queue, partition, offset] = ['queue', 'partition', 'offset'].map((name) =>
      String(fields.get(name)),
    );
    navigate(`${partitionPath(queue!, partition!)}?from=${offset}&at=${offset}`);
  };
  return (
    <Card title="Find by offset">
      <form class="filters" onSubmit={submit}>
        <label class="field">
          Queue
          <input
            name="queue"
            list="queue-names"
            required
            defaultValue={search.get('queue') ?? ''}
            spellcheck={false}
          />
        </label>
        <label class="field">
          Partition
          <input
            name="partition"
            required
            defaultValue={search.get('partition') ?? 'Default'}
            spellcheck={false}
          />
        </label>
        <label class="field">
          Offset
          <input name="offset" type="number" min="0" required />
        </label>
        <div class="actions">
          <button type="submit" class="button primary">
            Go
          </button>
        </div>
      </form>
    </Card>
  );
}

const COLUMNS: readonly Column<MessageRow>[] = [
  {
    title: 'Transaction id',
    key: true,
    wide: true,
    cell: ({ partitionId, transactionId, error }) =>
      transactionId === null ? (
        <Badge tone="bad">{error}</Badge>
      ) : (
        <a class="mono" href={messagePath(partitionId, transactionId)}>
          {transactionId}
        </a>
      ),
  },
  { title: 'Stored', tight: true, cell: ({ createdAt }) => <Moment at={createdAt} /> },
  { title: 'Queue', name: true, cell: ({ queue }) => <a href={queuePath(queue)}>{queue}</a> },
  {
    title: 'Partition',
    name: true,
    cell: ({ queue, partition }) => <PartitionLink queue={queue} partition={partition} />,
  },
  { title: 'Offset', right: true, cell: ({ offset }) => whole(offset) },
  { title: 'Status', tight: true, cell: ({ status }) => <Status of={status} /> },
  {
    title: 'Groups',
    right: true,
    cell: ({ busStatus: { consumedBy, totalGroups } }) =>
      totalGroups === 0 ? '–' : `${consumedBy} of ${totalGroups}`,
  },
  { title: 'Payload', cell: ({ data }) => <Glimpse text={data.text} /> },
];

function Newest() {
  const [search, change] = useSearch();
  const value = (name: string) => search.get(name) ?? '';
  const back = BACK.find(([hours]) => hours === value('back'))?.[0] ?? '1';
  const [offset, onOffset] = useOffset();
  const filters = { queue: value('queue'), partition: value('partition'), status: value('status') };
  const key = JSON.stringify({ ...filters, back, offset });
  const messages = usePoll(
    `messages ${key}`,
    (signal) => {
      const from = new Date(Date.now() - Number(back) * 3_600_000).toISOString();
      return listMessages({ ...filters, from, limit: LIMIT, offset }, signal);
    },
    { keep: true },
  );
  const narrowed = Object.values(filters).some((each) => each !== '');
  return (
    <Card title="Newest messages">
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          const fields = new FormData(event.currentTarget);
          change({
            queue: String(fields.get('queue')),
            partition: String(fields.get('partition')),
            offset: null,
          });
        }}
      >
        <label class="field">
          Queue
          <input
            key={filters.queue}
            name="queue"
            list="queue-names"
            placeholder="any"
            defaultValue={filters.queue}
            spellcheck={false}
          />
        </label>
        <label class="field">
          Partition
          <input
            key={filters.partition}
            name="partition"
            placeholder="any"
            defaultValue={filters.partition}
            spellcheck={false}
          />
        </label>
        <label class="field">
          Status
          <select
            value={filters.status}
            onChange={(event) => change({ status: event.currentTarget.value, offset: null })}
          >
            <option value="">any</option>
            <option value="pending">Pending</option>
            <option value="processing">Processing</option>
            <option value="completed">Completed</option>
            <option value="dead_letter">Dead letter</option>
          </select>
        </label>
        <label class="field">
          Stored
          <select
            value={back}
            onChange={({ currentTarget }) =>
              change({ back: currentTarget.value === '1' ? null : currentTarget.value, offset: null })
            }
          >
            {BACK.map(([hours, text]) => (
              <option key={hours} value={hours}>
                {text}
              </option>
            ))}
          </select>
        </label>
        <div class="actions">
          <button type="submit" class="button">
            Show
          </button>
        </div>
      </form>
      <Shown of={messages}>
        {({ messages: rows }) => (
          <PagedTable
            caption="Newest messages"
            columns={COLUMNS}
            rows={rows}
            id={({ partitionId, offset: at }) => `${partitionId}/${at}`}
            empty={
              <Empty title={narrowed ? 'No message is like that' : 'No messages in this time'}>
                <p>Look further back, or narrow less.</p>
              </Empty>
            }
            noun="message"
            offset={offset}
            limit={LIMIT}
            total={null}
            onOffset={onOffset}
          />
        )}
      </Shown>
    </Card>
  );
}
