/** The brokers on this database, and the switches that all of them follow. */
import {
  type BrokerMetrics,
  getBrokers,
  getSwitches,
  type Replica,
  type Switches,
  setSwitch,
} from '../api/brokers.ts';
import { useRights } from '../api/identity.ts';
import { getHealth } from '../api/overview.ts';
import { usePoll } from '../api/poll.ts';
import { Chart, type Series } from '../components/chart.tsx';
import { confirm } from '../components/dialog.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { RangeChoice, useRange } from '../components/range.tsx';
import { type Column, Table } from '../components/table.tsx';
import { Badge, Tile, Tiles } from '../components/tiles.tsx';
import { Ago } from '../components/time.tsx';
import { toast } from '../components/toasts.tsx';
import { bytes, compact, duration, plural, whole } from '../format.ts';

/** A broker writes its numbers once a minute; one that has not for so long is gone. */
const SILENT_MS = 180_000;
/** Lines of one chart that can be told apart. */
const LINES_MAX = 4;

export default function BrokersPage() {
  const range = useRange();
  const brokers = usePoll(
    `brokers ${range.name}`,
    async (signal) => {
      // Only the bars of an hour are minutes, which say who is up.
      const hour = getBrokers(null, signal);
      const from = range.from();
      const [now, shown] = await Promise.all([hour, from === null ? hour : getBrokers(from, signal)]);
      return { now: now.replicas, shown: shown.replicas };
    },
    { everyMs: 10_000, keep: true },
  );
  const { admin } = useRights();
  return (
    <Page title="Brokers" actions={<RangeChoice />}>
      <ThisBroker />
      <Shown of={brokers}>
        {({ now, shown }) => (
          <>
            <All replicas={now} />
            <Charts replicas={shown} />
          </>
        )}
      </Shown>
      {admin && <Operations />}
    </Page>
  );
}

function ThisBroker() {
  const health = usePoll('health', getHealth);
  return (
    <Shown of={health} rows={1}>
      {({ status, database, version, serverId, spool }) => (
        <Tiles>
          <Tile
            label="This broker"
            value={status === 'healthy' ? 'Healthy' : 'Unhealthy'}
            tone={status === 'healthy' ? 'good' : 'bad'}
            note={serverId}
          />
          <Tile
            label="Database"
            value={database === 'connected' ? 'Connected' : 'Away'}
            tone={database === 'connected' ? 'good' : 'bad'}
            note={<a href="/postgres">PostgreSQL</a>}
          />
          <Tile label="Version" value={version} />
          <Tile
            label="On its disk"
            value={spool === null ? 'no spool' : compact(spool.pending)}
            tone={spool !== null && spool.pending > 0 ? 'warn' : undefined}
            note={spool === null ? undefined : `waiting, ${whole(spool.failed)} failed for good`}
          />
        </Tiles>
      )}
    </Shown>
  );
}

interface Row {
  hostname: string;
  at: string;
  metrics: BrokerMetrics;
}

const COLUMNS: readonly Column<Row>[] = [
  { title: 'Broker', key: true, cell: ({ hostname }) => hostname },
  {
    title: 'State',
    tight: true,
    cell: ({ at }) =>
      Date.now() - Date.parse(at) > SILENT_MS ? (
        <Badge tone="warn">Silent</Badge>
      ) : (
        <Badge tone="good">Up</Badge>
      ),
  },
  { title: 'Up for', right: true, cell: ({ metrics }) => duration(metrics.uptime_seconds.last) },
  {
    title: 'CPU',
    right: true,
    cell: ({ metrics: { cpu } }) => percent(cpu.user_us.avg + cpu.system_us.avg),
  },
  { title: 'Memory', right: true, cell: ({ metrics }) => bytes(metrics.memory.rss_bytes.last) },
  {
    title: 'Event loop, mean',
    right: true,
    cell: ({ metrics }) => duration(metrics.event_loop_lag_ms.avg / 1000),
  },
  {
    title: 'Connections, busy of all',
    right: true,
    cell: ({ metrics: { database } }) =>
      `${whole(database.pool_active.last)} of ${whole(database.pool_size.last)}`,
  },
  { title: 'Last heard of', tight: true, cell: ({ at }) => <Ago at={at} /> },
];

function percent(hundredths: number): string {
  return `${Math.round(hundredths / 10) / 10} %`;
}

function All({ replicas }: { replicas: Replica[] }) {
  const rows = replicas.flatMap(({ hostname, timeSeries }) => {
    const newest = timeSeries[timeSeries.length - 1];
    return newest === undefined ? [] : [{ hostname, at: endOf(newest.timestamp), metrics: newest.metrics }];
  });
  return (
    <Card title="Brokers on this database" note={plural(rows.length, 'broker')}>
      <Table
        caption="Brokers"
        columns={COLUMNS}
        rows={rows}
        id={({ hostname }) => hostname}
        empty={
          <Empty title="No broker has written its numbers yet">
            <p>Each writes them once a minute.</p>
          </Empty>
        }
      />
    </Card>
  );
}

/** A bar is named by its beginning, and was written at some moment of its minute. */
function endOf(bucket: string): string {
  return new Date(Math.min(Date.now(), Date.parse(bucket) + 60_000)).toISOString();
}

