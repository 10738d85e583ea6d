-- Statistics, second half: what has passed through. Every broker counts in memory and writes the differences now and then
-- (metrics_flush): rows by minute and queue, the same by the hour, and rows by minute about the broker itself.
--
-- Exactly once: a writer (one process) numbers its flushes, and a number that is not above the last one changes nothing.
-- So a flush whose answer was lost is sent again as it is.
--
-- A flush belongs to the minute in the middle of the time that it covers. Brokers flush just after the minute by the
-- database's clock, so that each minute is one flush.
--
-- Hours are kept beside minutes, since a month of minutes is forty thousand rows a queue and no page may cost that.
-- Readers take the hours as soon as a bar of their graph is an hour wide or wider.

CREATE TABLE IF NOT EXISTS queen.queue_metrics (
  tenant_id          uuid NOT NULL,
  width              smallint NOT NULL,  -- minutes: 1 or 60
  bucket             timestamptz NOT NULL,
  queue_name         text NOT NULL,
  server             text NOT NULL,
  push_requests      bigint NOT NULL,
  push_messages      bigint NOT NULL,  -- stored, by pushes and transactions
  pop_requests       bigint NOT NULL,
  pop_messages       bigint NOT NULL,
  pop_empty          bigint NOT NULL,
  ack_requests       bigint NOT NULL,
  ack_messages       bigint NOT NULL,
  ack_success        bigint NOT NULL,
  ack_failed         bigint NOT NULL,
  dlq                bigint NOT NULL,
  conflated          bigint NOT NULL,
  transactions       bigint NOT NULL,
  partitions_created bigint NOT NULL,
  partitions_deleted bigint NOT NULL,
  retention_messages bigint NOT NULL,
  completed_messages bigint NOT NULL,
  evicted_messages   bigint NOT NULL,
  retention_events   bigint NOT NULL,
  lag_count          bigint NOT NULL,  -- delivered messages, and how old they were
  lag_sum_us         bigint NOT NULL,
  lag_max_us         bigint NOT NULL,
  parked_sum         bigint NOT NULL,  -- parked pops at so many looks
  parked_looks       bigint NOT NULL,
  partitions         bigint NOT NULL,  -- as of the last refresh
  flushed_at         timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, width, bucket, queue_name, server)
) WITH (fillfactor = 80);
CREATE INDEX IF NOT EXISTS idx_queue_metrics_queue
  ON queen.queue_metrics (tenant_id, queue_name, width, bucket);
-- For what is about all tenants (the newest minutes, the removal of old rows): rows come in the order of their time.
CREATE INDEX IF NOT EXISTS idx_queue_metrics_bucket ON queen.queue_metrics USING brin (bucket) WITH (pages_per_range = 16);

-- One row a minute and broker (process). Gauges are arrays of mean, least, greatest and last over `looks` looks.
CREATE TABLE IF NOT EXISTS queen.broker_metrics (
  writer        uuid NOT NULL,
  bucket        timestamptz NOT NULL,
  server        text NOT NULL,
  seen_at       timestamptz NOT NULL,
  uptime_s      float8 NOT NULL,
  push_requests bigint NOT NULL,
  push_messages bigint NOT NULL,
  pop_requests  bigint NOT NULL,
  pop_messages  bigint NOT NULL,
  pop_empty     bigint NOT NULL,
  ack_requests  bigint NOT NULL,
  ack_messages  bigint NOT NULL,
  ack_success   bigint NOT NULL,
  ack_failed    bigint NOT NULL,
  dlq           bigint NOT NULL,
  transactions  bigint NOT NULL,
  db_errors     bigint NOT NULL,
  lag_count     bigint NOT NULL,
  lag_sum_us    bigint NOT NULL,
  lag_max_us    bigint NOT NULL,
  looks         bigint NOT NULL,
  cpu_user      float8[] NOT NULL,  -- hundredths of a percent of one core
  cpu_system    float8[] NOT NULL,
  rss_bytes     float8[] NOT NULL,
  pool_size     float8[] NOT NULL,
  pool_idle     float8[] NOT NULL,
  pool_active   float8[] NOT NULL,
  loop_lag_ms   float8[] NOT NULL,
  PRIMARY KEY (writer, bucket)
) WITH (fillfactor = 80);
CREATE INDEX IF NOT EXISTS idx_broker_metrics_bucket ON queen.broker_metrics (bucket);

