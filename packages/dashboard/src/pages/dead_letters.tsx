/** What could not be processed: found by queue and group, looked at, pushed again, removed. */
import { useState } from 'preact/hooks';
import { type DeadLetter, getReasons, listDeadLetters, purge, type Reasons } from '../api/dead_letters.ts';
import { removeDeadLetters } from '../api/messages.ts';
import { usePoll } from '../api/poll.ts';
import { Action } from '../components/action.tsx';
import { confirm } from '../components/dialog.tsx';
import { NameFilter } from '../components/filter.tsx';
import { useOffset } from '../components/list.tsx';
import { Group, PartitionLink, queuePath } from '../components/messages.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { ReplayDialog, type ReplayOf } from '../components/replay.tsx';
import { type Column, PagedTable, Table } from '../components/table.tsx';
import { Ago } from '../components/time.tsx';
import { toast } from '../components/toasts.tsx';
import { plural, whole } from '../format.ts';
import { useSearch } from '../router.ts';

const LIMIT = 50;
/** So many of the newest are compared. */
const COMPARED = 1_000;
const REASONS = 8;

export default function DeadLettersPage() {
  const [search] = useSearch();
  const queue = search.get('queue');
  const group = search.get('group');
  const [offset, onOffset] = useOffset();
  const filter = { queue, consumerGroup: group };
  const key = JSON.stringify([queue, group, offset]);
  const list = usePoll(
    `dead letters ${key}`,
    (signal) => listDeadLetters(filter, { limit: LIMIT, offset }, signal),
    {
      keep: true,
    },
  );
  const [chosen, setChosen] = useState<readonly DeadLetter[]>([]);
  const [replaying, setReplaying] = useState<ReplayOf>();
  const rows = list.data?.messages ?? [];
  // What is not on the page any more is not chosen any more.
  const selected = rows.filter(({ id }) => chosen.some((each) => each.id === id));
  const total = list.data?.total ?? 0;

  const changed = () => {
    setChosen([]);
    list.refresh();
  };
  const choose = (letter: DeadLetter, yes: boolean) =>
    setChosen(yes ? [...selected, letter] : selected.filter(({ id }) => id !== letter.id));

  return (
    <Page
      title="Dead letters"
      lead="Messages that failed for good, or that a consumer gave up. Nothing removes them but you."
    >
      <Card>
        <div class="filters">
          <NameFilter label="Queue" name="queue" offered={names(rows, 'queue')} placeholder="Any" />
          <NameFilter
            label="Consumer group"
            name="group"
            offered={names(rows, 'consumerGroup')}
            placeholder="Any"
          />
        </div>
        <Bulk selected={selected} total={total} filter={filter} onReplay={setReplaying} onChanged={changed} />
        <Shown of={list}>
          {({ messages }) => (
            <PagedTable
              caption="Dead letters"
              columns={columns(selected, rows, choose, setChosen)}
              rows={messages}
              id={({ id }) => id}
              empty={<Nothing filtered={queue !== null || group !== null || offset > 0} />}
              noun="dead letter"
              offset={offset}
              limit={LIMIT}
              total={total}
              onOffset={onOffset}
            />
          )}
        </Shown>
      </Card>
      {queue !== null && total > 0 && <Why queue={queue} />}
      {replaying !== undefined && (
        <ReplayDialog
          of={replaying}
          onClose={(moved) => {
            setReplaying(undefined);
            if (moved) changed();
          }}
        />
      )}
    </Page>
  );
}

function names(rows: readonly DeadLetter[], of: 'queue' | 'consumerGroup'): string[] {
  return [...new Set(rows.map((row) => row[of]))].sort();
}

function Nothing({ filtered }: { filtered: boolean }) {
  if (!filtered) {
    return (
      <Empty title="There are no dead letters">
        <p>
          A message lands here when it has failed more often than its queue forgives, or is acked with “dlq”.
        </p>
      </Empty>
    );
  }
  return (
    <Empty title="No dead letter is like that">
      <p>Names are compared as a whole.</p>
      <a href="/dlq">Show all of them</a>
    </Empty>
  );
}

function columns(
  selected: readonly DeadLetter[],
  rows: readonly DeadLetter[],
  choose: (letter: DeadLetter, yes: boolean) => void,
  setAll: (letters: readonly DeadLetter[]) => void,
): Column<DeadLetter>[] {
  const all = rows.length > 0 && selected.length === rows.length;
  return [
    {
      title: 'Chosen',
      bare: true,
      head: (
        <input
          type="checkbox"
          aria-label="Choose all on this page"
          checked={all}
          onChange={() => setAll(all ? [] : rows)}
        />
      ),
      cell: (letter) => (
        <input
          type="checkbox"
          aria-label={`Choose ${letter.transactionId}`}
          checked={selected.some(({ id }) => id === letter.id)}
          onChange={(event) => choose(letter, event.currentTarget.checked)}
        />
      ),
    },
    {
      title: 'Message',
      key: true,
      wide: true,
      cell: ({ id, transactionId }) => (
        <a class="mono" href={`/dlq/${id}`}>
          {transactionId}
        </a>
      ),
    },
    {
      title: 'Queue',
      cell: ({ queue, partition }) => (
        <span class="roomy">
          <a href={queuePath(queue)}>{queue}</a>
          <span class="under">
            <PartitionLink queue={queue} partition={partition} />
          </span>
        </span>
      ),
    },
    {
      title: 'Group',
      cell: ({ consumerGroup }) => (
        <span class="roomy">
          <Group name={consumerGroup} />
        </span>
      ),
    },
    {
      title: 'Error',
      prose: true,
      cell: ({ errorMessage }) =>
        errorMessage === null || errorMessage === '' ? (
          <span class="muted">none given</span>
        ) : (
          <span class="clipped">{errorMessage}</span>
        ),
    },
    { title: 'Failed', tight: true, cell: ({ failedAt }) => <Ago at={failedAt} /> },
  ];
}

