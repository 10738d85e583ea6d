/** All connectors: what runs, what lags, what fails. */
import { type Connector, listConnectors } from '../api/connectors.ts';
import { type GroupRow, listGroups } from '../api/groups.ts';
import { useRights } from '../api/identity.ts';
import { usePoll } from '../api/poll.ts';
import { connectorPath, type End, NEW_CONNECTOR, PhaseBadge, ways } from '../components/connectors.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import type { Column } from '../components/table.tsx';
import { WholeList } from '../components/whole_list.tsx';
import { bytes, plural } from '../format.ts';

/** Groups whose lag is known to the list: those that are furthest behind. */
const GROUPS = 1_000;

export default function ConnectorsPage() {
  const connectors = usePoll('connectors', listConnectors);
  const sinks = connectors.data?.some(({ kind }) => kind === 'sink') ?? false;
  // All cursors of all groups are counted for it, so only where it is shown.
  const lags = usePoll(
    `lags ${sinks}`,
    async (signal) =>
      sinks
        ? (await listGroups({ sort: 'lag', order: 'desc', limit: GROUPS, offset: 0 }, signal)).groups
        : [],
    { everyMs: sinks ? 15_000 : 0 },
  );
  const { admin } = useRights();
  return (
    <Page
      title="Connectors"
      lead="Tables of PostgreSQL into queues, and queues into tables"
      actions={
        admin && (
          <a class="button primary" href={NEW_CONNECTOR}>
            New connector
          </a>
        )
      }
    >
      <Card>
        <Shown of={connectors}>
          {(all) => (
            <WholeList
              caption="Connectors"
              columns={columnsOf(lags.data ?? [])}
              all={all}
              nameOf={({ name }) => name}
              noun="connector"
              none={
                <Empty title="There are no connectors yet">
                  <p>
                    A source copies the changes of tables into queues, a sink the messages of a queue into a
                    table, each of them exactly once.
                  </p>
                </Empty>
              }
            />
          )}
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
    { title: 'Lag', right: true, cell: (connector) => lagOf(connector, groups) },
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
function lagOf({ kind, status, sink }: Connector, groups: readonly GroupRow[]): string {
  if (kind === 'source') return status.slotLagBytes == null ? '–' : bytes(status.slotLagBytes);
  const row = groups.find(({ name, queueName }) => name === sink?.consumerGroup && queueName === sink.queue);
  return row === undefined ? '–' : plural(row.totalLag, 'message');
}
