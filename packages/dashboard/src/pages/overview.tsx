/** How the broker fares: what runs through it, what waits, and what needs somebody. */
import {
  getHealth,
  getOverview,
  getWorkload,
  type Health,
  type Overview,
  type Workload,
  type WorkloadRow,
} from '../api/overview.ts';
import { usePoll } from '../api/poll.ts';
import { queuePath } from '../components/messages.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { RangeChoice, useRange } from '../components/range.tsx';
import { type Column, Table } from '../components/table.tsx';
import { Tile, Tiles, toneOfWait } from '../components/tiles.tsx';
import { Traffic } from '../components/traffic.tsx';
import { bytes, compact, duration, plural, rate, whole } from '../format.ts';

const BUSIEST = 10;

export default function OverviewPage() {
  const range = useRange();
  const overview = usePoll('overview', getOverview);
  const workload = usePoll(`workload ${range.name}`, (signal) => getWorkload(range.from(), BUSIEST, signal), {
    keep: true,
  });
  const health = usePoll('health', getHealth);
  return (
    <Page title="Overview" actions={<RangeChoice />}>
      {health.data !== undefined && <Notices health={health.data} />}
      <Shown of={overview}>{(data) => <Totals overview={data} />}</Shown>
      <Shown of={workload}>
        {(data) => (
          <>
            <Traffic
              note="Messages a second, all queues"
              bars={data}
              counts={{ Stored: data.tenant.series.push, Delivered: data.tenant.series.pop }}
              avgLagMs={data.tenant.series.avgLagMs}
              maxLagMs={data.tenant.series.maxLagMs}
            />
            <Busiest workload={data} />
          </>
        )}
      </Shown>
    </Page>
  );
}

/** What an operator should know before anything else. */
function Notices({ health }: { health: Health }) {
  const { database, maintenance, spool } = health;
  const notices: { tone: 'bad' | 'warn'; text: string }[] = [];
  if (database === 'disconnected') {
    notices.push({ tone: 'bad', text: 'The database does not answer. Pushes wait on this broker’s disk.' });
  }
  if (maintenance.push) notices.push({ tone: 'warn', text: 'Pushes are paused: they wait on disk.' });
  if (maintenance.pop) notices.push({ tone: 'warn', text: 'Pops are paused: consumers get nothing.' });
  if (spool !== null && spool.pending > 0) {
    const rest = spool.draining ? ', and are being stored' : '';
    notices.push({
      tone: 'warn',
      text: `${plural(spool.pending, 'message')} on this broker’s disk wait for the database${rest}.`,
    });
  }
  if (spool !== null && spool.failed > 0) {
    notices.push({
      tone: 'bad',
      text: `${plural(spool.failed, 'message')} on this broker’s disk could not be stored.`,
    });
  }
  return (
    <>
      {notices.map(({ tone, text }) => (
        <div key={text} class={`note-line ${tone}`} role="status">
          {text}
        </div>
      ))}
    </>
  );
}

function Totals({ overview }: { overview: Overview }) {
  const { messages, throughput, lag, statsAge } = overview;
  return (
    <Tiles>
      <Tile label="Stored" value={rate(throughput.ingestedPerSecond)} note="mean of five minutes" />
      <Tile label="Completed" value={rate(throughput.processedPerSecond)} note="mean of five minutes" />
      <Tile
        label="Pending"
        value={compact(messages.pending)}
        note={`${whole(messages.processing)} under way`}
      />
      <Tile
        label="Oldest has waited"
        value={duration(lag.time.max)}
        note={`median ${duration(lag.time.median)}`}
        tone={toneOfWait(lag.time.max)}
      />
      <Tile
        label="Dead letters"
        value={compact(messages.deadLetter)}
        tone={messages.deadLetter > 0 ? 'bad' : undefined}
        note={messages.deadLetter > 0 ? <a href="/dlq">Look at them</a> : 'none'}
      />
      <Tile
        label="Queues"
        value={compact(overview.queues)}
        note={`${plural(overview.partitions, 'partition')}${statsAge > 60 ? `, counted ${duration(statsAge)} ago` : ''}`}
      />
    </Tiles>
  );
}

const COLUMNS: readonly Column<WorkloadRow>[] = [
  {
    title: 'Queue',
    key: true,
    cell: ({ key }) => <a href={queuePath(key)}>{key}</a>,
  },
  { title: 'Stored', right: true, cell: ({ window }) => whole(window.pushMessages) },
  { title: 'Delivered', right: true, cell: ({ window }) => whole(window.popMessages) },
  { title: 'Completed', right: true, cell: ({ window }) => whole(window.ackSuccess) },
  { title: 'Failed', right: true, cell: ({ window }) => whole(window.ackFailed) },
  {
    title: 'Mean lag',
    right: true,
    cell: ({ window }) => duration(window.avgLagMs === null ? null : window.avgLagMs / 1000),
  },
  { title: 'Pending', right: true, cell: ({ now }) => whole(now.pending) },
  {
    title: 'Retained',
    right: true,
    cell: ({ now }) => (now.retainedBytes === 0 ? '–' : bytes(now.retainedBytes)),
  },
];

function Busiest({ workload }: { workload: Workload }) {
  return (
    <Card
      title="Busiest queues"
      actions={
        workload.rowsTotal > BUSIEST ? <a href="/queues">All {whole(workload.rowsTotal)}</a> : undefined
      }
    >
      <Table
        caption="Busiest queues"
        columns={COLUMNS}
        rows={workload.rows}
        id={({ key }) => key}
        empty={<FirstSteps />}
      />
    </Card>
  );
}

function FirstSteps() {
  const push = `curl ${location.origin}/api/v1/push \\
  -d '{"items": [{"queue": "orders", "payload": {"hello": "world"}}]}'`;
  return (
    <Empty title="There are no queues yet">
      <p>A queue is made by the first push to it. Try this in a terminal:</p>
      <pre>{push}</pre>
    </Empty>
  );
}
