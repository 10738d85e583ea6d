-- Queues: coming into existence, configuration, counting, deletion.
--
-- Lock order: the queue row, then its partitions ascending, then consumer rows ascending, then leaf tables.

-- What an option is when nobody set it, by wire names. A queue that a push or a pop brings into existence has
-- the column defaults instead (lease 60), and namespace and task from its name: see queue_ensure.
CREATE OR REPLACE FUNCTION queen.queue_defaults() RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT jsonb_build_object(
    'namespace', '', 'task', '', 'priority', 0, 'leaseTime', 300, 'retryLimit', 3, 'retryDelay', 1000,
    'maxSize', 0, 'ttl', 3600, 'deadLetterQueue', true, 'dlqAfterMaxRetries', true, 'delayedProcessing', 0,
    'windowBuffer', 0, 'retentionEnabled', false, 'retentionSeconds', 0, 'completedRetentionSeconds', 0,
    'maxWaitTimeSeconds', 0, 'minPopWaitTime', 0, 'encryptionEnabled', false, 'dedupWindowSeconds', 3600,
    'retentionSinkHold', '', 'retentionSinkHoldMaxSeconds', 604800)
$$;

-- The options of a stored queue, by wire names.
CREATE OR REPLACE FUNCTION queen.queue_options(q queen.queues) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT jsonb_build_object(
    'namespace', q.namespace, 'task', q.task, 'priority', q.priority, 'leaseTime', q.lease_time,
    'retryLimit', q.retry_limit, 'retryDelay', q.retry_delay, 'maxSize', q.max_queue_size, 'ttl', q.ttl,
    'deadLetterQueue', q.dead_letter_queue, 'dlqAfterMaxRetries', q.dlq_after_max_retries,
    'delayedProcessing', q.delayed_processing, 'windowBuffer', q.window_buffer,
    'retentionEnabled', q.retention_enabled, 'retentionSeconds', q.retention_seconds,
    'completedRetentionSeconds', q.completed_retention_seconds, 'maxWaitTimeSeconds', q.max_wait_time_seconds,
    'minPopWaitTime', q.min_pop_wait_time, 'encryptionEnabled', q.encryption_enabled,
    'dedupWindowSeconds', q.dedup_window_seconds, 'retentionSinkHold', q.retention_sink_hold,
    'retentionSinkHoldMaxSeconds', q.retention_sink_hold_max_seconds)
$$;

