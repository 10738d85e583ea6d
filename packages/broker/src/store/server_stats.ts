/**
 * What PostgreSQL says about itself, section by section. A section that this server cannot give (a missing view or
 * extension, a right that the user does not have) is an empty list.
 *
 * The database may be shared. Of other people's sessions only their state is shown, never their SQL.
 */
import { type Queryable, type Statement, statement } from './database.ts';

type Section = Record<string, unknown>[];

const TABLES = `schemaname = 'queen'`;

/** Each answers rows of one json column. */
const SECTIONS = {
  database: section(
    'database',
    `SELECT d.datname AS name, pg_database_size(d.datid) AS "sizeBytes", d.numbackends AS connections,
            current_setting('max_connections')::int AS "maxConnections", d.xact_commit AS commits,
            d.xact_rollback AS rollbacks, d.deadlocks, d.conflicts, d.temp_files AS "tempFiles",
            d.temp_bytes AS "tempBytes", current_setting('server_version') AS version,
            pg_postmaster_start_time() AS "startedAt"
       FROM pg_stat_database d WHERE d.datname = current_database()`,
  ),
  databaseCache: section(
    'database_cache',
    `SELECT d.blks_hit AS hits, d.blks_read AS reads,
            round(d.blks_hit * 100.0 / nullif(d.blks_hit + d.blks_read, 0), 2) AS "hitRatio"
       FROM pg_stat_database d WHERE d.datname = current_database()`,
  ),
  tableCache: section(
    'table_cache',
    `SELECT relname AS "table", heap_blks_hit AS hits, heap_blks_read AS reads,
            round(heap_blks_hit * 100.0 / nullif(heap_blks_hit + heap_blks_read, 0), 2) AS "hitRatio"
       FROM pg_statio_user_tables WHERE ${TABLES} ORDER BY heap_blks_hit + heap_blks_read DESC LIMIT 30`,
  ),
  indexCache: section(
    'index_cache',
    `SELECT relname AS "table", indexrelname AS "index", idx_blks_hit AS hits, idx_blks_read AS reads,
            round(idx_blks_hit * 100.0 / nullif(idx_blks_hit + idx_blks_read, 0), 2) AS "hitRatio"
       FROM pg_statio_user_indexes WHERE ${TABLES} ORDER BY idx_blks_hit + idx_blks_read DESC LIMIT 30`,
  ),
  cacheSummary: section(
    'cache_summary',
    `SELECT round(sum(heap_blks_hit) * 100.0 / nullif(sum(heap_blks_hit + heap_blks_read), 0), 2) AS "tableHitRatio",
            round(sum(idx_blks_hit) * 100.0 / nullif(sum(idx_blks_hit + idx_blks_read), 0), 2) AS "indexHitRatio"
       FROM pg_statio_user_tables WHERE ${TABLES}`,
  ),
  deadTuples: section(
    'dead_tuples',
    `SELECT relname AS "table", n_live_tup AS live, n_dead_tup AS dead,
            round(n_dead_tup * 100.0 / nullif(n_live_tup + n_dead_tup, 0), 2) AS "deadRatio",
            last_vacuum AS "lastVacuum", last_autovacuum AS "lastAutovacuum"
       FROM pg_stat_user_tables WHERE ${TABLES} ORDER BY n_dead_tup DESC LIMIT 30`,
  ),
  hotUpdates: section(
    'hot_updates',
    `SELECT relname AS "table", n_tup_upd AS updates, n_tup_hot_upd AS "hotUpdates",
            round(n_tup_hot_upd * 100.0 / nullif(n_tup_upd, 0), 2) AS "hotRatio"
       FROM pg_stat_user_tables WHERE ${TABLES} ORDER BY n_tup_upd DESC LIMIT 30`,
  ),
  activeQueries: section(
    'active_queries',
    `SELECT a.pid, a.application_name AS application, a.state, a.wait_event_type AS "waitEventType",
            a.wait_event AS "waitEvent",
            round(extract(epoch FROM clock_timestamp() - a.query_start)::numeric, 3) AS seconds,
            round(extract(epoch FROM clock_timestamp() - a.xact_start)::numeric, 3) AS "transactionSeconds",
            CASE WHEN a.application_name LIKE 'queen %' THEN left(a.query, 200) END AS query
       FROM pg_stat_activity a
      WHERE a.datname = current_database() AND a.state <> 'idle' AND a.pid <> pg_backend_pid()
      ORDER BY a.xact_start NULLS LAST LIMIT 50`,
  ),
  autovacuumStatus: section(
    'autovacuum_status',
    `SELECT p.pid, c.relname AS "table", p.phase, p.heap_blks_total AS "blocksTotal",
            p.heap_blks_scanned AS "blocksScanned", p.heap_blks_vacuumed AS "blocksVacuumed"
       FROM pg_stat_progress_vacuum p LEFT JOIN pg_class c ON c.oid = p.relid
      WHERE p.datname = current_database() LIMIT 50`,
  ),
  bufferConfig: section(
    'buffer_config',
    `SELECT name, setting, unit FROM pg_settings
      WHERE name IN ('shared_buffers', 'effective_cache_size', 'work_mem', 'maintenance_work_mem', 'wal_buffers',
                     'max_wal_size', 'checkpoint_timeout', 'autovacuum_max_workers', 'synchronous_commit', 'fsync')
      ORDER BY name`,
  ),
  bufferUsage: section(
    'buffer_usage',
    `SELECT c.relname AS "table", count(*) AS buffers, count(*) FILTER (WHERE b.isdirty) AS dirty
       FROM pg_buffercache b JOIN pg_class c ON b.relfilenode = pg_relation_filenode(c.oid)
       JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = 'queen'
        AND b.reldatabase = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      GROUP BY c.relname ORDER BY count(*) DESC LIMIT 30`,
  ),
  tableSizes: section(
    'table_sizes',
    `SELECT c.relname AS "table", pg_total_relation_size(c.oid) AS "totalBytes", pg_relation_size(c.oid) AS "tableBytes",
            pg_indexes_size(c.oid) AS "indexBytes",
            coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0) AS "toastBytes",
            greatest(c.reltuples, 0)::bigint AS rows
       FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = 'queen' AND c.relkind = 'r' ORDER BY pg_total_relation_size(c.oid) DESC LIMIT 50`,
  ),
} as const satisfies Record<string, Statement>;

export type ServerStats = { [S in keyof typeof SECTIONS]: Section };

export async function serverStats(db: Queryable): Promise<ServerStats> {
  const stats: Record<string, Section> = {};
  for (const [name, about] of Object.entries(SECTIONS)) {
    stats[name] = await db.query<{ row: string }>(about, [], { readOnly: true, timeoutMs: 10_000 }).then(
      (rows) => rows.map(({ row }) => JSON.parse(row) as Record<string, unknown>),
      () => [],
    );
  }
  return stats as ServerStats;
}

function section(name: string, select: string): Statement {
  return statement(`server_${name}`, `SELECT row_to_json(s)::text AS row FROM (${select}) AS s`);
}
