/** The connectors' numbers, by the names of their metric families. A family without a connector of its kind is left out. */
import { DEFAULT_TENANT, type TenantId } from '../../../engine/types.ts';
import type { ConnectorStatus } from './status.ts';

type Statuses = () => readonly { tenant: TenantId; status: ConnectorStatus }[];
type Value = (status: ConnectorStatus) => number | bigint | null;

export function connectorSources(statuses: Statuses) {
  const family = (kind: 'source' | 'sink' | null, value: Value) => () => {
    const ours = statuses().filter(({ status }) => kind === null || status.kind === kind);
    if (ours.length === 0) return null;
    return ours.flatMap(({ tenant, status }) => {
      const now = value(status);
      if (now === null) return [];
      const labels: Record<string, string> = { connector: status.name };
      if (tenant !== DEFAULT_TENANT) labels.tenant = tenant;
      return [{ labels, value: Number(now) }];
    });
  };
  return {
    queen_pg_source_transactions_total: family('source', ({ counters }) => counters.transactions),
    queen_pg_source_messages_total: family('source', ({ counters }) => counters.messages),
    queen_pg_source_bundles_total: family('source', ({ counters }) => counters.bundles),
    queen_pg_source_snapshot_rows_total: family('source', ({ counters }) => counters.snapshotRows),
    queen_pg_source_slot_lag_bytes: family('source', ({ gauges }) => gauges.slotLagBytes),
    queen_pg_source_pointer_lsn: family('source', ({ gauges }) => gauges.pointerLsn),
    queen_pg_sink_applied_total: family('sink', ({ counters }) => counters.applied),
    queen_pg_sink_skipped_total: family('sink', ({ counters }) => counters.skipped),
    queen_pg_sink_dlq_total: family('sink', ({ counters }) => counters.dlq),
    queen_pg_sink_batches_total: family('sink', ({ counters }) => counters.batches),
    queen_pg_connector_errors_total: family(null, ({ counters }) => counters.errors),
    queen_pg_connector_owner: family(null, ({ owned }) => (owned ? 1 : 0)),
  };
}
