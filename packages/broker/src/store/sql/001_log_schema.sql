-- The tables of the log. Every statement is idempotent and only ever adds, so that an older broker can
-- keep running beside a newer one. One statement, one transaction (see ../schema.ts).

CREATE SCHEMA IF NOT EXISTS queen;

-- The one clock of the product. Every procedure reads the time through it and never through now() or
-- clock_timestamp(), so that leases, windows and visibility have a single source, and so that a test can
-- move time by replacing this one function. It is a plain SQL expression: PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION queen.clock() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() $$;

-- Times cross the wire to the broker as microseconds since 1970 (UTC).
CREATE OR REPLACE FUNCTION queen.micros(t timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT (extract(epoch FROM t) * 1000000)::bigint $$;

CREATE OR REPLACE FUNCTION queen.from_micros(us bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT timestamptz 'epoch' + (us / 1000000) * interval '1 second' + (us % 1000000) * interval '1 microsecond'
$$;

-- A queue: identity and the whole configuration.
CREATE TABLE IF NOT EXISTS queen.queues (
  id                              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id                       uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000001',
  name                            varchar(255) NOT NULL,
  namespace                       text NOT NULL DEFAULT '',
  task                            text NOT NULL DEFAULT '',
  priority                        int NOT NULL DEFAULT 0,
  ttl                             int NOT NULL DEFAULT 3600,
  max_queue_size                  int NOT NULL DEFAULT 0,
  retry_delay                     int NOT NULL DEFAULT 1000,
  lease_time                      int NOT NULL DEFAULT 60,
  retry_limit                     int NOT NULL DEFAULT 3,
  dead_letter_queue               boolean NOT NULL DEFAULT TRUE,
  dlq_after_max_retries           boolean NOT NULL DEFAULT TRUE,
  delayed_processing              int NOT NULL DEFAULT 0,
  window_buffer                   int NOT NULL DEFAULT 0,
  retention_enabled               boolean NOT NULL DEFAULT FALSE,
  retention_seconds               int NOT NULL DEFAULT 0,
  completed_retention_seconds     int NOT NULL DEFAULT 0,
  max_wait_time_seconds           int NOT NULL DEFAULT 0,
  min_pop_wait_time               int NOT NULL DEFAULT 0,
  dedup_window_seconds            int NOT NULL DEFAULT 3600,
  encryption_enabled              boolean NOT NULL DEFAULT FALSE,
  retention_sink_hold             text NOT NULL DEFAULT '',
  retention_sink_hold_max_seconds int NOT NULL DEFAULT 604800,
  created_at                      timestamptz NOT NULL DEFAULT queen.clock()
);
CREATE UNIQUE INDEX IF NOT EXISTS queues_tenant_name_uk ON queen.queues (tenant_id, name);
CREATE INDEX IF NOT EXISTS idx_queues_namespace_task ON queen.queues (tenant_id, namespace, task);

-- The write serializer. Its row lock is what makes allocation and deduplication exact.
-- fillfactor and threshold vacuum: every push updates the row. vacuum_truncate off: truncation needs an
-- ACCESS EXCLUSIVE lock that would freeze every push and pop for seconds and reclaims nothing.
CREATE TABLE IF NOT EXISTS queen.log_partitions (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue_id        bigint NOT NULL REFERENCES queen.queues (id) ON DELETE CASCADE,
  name            varchar(255) NOT NULL DEFAULT 'Default',
  last_offset     bigint NOT NULL DEFAULT -1,
  log_start       bigint NOT NULL DEFAULT 0,
  txns_start      bigint NOT NULL DEFAULT 0,
  last_write_at   timestamptz NOT NULL DEFAULT queen.clock(),
  oldest_live_at  timestamptz,
  oldest_txn_at   timestamptz,
  last_created_at timestamptz,
  created_at      timestamptz NOT NULL DEFAULT queen.clock(),
  CONSTRAINT log_partitions_queue_name_uk UNIQUE (queue_id, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
CREATE INDEX IF NOT EXISTS idx_log_partitions_queue_write ON queen.log_partitions (queue_id, last_write_at);
CREATE INDEX IF NOT EXISTS idx_log_partitions_queue_oldest
  ON queen.log_partitions (queue_id, oldest_live_at) WHERE oldest_live_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_log_partitions_queue_oldest_txn
  ON queen.log_partitions (queue_id, oldest_txn_at) WHERE oldest_txn_at IS NOT NULL;

-- The messages. The primary key is the pop path; there is no other index on purpose. No foreign key: rows are added
-- under the lock of their partition row, reached through it only, and what a deleted queue leaves is log_garbage's.
CREATE TABLE IF NOT EXISTS queen.log_segments (
  partition_id bigint NOT NULL,
  base_offset  bigint NOT NULL,
  end_offset   bigint NOT NULL,
  created_at   timestamptz NOT NULL,
  blob         bytea NOT NULL,
  PRIMARY KEY (partition_id, base_offset)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_insert_scale_factor = 0.3,
        autovacuum_vacuum_cost_limit = 4000, autovacuum_vacuum_cost_delay = 0,
        toast.autovacuum_vacuum_scale_factor = 0.1, toast.autovacuum_vacuum_insert_scale_factor = 0.3,
        toast.autovacuum_vacuum_cost_limit = 4000, toast.autovacuum_vacuum_cost_delay = 0);
-- The blob is compressed already. Only set when it differs: ALTER TABLE would take a heavy lock each boot.
DO $$ BEGIN
  IF (SELECT attstorage FROM pg_attribute
       WHERE attrelid = 'queen.log_segments'::regclass AND attname = 'blob') <> 'e' THEN
    ALTER TABLE queen.log_segments ALTER COLUMN blob SET STORAGE EXTERNAL;
  END IF;
END $$;

-- The hash sidecar: 16 bytes a frame, written by every push, since an ack names a transactionId.
-- No foreign key: the purge must not pay for triggers.
CREATE TABLE IF NOT EXISTS queen.log_txns (
  partition_id bigint NOT NULL,
  base_offset  bigint NOT NULL,
  end_offset   bigint NOT NULL,
  created_at   timestamptz NOT NULL,
  hashes       bytea NOT NULL,
  PRIMARY KEY (partition_id, base_offset)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_insert_scale_factor = 0.3,
        autovacuum_vacuum_cost_delay = 0);

-- Partitions of deleted queues whose segments and hashes are still there. Nobody can reach them any more; they go in
-- the background, so that a deletion holds its locks for a moment and not for as long as a large log takes.
CREATE TABLE IF NOT EXISTS queen.log_garbage (
  partition_id bigint PRIMARY KEY,
  from_offset  bigint NOT NULL DEFAULT 0
);

-- The consumption model: one row a (partition, group). No secondary index: claim and ack are HOT updates.
CREATE TABLE IF NOT EXISTS queen.log_consumers (
  partition_id      bigint NOT NULL REFERENCES queen.log_partitions (id) ON DELETE CASCADE,
  consumer_group    varchar(255) NOT NULL DEFAULT '__QUEUE_MODE__',
  committed         bigint NOT NULL DEFAULT -1,
  batch_end         bigint,
  worker_id         text,
  lease_expires_at  timestamptz,
  lease_acquired_at timestamptz,
  lease_conflated   boolean NOT NULL DEFAULT FALSE,
  batch_retry_count int NOT NULL DEFAULT 0,
  attempt_offset    bigint,
  attempt_count     int NOT NULL DEFAULT 0,
  total_consumed    bigint NOT NULL DEFAULT 0,
  created_at        timestamptz NOT NULL DEFAULT queen.clock(),
  PRIMARY KEY (partition_id, consumer_group)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- Dead letters. No foreign key: a row outlives the segments of its partition. The payload is bytes, since
-- jsonb would not give back what the producer sent.
CREATE TABLE IF NOT EXISTS queen.log_dlq (
  id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  partition_id   bigint NOT NULL,
  consumer_group varchar(255) NOT NULL,
  "offset"       bigint NOT NULL,
  message_id     uuid,
  transaction_id text NOT NULL,
  payload        bytea,
  error          text,
  retry_count    int NOT NULL DEFAULT 0,
  failed_at      timestamptz NOT NULL DEFAULT queen.clock()
);
CREATE INDEX IF NOT EXISTS idx_log_dlq_partition_failed_at ON queen.log_dlq (partition_id, failed_at DESC);

-- Where a group starts on a partition that it has never met.
CREATE TABLE IF NOT EXISTS queen.consumer_groups_metadata (
  id                     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id              uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000001',
  consumer_group         varchar(255) NOT NULL,
  queue_id               bigint REFERENCES queen.queues (id) ON DELETE CASCADE,
  partition_name         varchar(255) NOT NULL DEFAULT '',
  namespace              text NOT NULL DEFAULT '',
  task                   text NOT NULL DEFAULT '',
  subscription_mode      text NOT NULL,
  subscription_timestamp timestamptz,
  conflation             boolean NOT NULL DEFAULT FALSE,
  created_at             timestamptz NOT NULL DEFAULT queen.clock(),
  CONSTRAINT cgm_identity_uk UNIQUE NULLS NOT DISTINCT
    (tenant_id, consumer_group, queue_id, partition_name, namespace, task)
);
CREATE INDEX IF NOT EXISTS idx_cgm_queue ON queen.consumer_groups_metadata (queue_id);

CREATE TABLE IF NOT EXISTS queen.consumer_watermarks (
  queue_id           bigint NOT NULL REFERENCES queen.queues (id) ON DELETE CASCADE,
  consumer_group     varchar(255) NOT NULL,
  last_empty_scan_at timestamptz NOT NULL DEFAULT timestamptz 'epoch',
  updated_at         timestamptz NOT NULL DEFAULT queen.clock(),
  PRIMARY KEY (queue_id, consumer_group)
);

CREATE TABLE IF NOT EXISTS queen.hotlist_repairs (
  tenant_id      uuid NOT NULL,
  queue_name     varchar(255) NOT NULL,
  consumer_group varchar(255) NOT NULL,
  partition_name varchar(255),
  repair_at      timestamptz NOT NULL DEFAULT queen.clock(),
  reason         text NOT NULL DEFAULT '',
  PRIMARY KEY (tenant_id, queue_name, consumer_group)
);
CREATE INDEX IF NOT EXISTS idx_hotlist_repairs_at ON queen.hotlist_repairs (repair_at);

CREATE TABLE IF NOT EXISTS queen.retention_history (
  id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  partition_id     bigint NOT NULL,
  messages_deleted bigint NOT NULL,
  retention_type   text NOT NULL,
  executed_at      timestamptz NOT NULL DEFAULT queen.clock()
);
CREATE INDEX IF NOT EXISTS idx_retention_history_executed_at ON queen.retention_history (executed_at DESC);

-- Runs each background job once a period over all brokers.
CREATE TABLE IF NOT EXISTS queen.maintenance_leases (
  task             text PRIMARY KEY,
  period_ms        bigint NOT NULL,
  next_due_at      timestamptz NOT NULL DEFAULT queen.clock(),
  lease_until      timestamptz,
  holder           text,
  fence            bigint NOT NULL DEFAULT 0,
  last_start_at    timestamptz,
  last_end_at      timestamptz,
  last_duration_ms bigint,
  runs             bigint NOT NULL DEFAULT 0,
  enabled          boolean NOT NULL DEFAULT TRUE
);

CREATE TABLE IF NOT EXISTS queen.system_state (
  key        text PRIMARY KEY,
  value      jsonb NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT queen.clock()
);

-- Explodes a blob of 16-byte hashes into (zero-based index, hash). Plain slicing, so that it is inlined
-- into the deduplication probe and into the resolution of an ack.
CREATE OR REPLACE FUNCTION queen.log_unnest_hashes(p bytea) RETURNS TABLE (idx int, h bytea)
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 100 AS $$
  SELECT i, substring(p FROM i * 16 + 1 FOR 16) FROM generate_series(0, length(p) / 16 - 1) AS g(i)
$$;
