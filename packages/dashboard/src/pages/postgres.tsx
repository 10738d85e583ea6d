/** How the database fares, in its own words. */
import { getPostgres, type PostgresStats } from '../api/brokers.ts';
import { usePoll } from '../api/poll.ts';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { type Column, Table } from '../components/table.tsx';
import { Badge, Facts, Tile, Tiles, type Tone } from '../components/tiles.tsx';
import { Ago } from '../components/time.tsx';
import { bytes, compact, duration, whole } from '../format.ts';

export default function PostgresPage() {
  const stats = usePoll('postgres', getPostgres, { everyMs: 15_000 });
  return (
    <Page title="PostgreSQL">
      <Shown of={stats} rows={8}>
        {(data) => (
          <>
            <Totals of={data} />
            <Card title="Running now">
              <Table
                caption="Statements that run now"
                columns={QUERIES}
                rows={data.activeQueries}
                id={({ pid }) => String(pid)}
                empty={
                  <Empty title="No statement is running">
                    <p>They come and go in milliseconds.</p>
                  </Empty>
                }
              />
            </Card>
            <Card title="Tables" note="The largest first">
              <Table
                caption="Tables by size"
                columns={TABLES}
                rows={tablesOf(data)}
                id={({ table }) => table}
                empty={<Empty title="The database does not tell" />}
              />
            </Card>
            <Settings of={data} />
          </>
        )}
      </Shown>
    </Page>
  );
}

function Totals({ of }: { of: PostgresStats }) {
  const { database, databaseCache } = of;
  if (database === null) {
    return (
      <Card>
        <Empty title="The database does not tell">
          <p>The broker’s user may not read the statistics of PostgreSQL.</p>
        </Empty>
      </Card>
    );
  }
  const used = database.connections / database.maxConnections;
  const hits = databaseCache?.hitRatio ?? null;
  return (
    <Tiles>
      <Tile
        label="Version"
        value={database.version.split(' ')[0]}
        note={
          <>
            started <Ago at={database.startedAt} />
          </>
        }
      />
      <Tile label="Size" value={bytes(database.sizeBytes)} note={database.name} />
      <Tile
        label="Connections"
        value={whole(database.connections)}
        note={`of ${whole(database.maxConnections)}`}
        tone={used > 0.9 ? 'bad' : used > 0.75 ? 'warn' : undefined}
      />
      <Tile
        label="Found in memory"
        value={hits === null ? '–' : `${hits} %`}
        tone={hits !== null && hits < 90 ? 'warn' : undefined}
        note="of blocks read"
      />
      <Tile
        label="Rolled back"
        value={compact(database.rollbacks)}
        note={`of ${compact(database.commits + database.rollbacks)} transactions`}
      />
      <Tile
        label="Deadlocks"
        value={whole(database.deadlocks)}
        tone={database.deadlocks > 0 ? 'warn' : undefined}
        note={
          database.tempFiles === 0 ? 'nothing spilt to disk' : `${bytes(database.tempBytes)} spilt to disk`
        }
      />
    </Tiles>
  );
}

const LONG_SECONDS = 60;

const QUERIES: readonly Column<PostgresStats['activeQueries'][number]>[] = [
  { title: 'Process', key: true, cell: ({ pid }) => String(pid) },
  { title: 'Application', cell: ({ application }) => application },
  {
    title: 'State',
    tight: true,
    cell: ({ state, waitEventType, waitEvent }) => (
      <>
        <Badge tone={toneOf(state, waitEventType)}>{state}</Badge>
        {waitEvent !== null && <span class="muted"> {waitEvent}</span>}
      </>
    ),
  },
  { title: 'Statement, for', right: true, cell: ({ seconds }) => duration(seconds) },
  {
    title: 'Transaction, for',
    right: true,
    cell: ({ transactionSeconds }) =>
      (transactionSeconds ?? 0) > LONG_SECONDS ? (
        <Badge tone="warn">{duration(transactionSeconds)}</Badge>
      ) : (
        duration(transactionSeconds)
      ),
  },
  {
    title: 'SQL',
    cell: ({ query }) => (query === null ? <span class="muted">somebody else’s</span> : <code>{query}</code>),
  },
];

function toneOf(state: string, waitEventType: string | null): Tone | 'accent' | undefined {
  if (waitEventType === 'Lock') return 'bad';
  return state === 'active' ? 'accent' : 'warn';
}

type TableRow = PostgresStats['tableSizes'][number] & {
  dead: PostgresStats['deadTuples'][number] | undefined;
  hotRatio: number | null;
  vacuuming: string | null;
};

function tablesOf({ tableSizes, deadTuples, hotUpdates, autovacuumStatus }: PostgresStats): TableRow[] {
  return tableSizes.map((size) => ({
    ...size,
    dead: deadTuples.find(({ table }) => table === size.table),
    hotRatio: hotUpdates.find(({ table }) => table === size.table)?.hotRatio ?? null,
    vacuuming: autovacuumStatus.find(({ table }) => table === size.table)?.phase ?? null,
  }));
}

const TABLES: readonly Column<TableRow>[] = [
  { title: 'Table', key: true, cell: ({ table }) => table },
  { title: 'Size', right: true, cell: ({ totalBytes }) => bytes(totalBytes) },
  { title: 'Indexes', right: true, cell: ({ indexBytes }) => bytes(indexBytes) },
  { title: 'Rows, about', right: true, cell: ({ rows }) => compact(rows) },
  {
    title: 'Dead rows',
    right: true,
    cell: ({ dead }) => (dead === undefined ? '–' : compact(dead.dead)),
  },
  { title: 'In place', right: true, cell: ({ hotRatio }) => (hotRatio === null ? '–' : `${hotRatio} %`) },
  {
    title: 'Vacuumed',
    tight: true,
    cell: ({ vacuuming, dead }) =>
      vacuuming !== null ? <Badge tone="accent">{vacuuming}</Badge> : <Ago at={newest(dead)} />,
  },
];

function newest(dead: PostgresStats['deadTuples'][number] | undefined): string | null {
  const times = [dead?.lastVacuum, dead?.lastAutovacuum].filter(
    (at): at is string => at !== null && at !== undefined,
  );
  return times.sort()[times.length - 1] ?? null;
}

function Settings({ of }: { of: PostgresStats }) {
  return (
    <Card title="Settings">
      <div class="inside">
        <Facts of={of.bufferConfig.map(({ name, setting, unit }) => [name, settingText(setting, unit)])} />
      </div>
    </Card>
  );
}

const UNIT_BYTES: Record<string, number> = { B: 1, kB: 1024, '8kB': 8192, MB: 1024 ** 2 };

function settingText(setting: string, unit: string | null): string {
  const size = UNIT_BYTES[unit ?? ''];
  if (size !== undefined && Number(setting) >= 0) return bytes(Number(setting) * size);
  return unit === 's' ? duration(Number(setting)) : `${setting} ${unit ?? ''}`.trim();
}