function Charts({ replicas }: { replicas: Replica[] }) {
  const shown = replicas.slice(0, LINES_MAX);
  const times = [
    ...new Set(shown.flatMap(({ timeSeries }) => timeSeries.map(({ timestamp }) => timestamp))),
  ].sort();
  const lines = (of: (metrics: BrokerMetrics) => number): Series[] =>
    shown.map(({ hostname, timeSeries }) => {
      const byTime = new Map(timeSeries.map(({ timestamp, metrics }) => [timestamp, of(metrics)]));
      return { label: hostname, values: times.map((time) => byTime.get(time) ?? null) };
    });
  if (times.length === 0) return null;
  const charts = [
    ['CPU', 'Of one core', lines(({ cpu }) => cpu.user_us.avg + cpu.system_us.avg), percent],
    ['Memory', 'Resident set', lines(({ memory }) => memory.rss_bytes.last), bytes],
    [
      'Event loop',
      'How late it comes to what is due, the worst',
      lines(({ event_loop_lag_ms }) => event_loop_lag_ms.max / 1000),
      duration,
    ],
    ['Connections', 'Busy, at the most', lines(({ database }) => database.pool_active.max), compact],
  ] as const;
  return (
    <>
      {replicas.length > LINES_MAX && (
        <p class="muted">
          The charts show {LINES_MAX} of {whole(replicas.length)} brokers.
        </p>
      )}
      <div class="columns">
        {charts.map(([title, note, series, format]) => (
          <Card key={title} title={title} note={note}>
            <div class="inside">
              <Chart
                title={title}
                times={times}
                series={series}
                format={format}
                height={140}
                binary={format === bytes}
              />
            </div>
          </Card>
        ))}
      </div>
    </>
  );
}

interface Switch {
  name: keyof Switches;
  title: string;
  /** What the button does when the switch is off, and when it is on. */
  verbs: readonly [string, string];
  /** The state, off and on. */
  states: readonly [string, string];
  /** What follows from flipping it away from normal. */
  warning: string;
  /** Its normal state. */
  normal: boolean;
}

const SWITCHES: readonly Switch[] = [
  {
    name: 'pushPaused',
    title: 'Pushes',
    verbs: ['Pause', 'Go on'],
    states: ['Stored', 'Paused: they wait on disk'],
    warning:
      'Pushes are still accepted, and wait on the disk of the broker that got them. Replays are refused.',
    normal: false,
  },
  {
    name: 'popPaused',
    title: 'Pops',
    verbs: ['Pause', 'Go on'],
    states: ['Delivered', 'Paused: consumers get nothing'],
    warning: 'Consumers get nothing until it is undone. What they hold, they may still ack.',
    normal: false,
  },
  {
    name: 'kvEnabled',
    title: 'Keys and values',
    verbs: ['Switch on', 'Switch off'],
    states: ['Off: calls are refused', 'On'],
    warning: 'Calls are refused, and transactions that write keys too. The data stays.',
    normal: true,
  },
  {
    name: 'timersScheduleEnabled',
    title: 'Scheduling of timers',
    verbs: ['Switch on', 'Switch off'],
    states: ['Off: nothing new is taken', 'On'],
    warning: 'New timers are refused. Pending ones fire, and may be cancelled.',
    normal: true,
  },
  {
    name: 'timersFireEnabled',
    title: 'Firing of timers',
    verbs: ['Switch on', 'Switch off'],
    states: ['Off: they wait', 'On'],
    warning: 'Nothing fires. What falls due meanwhile fires late, when it is on again.',
    normal: true,
  },
];

function Operations() {
  const switches = usePoll('switches', getSwitches, { everyMs: 10_000 });
  const flip = async ({ name, title, verbs, warning, normal }: Switch, now: boolean) => {
    const verb = verbs[now ? 1 : 0];
    const away = now === normal;
    const yes = await confirm({
      title: `${title}: ${verb.toLowerCase()}?`,
      body: <p>{away ? warning : 'Back to normal.'} It holds for all brokers, until it is changed again.</p>,
      action: verb,
      danger: away,
      run: () => setSwitch(name, !now),
    });
    if (!yes) return;
    toast(`${title}: ${away ? 'changed' : 'back to normal'}.`);
    switches.refresh();
  };
  return (
    <Card title="Operations" note="For all brokers of this database">
      <Shown of={switches} rows={5}>
        {(now) => (
          <Table
            caption="Switches"
            rows={SWITCHES}
            id={({ name }) => name}
            empty={<Empty title="There are none" />}
            columns={[
              { title: 'What', key: true, cell: ({ title }) => title },
              {
                title: 'State',
                cell: ({ name, states, normal }) => (
                  <Badge tone={now[name] === normal ? 'good' : 'warn'}>{states[now[name] ? 1 : 0]}</Badge>
                ),
              },
              {
                title: 'Change',
                bare: true,
                right: true,
                cell: (each) => (
                  <button
                    type="button"
                    class="button small"
                    aria-label={`${each.title}: ${each.verbs[now[each.name] ? 1 : 0].toLowerCase()}`}
                    onClick={() => flip(each, now[each.name])}
                  >
                    {each.verbs[now[each.name] ? 1 : 0]}…
                  </button>
                ),
              },
            ]}
          />
        )}
      </Shown>
    </Card>
  );
}