-- Two gauges of the same thing over p_a and (later) p_b looks, as one.
CREATE OR REPLACE FUNCTION queen.gauge_join(p_first float8[], p_a bigint, p_second float8[], p_b bigint) RETURNS float8[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT ARRAY[(p_first[1] * p_a + p_second[1] * p_b) / (p_a + p_b), least(p_first[2], p_second[2]),
               greatest(p_first[3], p_second[3]), p_second[4]]
$$;

-- Sums over all brokers since the beginning; they outlive the rows.
CREATE TABLE IF NOT EXISTS queen.cluster_totals (
  one           boolean PRIMARY KEY DEFAULT true CHECK (one),
  push_requests bigint NOT NULL DEFAULT 0,
  push_messages bigint NOT NULL DEFAULT 0,
  pop_requests  bigint NOT NULL DEFAULT 0,
  pop_messages  bigint NOT NULL DEFAULT 0,
  ack_requests  bigint NOT NULL DEFAULT 0,
  ack_messages  bigint NOT NULL DEFAULT 0,
  ack_success   bigint NOT NULL DEFAULT 0,
  ack_failed    bigint NOT NULL DEFAULT 0,
  dlq           bigint NOT NULL DEFAULT 0,
  transactions  bigint NOT NULL DEFAULT 0,
  db_errors     bigint NOT NULL DEFAULT 0
);
INSERT INTO queen.cluster_totals (one) VALUES (true) ON CONFLICT DO NOTHING;

-- What each writer has written last; a writer that was silent for a day is over.
CREATE TABLE IF NOT EXISTS queen.metrics_writers (
  writer  uuid PRIMARY KEY,
  seq     bigint NOT NULL,
  seen_at timestamptz NOT NULL
);

-- Writes one flush. It covers p_elapsed_ms that ended p_age_ms ago.
--   p_broker   an object with the counters and gauges of queen.broker_metrics; NULL: this is the continuation of a flush
--              with very many queues
--   p_queues   an array of objects with counters of queen.queue_metrics (absent: 0), each with `tenant` and `queue`, or
--              `tenant` and `partition`, or `queue_id`. What names nothing that exists is left out: a caller that makes
--              up names must not fill the table.
-- False: this number was written before.
CREATE OR REPLACE FUNCTION queen.metrics_flush(p_writer uuid, p_seq bigint, p_server text, p_age_ms bigint,
                                               p_elapsed_ms bigint, p_broker jsonb, p_queues jsonb) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_broker queen.broker_metrics;
  v_now    timestamptz := queen.clock();
  v_at     timestamptz := v_now - (p_age_ms + p_elapsed_ms / 2) * interval '1 millisecond';
BEGIN
  INSERT INTO queen.metrics_writers AS w (writer, seq, seen_at) VALUES (p_writer, p_seq, v_now)
  ON CONFLICT (writer) DO UPDATE SET seq = excluded.seq, seen_at = excluded.seen_at WHERE w.seq < excluded.seq;
  IF NOT FOUND THEN RETURN false; END IF;

  IF p_broker IS NOT NULL THEN
    v_broker := jsonb_populate_record(NULL::queen.broker_metrics,
      p_broker || jsonb_build_object('writer', p_writer, 'server', p_server, 'seen_at', v_now, 'bucket',
                                     date_bin('1 minute', v_at, timestamptz 'epoch')));
    INSERT INTO queen.broker_metrics AS m VALUES (v_broker.*)
    ON CONFLICT (writer, bucket) DO UPDATE
       SET seen_at = excluded.seen_at, uptime_s = excluded.uptime_s,
           push_requests = m.push_requests + excluded.push_requests,
           push_messages = m.push_messages + excluded.push_messages,
           pop_requests = m.pop_requests + excluded.pop_requests, pop_messages = m.pop_messages + excluded.pop_messages,
           pop_empty = m.pop_empty + excluded.pop_empty, ack_requests = m.ack_requests + excluded.ack_requests,
           ack_messages = m.ack_messages + excluded.ack_messages, ack_success = m.ack_success + excluded.ack_success,
           ack_failed = m.ack_failed + excluded.ack_failed, dlq = m.dlq + excluded.dlq,
           transactions = m.transactions + excluded.transactions, db_errors = m.db_errors + excluded.db_errors,
           lag_count = m.lag_count + excluded.lag_count, lag_sum_us = m.lag_sum_us + excluded.lag_sum_us,
           lag_max_us = greatest(m.lag_max_us, excluded.lag_max_us), looks = m.looks + excluded.looks,
           cpu_user = queen.gauge_join(m.cpu_user, m.looks, excluded.cpu_user, excluded.looks),
           cpu_system = queen.gauge_join(m.cpu_system, m.looks, excluded.cpu_system, excluded.looks),
           rss_bytes = queen.gauge_join(m.rss_bytes, m.looks, excluded.rss_bytes, excluded.looks),
           pool_size = queen.gauge_join(m.pool_size, m.looks, excluded.pool_size, excluded.looks),
           pool_idle = queen.gauge_join(m.pool_idle, m.looks, excluded.pool_idle, excluded.looks),
           pool_active = queen.gauge_join(m.pool_active, m.looks, excluded.pool_active, excluded.looks),
           loop_lag_ms = queen.gauge_join(m.loop_lag_ms, m.looks, excluded.loop_lag_ms, excluded.looks);
    UPDATE queen.cluster_totals t
       SET push_requests = t.push_requests + v_broker.push_requests,
           push_messages = t.push_messages + v_broker.push_messages,
           pop_requests = t.pop_requests + v_broker.pop_requests, pop_messages = t.pop_messages + v_broker.pop_messages,
           ack_requests = t.ack_requests + v_broker.ack_requests, ack_messages = t.ack_messages + v_broker.ack_messages,
           ack_success = t.ack_success + v_broker.ack_success, ack_failed = t.ack_failed + v_broker.ack_failed,
           dlq = t.dlq + v_broker.dlq, transactions = t.transactions + v_broker.transactions,
           db_errors = t.db_errors + v_broker.db_errors;
  END IF;

  WITH given AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(p_queues) AS r (
      tenant uuid, queue text, partition bigint, queue_id bigint, push_requests bigint, push_messages bigint,
      pop_requests bigint, pop_messages bigint, pop_empty bigint, ack_requests bigint, ack_messages bigint,
      ack_success bigint, ack_failed bigint, dlq bigint, conflated bigint, transactions bigint, partitions_created bigint,
      partitions_deleted bigint, retention_messages bigint, completed_messages bigint, evicted_messages bigint,
      retention_events bigint, lag_count bigint, lag_sum_us bigint, lag_max_us bigint, parked_sum bigint,
      parked_looks bigint)
  ), found AS (
    SELECT q.id, q.tenant_id, q.name, g.* FROM given g JOIN queen.queues q ON q.tenant_id = g.tenant AND q.name = g.queue
    UNION ALL
    SELECT q.id, q.tenant_id, q.name, g.*
      FROM given g JOIN queen.log_partitions p ON p.id = g.partition
      JOIN queen.queues q ON q.id = p.queue_id AND q.tenant_id = g.tenant
    UNION ALL
    SELECT q.id, q.tenant_id, q.name, g.* FROM given g JOIN queen.queues q ON q.id = g.queue_id
  ), summed AS MATERIALIZED (
    SELECT f.tenant_id, f.name::text AS name, f.id, coalesce(sum(f.push_requests), 0)::bigint AS push_requests,
           coalesce(sum(f.push_messages), 0)::bigint AS push_messages,
           coalesce(sum(f.pop_requests), 0)::bigint AS pop_requests,
           coalesce(sum(f.pop_messages), 0)::bigint AS pop_messages, coalesce(sum(f.pop_empty), 0)::bigint AS pop_empty,
           coalesce(sum(f.ack_requests), 0)::bigint AS ack_requests,
           coalesce(sum(f.ack_messages), 0)::bigint AS ack_messages,
           coalesce(sum(f.ack_success), 0)::bigint AS ack_success, coalesce(sum(f.ack_failed), 0)::bigint AS ack_failed,
           coalesce(sum(f.dlq), 0)::bigint AS dlq, coalesce(sum(f.conflated), 0)::bigint AS conflated,
           coalesce(sum(f.transactions), 0)::bigint AS transactions,
           coalesce(sum(f.partitions_created), 0)::bigint AS partitions_created,
           coalesce(sum(f.partitions_deleted), 0)::bigint AS partitions_deleted,
           coalesce(sum(f.retention_messages), 0)::bigint AS retention_messages,
           coalesce(sum(f.completed_messages), 0)::bigint AS completed_messages,
           coalesce(sum(f.evicted_messages), 0)::bigint AS evicted_messages,
           coalesce(sum(f.retention_events), 0)::bigint AS retention_events,
           coalesce(sum(f.lag_count), 0)::bigint AS lag_count, coalesce(sum(f.lag_sum_us), 0)::bigint AS lag_sum_us,
           coalesce(max(f.lag_max_us), 0)::bigint AS lag_max_us, coalesce(sum(f.parked_sum), 0)::bigint AS parked_sum,
           coalesce(max(f.parked_looks), 0)::bigint AS parked_looks
      FROM found f GROUP BY f.tenant_id, f.name, f.id
  )
  INSERT INTO queen.queue_metrics AS m
  SELECT s.tenant_id, w.width, date_bin(w.step, v_at, timestamptz 'epoch'), s.name, p_server, s.push_requests,
         s.push_messages, s.pop_requests, s.pop_messages, s.pop_empty, s.ack_requests, s.ack_messages, s.ack_success,
         s.ack_failed, s.dlq, s.conflated, s.transactions, s.partitions_created, s.partitions_deleted,
         s.retention_messages, s.completed_messages, s.evicted_messages, s.retention_events, s.lag_count, s.lag_sum_us,
         s.lag_max_us, s.parked_sum, s.parked_looks, coalesce(r.partitions, 0), v_now
    FROM summed s
    CROSS JOIN (VALUES (1::smallint, interval '1 minute'), (60::smallint, interval '1 hour')) AS w (width, step)
    LEFT JOIN queen.stats r ON r.queue_id = s.id
   ORDER BY s.tenant_id, w.width, s.name
  ON CONFLICT (tenant_id, width, bucket, queue_name, server) DO UPDATE
     SET push_requests = m.push_requests + excluded.push_requests,
         push_messages = m.push_messages + excluded.push_messages, pop_requests = m.pop_requests + excluded.pop_requests,
         pop_messages = m.pop_messages + excluded.pop_messages, pop_empty = m.pop_empty + excluded.pop_empty,
         ack_requests = m.ack_requests + excluded.ack_requests, ack_messages = m.ack_messages + excluded.ack_messages,
         ack_success = m.ack_success + excluded.ack_success, ack_failed = m.ack_failed + excluded.ack_failed,
         dlq = m.dlq + excluded.dlq, conflated = m.conflated + excluded.conflated,
         transactions = m.transactions + excluded.transactions,
         partitions_created = m.partitions_created + excluded.partitions_created,
         partitions_deleted = m.partitions_deleted + excluded.partitions_deleted,
         retention_messages = m.retention_messages + excluded.retention_messages,
         completed_messages = m.completed_messages + excluded.completed_messages,
         evicted_messages = m.evicted_messages + excluded.evicted_messages,
         retention_events = m.retention_events + excluded.retention_events, lag_count = m.lag_count + excluded.lag_count,
         lag_sum_us = m.lag_sum_us + excluded.lag_sum_us, lag_max_us = greatest(m.lag_max_us, excluded.lag_max_us),
         parked_sum = m.parked_sum + excluded.parked_sum, parked_looks = m.parked_looks + excluded.parked_looks,
         partitions = excluded.partitions, flushed_at = excluded.flushed_at;
  RETURN true;
END $$;

-- Removes rows from before the cutoff, at most p_rows of each kind. Answers how many of the largest kind; p_rows: there
-- may be more.
CREATE OR REPLACE FUNCTION queen.metrics_prune(p_cutoff timestamptz, p_rows int) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_queues  bigint;
  v_brokers bigint;
BEGIN
  DELETE FROM queen.queue_metrics m
   WHERE m.ctid = ANY (ARRAY(SELECT o.ctid FROM queen.queue_metrics o WHERE o.bucket < p_cutoff LIMIT p_rows
                                FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_queues = ROW_COUNT;
  DELETE FROM queen.broker_metrics m
   WHERE m.ctid = ANY (ARRAY(SELECT o.ctid FROM queen.broker_metrics o WHERE o.bucket < p_cutoff ORDER BY o.bucket LIMIT p_rows));
  GET DIAGNOSTICS v_brokers = ROW_COUNT;
  DELETE FROM queen.metrics_writers w WHERE w.seen_at < queen.clock() - interval '1 day';
  RETURN greatest(v_queues, v_brokers);
END $$;