-- Makes sure that queues exist, for whoever names one first (a push, an early subscriber). Namespace and task come
-- from the name: `billing.invoices.eu` is (billing, invoices), a name without a dot belongs to neither. Inserts
-- only what a plain look-up misses, in the order of the unique key, so that two callers cannot deadlock. Call it
-- in a short transaction: an insert that meets another's waits for that whole transaction.
CREATE OR REPLACE FUNCTION queen.queue_ensure(p_tenant uuid, p_names text[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
  INSERT INTO queen.queues (tenant_id, name, namespace, task)
  SELECT p_tenant, n.name,
         CASE WHEN strpos(n.name, '.') > 0 THEN split_part(n.name, '.', 1) ELSE '' END, split_part(n.name, '.', 2)
    FROM (SELECT DISTINCT u.name FROM unnest(p_names) AS u (name)) AS n
   WHERE NOT EXISTS (SELECT FROM queen.queues q WHERE q.tenant_id = p_tenant AND q.name = n.name)
   ORDER BY n.name COLLATE "C"
  ON CONFLICT (tenant_id, name) DO NOTHING
$$;

-- Configures a queue, creating it if it is absent. `p_options` holds only what the caller named: a JSON null
-- puts an option back to its default, an absent key keeps the stored value (or takes the default when
-- `p_replace`, or when the queue is new). The row lock is taken before the stored values are read, so two
-- calls in parallel lose no key of either. FOR NO KEY UPDATE: provisioning a partition (a foreign key check)
-- need not wait for it.
CREATE OR REPLACE FUNCTION queen.queue_configure(p_tenant uuid, p_name text, p_replace boolean, p_options jsonb)
RETURNS TABLE (queue_id bigint, created boolean, options text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  v_row      queen.queues;
  v_created  boolean := false;
  v_defaults jsonb := queen.queue_defaults();
  v          jsonb;
BEGIN
  LOOP
    SELECT * INTO v_row FROM queen.queues q WHERE q.tenant_id = p_tenant AND q.name = p_name FOR NO KEY UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO queen.queues (tenant_id, name) VALUES (p_tenant, p_name)
      ON CONFLICT (tenant_id, name) DO NOTHING RETURNING * INTO v_row;
    v_created := FOUND;
    EXIT WHEN v_created;
  END LOOP;

  SELECT (CASE WHEN v_created OR p_replace THEN v_defaults ELSE queen.queue_options(v_row) END)
         || coalesce(jsonb_object_agg(o.key, CASE WHEN o.value = 'null'::jsonb THEN v_defaults -> o.key ELSE o.value END)
                     FILTER (WHERE v_defaults ? o.key), '{}')
    INTO v
    FROM jsonb_each(p_options) AS o;

  UPDATE queen.queues q SET
    namespace = v ->> 'namespace',
    task = v ->> 'task',
    priority = (v ->> 'priority')::int,
    lease_time = (v ->> 'leaseTime')::int,
    retry_limit = (v ->> 'retryLimit')::int,
    retry_delay = (v ->> 'retryDelay')::int,
    max_queue_size = (v ->> 'maxSize')::int,
    ttl = (v ->> 'ttl')::int,
    dead_letter_queue = (v ->> 'deadLetterQueue')::boolean,
    dlq_after_max_retries = (v ->> 'dlqAfterMaxRetries')::boolean,
    delayed_processing = (v ->> 'delayedProcessing')::int,
    window_buffer = (v ->> 'windowBuffer')::int,
    retention_enabled = (v ->> 'retentionEnabled')::boolean,
    retention_seconds = (v ->> 'retentionSeconds')::int,
    completed_retention_seconds = (v ->> 'completedRetentionSeconds')::int,
    max_wait_time_seconds = (v ->> 'maxWaitTimeSeconds')::int,
    min_pop_wait_time = least(greatest((v ->> 'minPopWaitTime')::int, 0), 60000),
    encryption_enabled = (v ->> 'encryptionEnabled')::boolean,
    dedup_window_seconds = greatest((v ->> 'dedupWindowSeconds')::int, 0),
    retention_sink_hold = v ->> 'retentionSinkHold',
    retention_sink_hold_max_seconds = (v ->> 'retentionSinkHoldMaxSeconds')::int
   WHERE q.id = v_row.id
  RETURNING q.* INTO v_row;

  RETURN QUERY SELECT v_row.id, v_created, queen.queue_options(v_row)::text;
END $$;

-- Counters by watermark arithmetic, one row a partition; no message and no segment is looked at.
--
-- Which cursors count: the named groups of the queue; queue mode only where the queue has no named group (a
-- single debugging pop without a group must not pin the backlog for ever). Of those that count the furthest
-- behind decides; a partition that none of them has met yet is pending as a whole. With `p_group` that group
-- alone counts. `processing` is what live leases of counted groups cover, never above `pending`.
CREATE OR REPLACE FUNCTION queen.partition_counts(p_tenant uuid, p_queue_id bigint, p_group text)
RETURNS TABLE (partition_id bigint, queue_id bigint, total bigint, pending bigint, processing bigint)
LANGUAGE sql STABLE AS $$
  WITH parts AS MATERIALIZED (
    SELECT p.id, p.queue_id, p.last_offset, p.log_start
      FROM queen.queues q JOIN queen.log_partitions p ON p.queue_id = q.id
     WHERE q.tenant_id = p_tenant AND (p_queue_id IS NULL OR q.id = p_queue_id)
  ), cursors AS MATERIALIZED (
    SELECT p.id, p.queue_id, p.last_offset, c.consumer_group <> '__QUEUE_MODE__' AS named,
           greatest(c.committed, p.log_start - 1) AS done,
           CASE WHEN c.worker_id IS NOT NULL AND c.lease_expires_at > t.now
                THEN greatest(c.batch_end - greatest(c.committed, p.log_start - 1), 0) END AS leased
      FROM (SELECT queen.clock() AS now) AS t, parts p JOIN queen.log_consumers c ON c.partition_id = p.id
     WHERE p_group IS NULL OR c.consumer_group = p_group
  ), named_queues AS (
    SELECT DISTINCT c.queue_id FROM cursors c WHERE c.named
  ), furthest AS (
    SELECT c.id, min(c.done) AS done, coalesce(max(c.leased), 0) AS leased
      FROM cursors c
     WHERE c.named OR p_group IS NOT NULL OR c.queue_id NOT IN (SELECT n.queue_id FROM named_queues n)
     GROUP BY c.id
  )
  SELECT p.id, p.queue_id, p.last_offset - p.log_start + 1,
         p.last_offset - coalesce(f.done, p.log_start - 1),
         least(coalesce(f.leased, 0), p.last_offset - coalesce(f.done, p.log_start - 1))
    FROM parts p LEFT JOIN furthest f ON f.id = p.id
$$;

-- Retained bytes and segments a queue, refreshed by a background job: they need a walk over all segments,
-- which no read of the API may cost.
CREATE TABLE IF NOT EXISTS queen.queue_retained (
  queue_id       bigint PRIMARY KEY REFERENCES queen.queues (id) ON DELETE CASCADE,
  retained_bytes bigint NOT NULL,
  segments       bigint NOT NULL,
  computed_at    timestamptz NOT NULL
);

CREATE OR REPLACE FUNCTION queen.queue_list(p_tenant uuid)
RETURNS TABLE (id bigint, name varchar, namespace text, task text, created_at timestamptz, partitions bigint,
               total bigint, pending bigint, processing bigint, retained_bytes bigint, segments bigint)
LANGUAGE sql STABLE AS $$
  WITH counts AS (
    SELECT c.queue_id, count(*) AS partitions, sum(c.total)::bigint AS total, sum(c.pending)::bigint AS pending,
           sum(c.processing)::bigint AS processing
      FROM queen.partition_counts(p_tenant, NULL, NULL) c GROUP BY c.queue_id
  )
  SELECT q.id, q.name, q.namespace, q.task, q.created_at, coalesce(c.partitions, 0), coalesce(c.total, 0),
         coalesce(c.pending, 0), coalesce(c.processing, 0), coalesce(r.retained_bytes, 0), coalesce(r.segments, 0)
    FROM queen.queues q
    LEFT JOIN counts c ON c.queue_id = q.id
    LEFT JOIN queen.queue_retained r ON r.queue_id = q.id
   WHERE q.tenant_id = p_tenant
   ORDER BY q.name
$$;

-- One queue without its partitions; no row when there is none. `conflation`: the policy of `p_group` on this
-- queue, registered on the queue itself or through a namespace and task that match it.
CREATE OR REPLACE FUNCTION queen.queue_read(p_tenant uuid, p_name text, p_group text)
RETURNS TABLE (id bigint, name varchar, created_at timestamptz, options text, retained_bytes bigint,
               segments bigint, conflation boolean)
LANGUAGE sql STABLE AS $$
  SELECT q.id, q.name, q.created_at, queen.queue_options(q)::text, coalesce(r.retained_bytes, 0),
         coalesce(r.segments, 0),
         EXISTS (SELECT 1 FROM queen.consumer_groups_metadata m
                  WHERE m.tenant_id = p_tenant AND m.consumer_group = p_group AND m.partition_name = ''
                    AND m.conflation
                    AND (m.queue_id = q.id
                         OR (m.queue_id IS NULL AND m.namespace IN ('', q.namespace) AND m.task IN ('', q.task))))
    FROM queen.queues q LEFT JOIN queen.queue_retained r ON r.queue_id = q.id
   WHERE q.tenant_id = p_tenant AND q.name = p_name
$$;

-- Every partition of a queue with its counters, by name. `newest_at` is only a fact while something lives.
CREATE OR REPLACE FUNCTION queen.queue_partitions(p_tenant uuid, p_queue_id bigint, p_group text)
RETURNS TABLE (id bigint, name varchar, created_at timestamptz, oldest_at timestamptz, newest_at timestamptz,
               total bigint, pending bigint, processing bigint, dead bigint)
LANGUAGE sql STABLE AS $$
  SELECT p.id, p.name, p.created_at, p.oldest_live_at,
         CASE WHEN p.log_start <= p.last_offset THEN p.last_created_at END,
         c.total, c.pending, c.processing, coalesce(d.dead, 0)
    FROM queen.partition_counts(p_tenant, p_queue_id, p_group) c
    JOIN queen.log_partitions p ON p.id = c.partition_id
    LEFT JOIN (SELECT d.partition_id, count(*) AS dead
                 FROM queen.log_dlq d JOIN queen.log_partitions o ON o.id = d.partition_id
                WHERE o.queue_id = p_queue_id GROUP BY d.partition_id) d ON d.partition_id = p.id
   ORDER BY p.name
$$;

-- Deletes a queue with everything that hangs off it, in one transaction. False: there was none.
--
-- A cascade from the queue row would lock partitions and consumers in no order and so deadlock with flushes
-- and acks; hence all of them are locked first, in the global order. What has no foreign key (sidecar rows,
-- dead letters) goes explicitly; the rest too, since a set-based DELETE is far cheaper than a trigger a row.
-- Keys, timers and traces stay: a timer brings its queue back when it fires.
CREATE OR REPLACE FUNCTION queen.queue_delete(p_tenant uuid, p_name text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_queue bigint;
  v_parts bigint[];
BEGIN
  SELECT q.id INTO v_queue FROM queen.queues q WHERE q.tenant_id = p_tenant AND q.name = p_name FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;

  -- Provisioning takes KEY SHARE on the queue row, so from here on no partition can be added.
  SELECT coalesce(array_agg(l.id), '{}') INTO v_parts
    FROM (SELECT p.id FROM queen.log_partitions p WHERE p.queue_id = v_queue ORDER BY p.id FOR UPDATE) AS l;
  PERFORM 1 FROM (SELECT 1 FROM queen.log_consumers c WHERE c.partition_id = ANY (v_parts)
                   ORDER BY c.partition_id, c.consumer_group FOR UPDATE) AS l;

  DELETE FROM queen.log_consumers WHERE partition_id = ANY (v_parts);
  INSERT INTO queen.log_garbage (partition_id) SELECT unnest(v_parts);
  DELETE FROM queen.log_dlq WHERE partition_id = ANY (v_parts);
  DELETE FROM queen.log_partitions WHERE queue_id = v_queue;
  DELETE FROM queen.queues WHERE id = v_queue;
  RETURN true;
END $$;
