/** All connectors: what runs, what lags, what fails. */
import { type Connector, listConnectors } from '../api/connectors.ts';
import { type GroupRow, listGroups } from '../api/groups.ts';
import { useRights } from '../api/identity.ts';
import { usePoll } from '../api/poll.ts';
import { connectorPath, type End, NEW_CONNECTOR, PhaseBadge, ways } from '../components/connectors.tsx';
import { NameFilter } from '../components/filter.tsx';
import { useOffset } from '../components/list.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { type Column, PagedTable } from '../components/table.tsx';
import { bytes, plural } from '../format.ts';
import { useSearch } from '../router.ts';

const LIMIT = 50;
/** Groups whose lag is known to the list: those that are furthest behind. */
const GROUPS = 1_000;

export default function ConnectorsPage() {
  const connectors = usePoll('connectors', listConnectors);
  const lags = usePoll(
    'lags',
    (signal) => listGroups({ sort: 'lag', order: 'desc', limit: GROUPS, offset: 0 }, signal),
    { everyMs: 15_000 },
  );
  const [search] = useSearch();
  const { admin } = useRights();
  const wanted = search.get('search') ?? '';
  const [offset, onOffset] = useOffset();
  return (
    <Page
      title="Connectors"
      lead="Tables of PostgreSQL into queues, and queues into tables"
      actions={
        admin ? (
          <a class="button primary" href={NEW_CONNECTOR}>
            New connector
          </a>
        ) : undefined
      }
    >
      <Card>
        <Shown of={connectors}>
          {(all) => {
            const found = all.filter(({ name }) => name.includes(wanted));
            const rows = found.slice(offset, offset + LIMIT);
            return (
              <>
                {(all.length > LIMIT || wanted !== '') && (
                  <div class="filters first">
                    <NameFilter label="Part of the name" name="search" />
                  </div>
                )}
                <PagedTable
                  caption="Connectors"
                  columns={columnsOf(lags.data?.groups ?? [])}
                  rows={rows}
                  id={({ name }) => name}
                  empty={
                    all.length === 0 ? (
                      <Empty title="There are no connectors yet">
                        <p>
                          A source copies the changes of tables into queues, a sink the messages of a queue
                          into a table, each of them exactly once.
                        </p>
                      </Empty>
                    ) : (
                      <Empty title="No connector is like that" />
                    )
                  }
                  noun="connector"
                  offset={offset}
                  limit={LIMIT}
                  total={found.length}
                  onOffset={onOffset}
                />
              </>
            );
          }}
        </Shown>
      </Card>
    </Page>
  );
}

function columnsOf(groups: readonly GroupRow[]): Column<Connector>[] {
  return [
    {
      title: 'Connector',
      key: true,
      cell: ({ name, kind }) => (
        <>
          <a href={connectorPath(name)}>{name}</a>
          <span class="under">
            {kind === undefined ? 'unreadable' : kind === 'source' ? 'Source' : 'Sink'}
          </span>
        </>
      ),
    },
    { title: 'Phase', tight: true, cell: (connector) => <PhaseBadge of={connector} /> },
    { title: 'From', cell: (connector) => <Place of={ways(connector).from} /> },
    { title: 'To', cell: (connector) => <Place of={ways(connector).to} /> },
    { title: 'Behind', right: true, cell: (connector) => behind(connector, groups) },
    {
      title: 'Error',
      prose: true,
      cell: ({ status: { error } }) =>
        error == null ? (
          ''
        ) : (
          <span>
            <code>{error.code}</code> <span class="clipped">{error.message}</span>
          </span>
        ),
    },
  ];
}

function Place({ of: { what, where } }: { of: End }) {
  return (
    <span class="roomy">
      {what}
      {where !== null && <span class="under">{where}</span>}
    </span>
  );
}

/** WAL that waits for a source, messages that wait for a sink. */
function behind({ kind, status, sink }: Connector, groups: readonly GroupRow[]): string {
  if (kind === 'source') return status.slotLagBytes == null ? '–' : bytes(status.slotLagBytes);
  const row = groups.find(({ name, queueName }) => name === sink?.consumerGroup && queueName === sink.queue);
  return row === undefined ? '–' : plural(row.totalLag, 'message');
}