interface BulkProps {
  selected: readonly DeadLetter[];
  total: number;
  filter: { queue: string | null; consumerGroup: string | null };
  onReplay: (of: ReplayOf) => void;
  onChanged: () => void;
}

/** What can be done to the chosen ones; to all that the filter lets through while none is chosen. */
function Bulk({ selected, total, filter, onReplay, onChanged }: BulkProps) {
  if (total === 0) return null;
  const { queue, consumerGroup } = filter;
  if (selected.length > 0) {
    return (
      <div class="bulk">
        <span role="status">{whole(selected.length)} chosen</span>
        <Action needs="write" small onClick={() => onReplay({ kind: 'some', letters: selected })}>
          Replay…
        </Action>
        <Action needs="write" small danger onClick={() => void removeChosen(selected, onChanged)}>
          Delete…
        </Action>
      </div>
    );
  }
  return (
    <div class="bulk">
      <span role="status">{plural(total, 'dead letter')}</span>
      <Action needs="write" small onClick={() => onReplay({ kind: 'matching', filter, total })}>
        Replay all…
      </Action>
      {queue !== null && (
        <Action
          needs="admin"
          small
          danger
          onClick={() => void removeAll(queue, consumerGroup, total, onChanged)}
        >
          Delete all…
        </Action>
      )}
    </div>
  );
}

async function removeChosen(letters: readonly DeadLetter[], onChanged: () => void): Promise<void> {
  const messages = [
    ...new Map(letters.map((each) => [`${each.partitionId} ${each.transactionId}`, each])).values(),
  ];
  const yes = await confirm({
    title: `Delete the dead letters of ${plural(messages.length, 'message')}?`,
    body: (
      <>
        <p>
          Their payloads and errors are gone for good, for every consumer group that failed on these messages:
        </p>
        <ul class="names">
          {messages.slice(0, 10).map(({ id, transactionId, queue }) => (
            <li key={id}>
              <code>{transactionId}</code> of {queue}
            </li>
          ))}
          {messages.length > 10 && <li>and {whole(messages.length - 10)} more</li>}
        </ul>
      </>
    ),
    action: 'Delete',
    danger: true,
    run: async () => {
      for (const { partitionId, transactionId } of messages)
        await removeDeadLetters(partitionId, transactionId);
    },
  });
  if (yes) toast(`Deleted the dead letters of ${plural(messages.length, 'message')}.`);
  onChanged();
}

async function removeAll(
  queue: string,
  group: string | null,
  total: number,
  onChanged: () => void,
): Promise<void> {
  const of = group === null ? 'of every group' : `of the group ${group}`;
  let deleted = 0;
  const yes = await confirm({
    title: `Delete all dead letters of ${queue}?`,
    body: (
      <p>
        All {whole(total)} of the queue <strong>{queue}</strong>, {of}, with their payloads and errors, and
        those that fail until you confirm. Nothing brings them back.
      </p>
    ),
    action: 'Delete all',
    danger: true,
    typed: queue,
    run: async () => {
      deleted = (await purge(queue, group)).deleted;
    },
  });
  if (yes) toast(`Deleted ${plural(deleted, 'dead letter')} of ${queue}.`);
  onChanged();
}

function Why({ queue }: { queue: string }) {
  const reasons = usePoll(`reasons ${queue}`, (signal) => getReasons(queue, COMPARED, signal), {
    everyMs: 30_000,
  });
  return (
    <Card
      title="What went wrong"
      note={`Errors in ${queue} that are alike, among the newest ${whole(COMPARED)}`}
    >
      <Shown of={reasons}>
        {({ signatures }) => (
          <Table
            caption={`Errors in ${queue}`}
            columns={REASON_COLUMNS}
            rows={signatures.slice(0, REASONS)}
            id={({ text }) => text}
            empty={<Empty title="No errors were given" />}
          />
        )}
      </Shown>
    </Card>
  );
}

const REASON_COLUMNS: readonly Column<Reasons['signatures'][number]>[] = [
  {
    title: 'Error',
    key: true,
    cell: ({ text }) => <span class="mono">{text === '' ? '(none given)' : text}</span>,
  },
  { title: 'Dead letters', right: true, cell: ({ n }) => whole(n) },
  {
    title: 'Share',
    cell: ({ share }) => (
      <span class="meter-line">
        <span class="meter" aria-hidden="true">
          <span style={{ width: `${share * 100}%` }} />
        </span>
        {Math.round(share * 1000) / 10}%
      </span>
    ),
  },
];
