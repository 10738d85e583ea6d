-- Reads of the statistics: bars of graphs over what brokers have flushed (151), and what has to be looked at live.
--
-- p_step is the width of a bar in minutes. Bars begin at multiples of it since 1970; the first one holds p_from. From an hour
-- on, the rows by the hour are read. Plans are made for the values: which filters are given makes all the difference.

-- Where the bar begins that holds an instant.
CREATE OR REPLACE FUNCTION queen.bar_start(p_step int, p_at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT date_bin(p_step * interval '1 minute', p_at, timestamptz 'epoch')
$$;

-- One row a bar and queue, over all brokers. At most p_queues queues: those with most traffic. `parked` is the number of
-- pops that waited on average.
CREATE OR REPLACE FUNCTION queen.traffic_bars(p_tenant uuid, p_from timestamptz, p_to timestamptz, p_step int, p_queue text,
                                              p_queues int)
RETURNS TABLE (bucket timestamptz, queue text, push_requests bigint, push_messages bigint, pop_messages bigint,
               pop_empty bigint, ack_requests bigint, ack_messages bigint, ack_success bigint, ack_failed bigint,
               transactions bigint, partitions_created bigint, partitions_deleted bigint, partitions bigint,
               lag_count bigint, lag_sum_us bigint, lag_max_us bigint, parked float8)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH cells AS MATERIALIZED (
    SELECT queen.bar_start(p_step, m.bucket) AS bar, m.queue_name, m.server,
           sum(m.push_requests) AS push_requests, sum(m.push_messages) AS push_messages,
           sum(m.pop_messages) AS pop_messages, sum(m.pop_empty) AS pop_empty, sum(m.ack_requests) AS ack_requests,
           sum(m.ack_messages) AS ack_messages, sum(m.ack_success) AS ack_success, sum(m.ack_failed) AS ack_failed,
           sum(m.transactions) AS transactions, sum(m.partitions_created) AS created,
           sum(m.partitions_deleted) AS deleted, max(m.partitions) AS partitions, sum(m.lag_count) AS lag_count,
           sum(m.lag_sum_us) AS lag_sum_us, max(m.lag_max_us) AS lag_max_us,
           coalesce(sum(m.parked_sum)::float8 / nullif(sum(m.parked_looks), 0), 0) AS parked
      FROM queen.queue_metrics m
     WHERE m.tenant_id = p_tenant AND m.width = CASE WHEN p_step < 60 THEN 1 ELSE 60 END
       AND m.bucket >= queen.bar_start(p_step, p_from) AND m.bucket <= p_to
       AND (p_queue IS NULL OR m.queue_name = p_queue)
     GROUP BY 1, 2, 3
  ), busiest AS MATERIALIZED (
    SELECT c.queue_name FROM cells c GROUP BY c.queue_name
     ORDER BY sum(c.push_messages + c.pop_messages) DESC, c.queue_name LIMIT p_queues
  )
  SELECT c.bar, c.queue_name, sum(c.push_requests)::bigint, sum(c.push_messages)::bigint, sum(c.pop_messages)::bigint,
         sum(c.pop_empty)::bigint, sum(c.ack_requests)::bigint, sum(c.ack_messages)::bigint, sum(c.ack_success)::bigint,
         sum(c.ack_failed)::bigint, sum(c.transactions)::bigint, sum(c.created)::bigint, sum(c.deleted)::bigint,
         max(c.partitions), sum(c.lag_count)::bigint, sum(c.lag_sum_us)::bigint, max(c.lag_max_us), sum(c.parked)
    FROM cells c JOIN busiest b ON b.queue_name = c.queue_name
   GROUP BY c.bar, c.queue_name ORDER BY c.bar, c.queue_name;
END $$;

-- Parked pops by bar, queue and broker.
CREATE OR REPLACE FUNCTION queen.parked_bars(p_tenant uuid, p_from timestamptz, p_to timestamptz, p_step int, p_queue text,
                                             p_rows int)
RETURNS TABLE (bucket timestamptz, queue text, server text, parked float8)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT * FROM (
    SELECT queen.bar_start(p_step, m.bucket), m.queue_name, m.server,
           sum(m.parked_sum)::float8 / nullif(sum(m.parked_looks), 0) AS parked
      FROM queen.queue_metrics m
     WHERE m.tenant_id = p_tenant AND m.width = CASE WHEN p_step < 60 THEN 1 ELSE 60 END
       AND m.bucket >= queen.bar_start(p_step, p_from) AND m.bucket <= p_to AND m.parked_sum > 0
       AND (p_queue IS NULL OR m.queue_name = p_queue)
     GROUP BY 1, 2, 3 ORDER BY 1 DESC, 4 DESC LIMIT p_rows) AS newest
   ORDER BY 1, 2, 3;
END $$;

-- Messages that were stored, by bar of p_step minutes, over the queues that filters let through.
CREATE OR REPLACE FUNCTION queen.stored_bars(p_tenant uuid, p_from timestamptz, p_to timestamptz, p_step int, p_queue text,
                                             p_namespace text, p_task text)
RETURNS TABLE (bucket timestamptz, messages bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT queen.bar_start(p_step, m.bucket), sum(m.push_messages)::bigint
    FROM queen.queue_metrics m
   WHERE m.tenant_id = p_tenant AND m.width = CASE WHEN p_step < 60 THEN 1 ELSE 60 END
     AND m.bucket >= queen.bar_start(p_step, p_from) AND m.bucket <= p_to
     AND (p_queue IS NULL OR m.queue_name = p_queue)
     AND (p_namespace IS NULL AND p_task IS NULL
          OR m.queue_name IN (SELECT q.name FROM queen.queues q
                               WHERE q.tenant_id = p_tenant AND (p_namespace IS NULL OR q.namespace = p_namespace)
                                 AND (p_task IS NULL OR q.task = p_task)))
   GROUP BY 1 HAVING sum(m.push_messages) > 0 ORDER BY 1;
END $$;

-- What retention deleted, by bar and by key: '' for the whole, else the namespace, task or queue (p_by).
CREATE OR REPLACE FUNCTION queen.retention_bars(p_tenant uuid, p_from timestamptz, p_to timestamptz, p_step int,
                                                p_queue text, p_by text)
RETURNS TABLE (bucket timestamptz, key text, queues bigint, retention bigint, completed bigint, evicted bigint, events bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH rows AS MATERIALIZED (
    SELECT queen.bar_start(p_step, m.bucket) AS bar, m.queue_name, m.retention_messages AS r, m.completed_messages AS c,
           m.evicted_messages AS e, m.retention_events AS n,
           CASE p_by WHEN 'namespace' THEN coalesce(q.namespace, '') WHEN 'task' THEN coalesce(q.task, '')
                     WHEN 'queue' THEN m.queue_name END AS by
      FROM queen.queue_metrics m
      LEFT JOIN queen.queues q ON q.tenant_id = m.tenant_id AND q.name = m.queue_name
     WHERE m.tenant_id = p_tenant AND m.width = CASE WHEN p_step < 60 THEN 1 ELSE 60 END
       AND m.bucket >= queen.bar_start(p_step, p_from) AND m.bucket <= p_to AND m.retention_events > 0
       AND (p_queue IS NULL OR m.queue_name = p_queue)
  )
  SELECT r.bar, NULL::text, NULL::bigint, sum(r.r)::bigint, sum(r.c)::bigint, sum(r.e)::bigint, sum(r.n)::bigint
    FROM rows r GROUP BY r.bar
  UNION ALL
  SELECT NULL, r.by, count(DISTINCT r.queue_name), sum(r.r)::bigint, sum(r.c)::bigint, sum(r.e)::bigint, sum(r.n)::bigint
    FROM rows r WHERE p_by IS NOT NULL GROUP BY r.by
   ORDER BY 1 NULLS LAST, 2;
END $$;

-- Who does how much: one row a key (namespace, task, queue; `all`: one row), what passed in the time and where things
-- stand. The keys with most traffic first, at most p_limit; `matches` says how many there are.
CREATE OR REPLACE FUNCTION queen.workload_keys(p_tenant uuid, p_from timestamptz, p_to timestamptz, p_step int, p_by text,
                                               p_queue text, p_namespace text, p_task text, p_limit int)
RETURNS TABLE (key text, namespace text, task text, queues bigint, push_messages bigint, push_requests bigint,
               pop_messages bigint, pop_empty bigint, ack_requests bigint, ack_success bigint, ack_failed bigint,
               transactions bigint, conflated bigint, partitions_created bigint, partitions_deleted bigint, parked float8,
               lag_count bigint, lag_sum_us bigint, lag_max_us bigint, touched bigint, active bigint, pending bigint,
               processing bigint, dead bigint, retained_bytes bigint, partitions bigint, groups bigint,
               without_group bigint, pending_without_group bigint, matches bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH named AS MATERIALIZED (
    SELECT q.id, q.name::text AS name, q.namespace, q.task,
           CASE p_by WHEN 'namespace' THEN q.namespace WHEN 'task' THEN q.task WHEN 'queue' THEN q.name ELSE '' END AS key
      FROM queen.queues q
     WHERE q.tenant_id = p_tenant AND (p_queue IS NULL OR q.name = p_queue)
       AND (p_namespace IS NULL OR q.namespace = p_namespace) AND (p_task IS NULL OR q.task = p_task)
  ), passed AS MATERIALIZED (
    SELECT m.queue_name AS name, sum(m.push_messages) AS push_messages, sum(m.push_requests) AS push_requests,
           sum(m.pop_messages) AS pop_messages, sum(m.pop_empty) AS pop_empty, sum(m.ack_requests) AS ack_requests,
           sum(m.ack_success) AS ack_success, sum(m.ack_failed) AS ack_failed, sum(m.transactions) AS transactions,
           sum(m.conflated) AS conflated, sum(m.partitions_created) AS created, sum(m.partitions_deleted) AS deleted,
           coalesce(sum(m.parked_sum)::float8 / nullif(sum(m.parked_looks), 0), 0) AS parked,
           sum(m.lag_count) AS lag_count, sum(m.lag_sum_us) AS lag_sum_us, max(m.lag_max_us) AS lag_max_us
      FROM queen.queue_metrics m
     WHERE m.tenant_id = p_tenant AND m.width = CASE WHEN p_step < 60 THEN 1 ELSE 60 END
       AND m.bucket >= queen.bar_start(p_step, p_from) AND m.bucket <= p_to
       AND (p_queue IS NULL OR m.queue_name = p_queue)
     GROUP BY m.queue_name, m.server
  ), traffic AS MATERIALIZED (
    SELECT p.name, sum(p.push_messages) AS push_messages, sum(p.push_requests) AS push_requests,
           sum(p.pop_messages) AS pop_messages, sum(p.pop_empty) AS pop_empty, sum(p.ack_requests) AS ack_requests,
           sum(p.ack_success) AS ack_success, sum(p.ack_failed) AS ack_failed, sum(p.transactions) AS transactions,
           sum(p.conflated) AS conflated, sum(p.created) AS created, sum(p.deleted) AS deleted, sum(p.parked) AS parked,
           sum(p.lag_count) AS lag_count, sum(p.lag_sum_us) AS lag_sum_us, max(p.lag_max_us) AS lag_max_us
      FROM passed p GROUP BY p.name
  ), groups AS (
    SELECT n.key, count(DISTINCT g.consumer_group) AS n
      FROM named n JOIN queen.stats_groups g ON g.queue_id = n.id
     WHERE g.consumer_group <> '__QUEUE_MODE__' GROUP BY n.key
  ), keys AS (
    -- A queue that is gone has left its traffic, and no namespace.
    SELECT coalesce(n.key, CASE WHEN p_by = 'queue' THEN t.name ELSE '' END) AS key, coalesce(n.namespace, '') AS namespace,
           coalesce(n.task, '') AS task, n.name IS NOT NULL AS exists, t.*, s.pending, s.processing, s.dead_letter,
           s.partitions, s.consumers, r.retained_bytes
      FROM named n
      FULL JOIN (SELECT t.* FROM traffic t
                  WHERE (p_namespace IS NULL AND p_task IS NULL) OR t.name IN (SELECT n.name FROM named n)) AS t
        ON t.name = n.name
      LEFT JOIN queen.stats s ON s.queue_id = n.id
      LEFT JOIN queen.queue_retained r ON r.queue_id = n.id
  )
  SELECT k.key, max(k.namespace), max(k.task), count(*) FILTER (WHERE k.exists),
         coalesce(sum(k.push_messages), 0)::bigint, coalesce(sum(k.push_requests), 0)::bigint,
         coalesce(sum(k.pop_messages), 0)::bigint, coalesce(sum(k.pop_empty), 0)::bigint,
         coalesce(sum(k.ack_requests), 0)::bigint, coalesce(sum(k.ack_success), 0)::bigint,
         coalesce(sum(k.ack_failed), 0)::bigint, coalesce(sum(k.transactions), 0)::bigint,
         coalesce(sum(k.conflated), 0)::bigint, coalesce(sum(k.created), 0)::bigint, coalesce(sum(k.deleted), 0)::bigint,
         coalesce(sum(k.parked), 0), coalesce(sum(k.lag_count), 0)::bigint, coalesce(sum(k.lag_sum_us), 0)::bigint,
         coalesce(max(k.lag_max_us), 0), count(*) FILTER (WHERE k.push_messages IS NOT NULL),
         count(*) FILTER (WHERE k.push_messages > 0 OR k.pop_messages > 0),
         coalesce(sum(k.pending), 0)::bigint, coalesce(sum(k.processing), 0)::bigint,
         coalesce(sum(k.dead_letter), 0)::bigint, coalesce(sum(k.retained_bytes), 0)::bigint,
         coalesce(sum(k.partitions), 0)::bigint, coalesce((SELECT g.n FROM groups g WHERE g.key = k.key), 0),
         count(*) FILTER (WHERE k.consumers = 0), coalesce(sum(k.pending) FILTER (WHERE k.consumers = 0), 0)::bigint,
         count(*) OVER ()
    FROM keys k GROUP BY k.key
   ORDER BY coalesce(sum(k.push_messages), 0) + coalesce(sum(k.pop_messages), 0) DESC, coalesce(sum(k.pending), 0) DESC, k.key
   LIMIT p_limit;
END $$;

-- The same over time, for these keys.
CREATE OR REPLACE FUNCTION queen.workload_bars(p_tenant uuid, p_from timestamptz, p_to timestamptz, p_step int, p_by text,
                                               p_keys text[], p_queue text, p_namespace text, p_task text)
RETURNS TABLE (key text, bucket timestamptz, push bigint, pop bigint, pop_empty bigint, ack_failed bigint, parked float8,
               lag_count bigint, lag_sum_us bigint, lag_max_us bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT c.key, c.bar, sum(c.push)::bigint, sum(c.pop)::bigint, sum(c.empty)::bigint, sum(c.failed)::bigint, sum(c.parked),
         sum(c.lag_count)::bigint, sum(c.lag_sum)::bigint, max(c.lag_max)
    FROM (
      SELECT CASE p_by WHEN 'namespace' THEN coalesce(q.namespace, '') WHEN 'task' THEN coalesce(q.task, '')
                       WHEN 'queue' THEN m.queue_name ELSE '' END AS key,
             queen.bar_start(p_step, m.bucket) AS bar, m.queue_name, m.server, sum(m.push_messages) AS push,
             sum(m.pop_messages) AS pop, sum(m.pop_empty) AS empty, sum(m.ack_failed) AS failed,
             coalesce(sum(m.parked_sum)::float8 / nullif(sum(m.parked_looks), 0), 0) AS parked,
             sum(m.lag_count) AS lag_count, sum(m.lag_sum_us) AS lag_sum, max(m.lag_max_us) AS lag_max
        FROM queen.queue_metrics m
        LEFT JOIN queen.queues q ON q.tenant_id = m.tenant_id AND q.name = m.queue_name
       WHERE m.tenant_id = p_tenant AND m.width = CASE WHEN p_step < 60 THEN 1 ELSE 60 END
         AND m.bucket >= queen.bar_start(p_step, p_from) AND m.bucket <= p_to
         AND (p_queue IS NULL OR m.queue_name = p_queue) AND (p_namespace IS NULL OR q.namespace = p_namespace)
         AND (p_task IS NULL OR q.task = p_task)
       GROUP BY 1, 2, 3, 4) AS c
   WHERE c.key = ANY (p_keys)
   GROUP BY c.key, c.bar ORDER BY c.key, c.bar;
END $$;

-- How much a tenant has stored and finished since p_from: what an overview shows as rates.
CREATE OR REPLACE FUNCTION queen.traffic_since(p_tenant uuid, p_from timestamptz)
RETURNS TABLE (stored bigint, finished bigint)
LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(m.push_messages), 0)::bigint, coalesce(sum(m.ack_success), 0)::bigint
    FROM queen.queue_metrics m WHERE m.tenant_id = p_tenant AND m.width = 1 AND m.bucket >= p_from
$$;

-- Brokers by bar; p_server NULL: all.
CREATE OR REPLACE FUNCTION queen.broker_bars(p_from timestamptz, p_to timestamptz, p_step int, p_server text)
RETURNS TABLE (bucket timestamptz, server text, push_requests bigint, push_messages bigint, pop_requests bigint,
               pop_messages bigint, pop_empty bigint, ack_requests bigint, ack_messages bigint, ack_success bigint,
               ack_failed bigint, dlq bigint, transactions bigint, db_errors bigint, lag_count bigint, lag_sum_us bigint,
               lag_max_us bigint, cpu_user float8[], cpu_system float8[], rss_bytes float8[], pool_size float8[],
               pool_idle float8[], pool_active float8[], loop_lag_ms float8[], uptime_s float8[], last_at timestamptz)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT b.bar, b.server, sum(b.push_requests)::bigint, sum(b.push_messages)::bigint, sum(b.pop_requests)::bigint,
         sum(b.pop_messages)::bigint, sum(b.pop_empty)::bigint, sum(b.ack_requests)::bigint,
         sum(b.ack_messages)::bigint, sum(b.ack_success)::bigint, sum(b.ack_failed)::bigint, sum(b.dlq)::bigint,
         sum(b.transactions)::bigint, sum(b.db_errors)::bigint, sum(b.lag_count)::bigint, sum(b.lag_sum_us)::bigint,
         max(b.lag_max_us),
         ARRAY[avg(b.cpu_user[1]), min(b.cpu_user[2]), max(b.cpu_user[3]), max(b.cpu_user[4]) FILTER (WHERE b.newest)],
         ARRAY[avg(b.cpu_system[1]), min(b.cpu_system[2]), max(b.cpu_system[3]),
               max(b.cpu_system[4]) FILTER (WHERE b.newest)],
         ARRAY[avg(b.rss_bytes[1]), min(b.rss_bytes[2]), max(b.rss_bytes[3]),
               max(b.rss_bytes[4]) FILTER (WHERE b.newest)],
         ARRAY[avg(b.pool_size[1]), min(b.pool_size[2]), max(b.pool_size[3]),
               max(b.pool_size[4]) FILTER (WHERE b.newest)],
         ARRAY[avg(b.pool_idle[1]), min(b.pool_idle[2]), max(b.pool_idle[3]),
               max(b.pool_idle[4]) FILTER (WHERE b.newest)],
         ARRAY[avg(b.pool_active[1]), min(b.pool_active[2]), max(b.pool_active[3]),
               max(b.pool_active[4]) FILTER (WHERE b.newest)],
         ARRAY[avg(b.loop_lag_ms[1]), min(b.loop_lag_ms[2]), max(b.loop_lag_ms[3]),
               max(b.loop_lag_ms[4]) FILTER (WHERE b.newest)],
         ARRAY[avg(b.uptime_s), min(b.uptime_s), max(b.uptime_s), max(b.uptime_s) FILTER (WHERE b.newest)],
         max(b.seen_at)
    FROM (SELECT m.*, queen.bar_start(p_step, m.bucket) AS bar,
                 row_number() OVER (PARTITION BY queen.bar_start(p_step, m.bucket), m.server ORDER BY m.seen_at DESC) = 1
                   AS newest
            FROM queen.broker_metrics m
           WHERE m.bucket >= queen.bar_start(p_step, p_from) AND m.bucket <= p_to
             AND (p_server IS NULL OR m.server = p_server)
         ) AS b
   GROUP BY b.bar, b.server ORDER BY b.bar, b.server;
END $$;

-- Traffic of all tenants by bar, of the queues that filters let through (NULL: all); p_server NULL: over all brokers.
CREATE OR REPLACE FUNCTION queen.traffic_all_bars(p_from timestamptz, p_to timestamptz, p_step int, p_queue text,
                                                  p_namespace text, p_task text, p_server text)
RETURNS TABLE (bucket timestamptz, push_requests bigint, push_messages bigint, pop_requests bigint, pop_messages bigint,
               pop_empty bigint, ack_requests bigint, ack_messages bigint, ack_success bigint, ack_failed bigint, dlq bigint,
               transactions bigint, lag_count bigint, lag_sum_us bigint, lag_max_us bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT queen.bar_start(p_step, m.bucket), sum(m.push_requests)::bigint, sum(m.push_messages)::bigint,
         sum(m.pop_requests)::bigint, sum(m.pop_messages)::bigint, sum(m.pop_empty)::bigint,
         sum(m.ack_requests)::bigint, sum(m.ack_messages)::bigint, sum(m.ack_success)::bigint, sum(m.ack_failed)::bigint,
         sum(m.dlq)::bigint, sum(m.transactions)::bigint, sum(m.lag_count)::bigint, sum(m.lag_sum_us)::bigint,
         max(m.lag_max_us)
    FROM queen.queue_metrics m
   WHERE m.width = CASE WHEN p_step < 60 THEN 1 ELSE 60 END
     AND m.bucket >= queen.bar_start(p_step, p_from) AND m.bucket <= p_to
     AND (p_queue IS NULL OR m.queue_name = p_queue) AND (p_server IS NULL OR m.server = p_server)
     AND (p_namespace IS NULL AND p_task IS NULL
          OR EXISTS (SELECT FROM queen.queues q
                      WHERE q.tenant_id = m.tenant_id AND q.name = m.queue_name
                        AND (p_namespace IS NULL OR q.namespace = p_namespace) AND (p_task IS NULL OR q.task = p_task)))
   GROUP BY 1 ORDER BY 1;
END $$;

-- The busiest queues of all tenants in a time; queues of one name count as one.
CREATE OR REPLACE FUNCTION queen.traffic_all_queues(p_from timestamptz, p_to timestamptz, p_step int, p_queue text,
                                                    p_server text, p_limit int)
RETURNS TABLE (queue text, push_messages bigint, pop_messages bigint, ack_success bigint, ack_failed bigint,
               pop_empty bigint, lag_count bigint, lag_sum_us bigint, lag_max_us bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT m.queue_name, sum(m.push_messages)::bigint, sum(m.pop_messages)::bigint, sum(m.ack_success)::bigint,
         sum(m.ack_failed)::bigint, sum(m.pop_empty)::bigint, sum(m.lag_count)::bigint, sum(m.lag_sum_us)::bigint,
         max(m.lag_max_us)
    FROM queen.queue_metrics m
   WHERE m.width = CASE WHEN p_step < 60 THEN 1 ELSE 60 END
     AND m.bucket >= queen.bar_start(p_step, p_from) AND m.bucket <= p_to
     AND (p_queue IS NULL OR m.queue_name = p_queue) AND (p_server IS NULL OR m.server = p_server)
   GROUP BY m.queue_name ORDER BY sum(m.push_messages) + sum(m.pop_messages) DESC, m.queue_name LIMIT p_limit;
END $$;

-- For scrapes: each queue's newest minute of the last five, over all brokers and tenants. A minute that is over goes before
-- the running one, which says little about a minute. The busiest p_limit queues.
CREATE OR REPLACE FUNCTION queen.metrics_newest(p_limit int)
RETURNS TABLE (queue text, push_requests bigint, push_messages bigint, pop_messages bigint, pop_empty bigint,
               ack_success bigint, ack_failed bigint, conflated bigint, transactions bigint, lag_count bigint,
               lag_sum_us bigint, lag_max_us bigint, parked float8, age_ms bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := queen.clock();
BEGIN
  RETURN QUERY
  WITH recent AS MATERIALIZED (
    SELECT m.*, rank() OVER (PARTITION BY m.queue_name
                             ORDER BY m.bucket > v_now - interval '1 minute', m.bucket DESC) AS nth
      FROM queen.queue_metrics m WHERE m.width = 1 AND m.bucket >= v_now - interval '5 minutes'
  )
  SELECT r.queue_name, sum(r.push_requests)::bigint, sum(r.push_messages)::bigint, sum(r.pop_messages)::bigint,
         sum(r.pop_empty)::bigint, sum(r.ack_success)::bigint, sum(r.ack_failed)::bigint, sum(r.conflated)::bigint,
         sum(r.transactions)::bigint, sum(r.lag_count)::bigint, sum(r.lag_sum_us)::bigint, max(r.lag_max_us),
         coalesce(sum(r.parked_sum::float8 / nullif(r.parked_looks, 0)), 0),
         greatest(extract(epoch FROM v_now - max(r.flushed_at)) * 1000, 0)::bigint
    FROM recent r WHERE r.nth = 1
   GROUP BY r.queue_name ORDER BY sum(r.push_messages) + sum(r.pop_messages) DESC, r.queue_name LIMIT p_limit;
END $$;

-- For scrapes: dead letters and backlog a queue name, where there are any.
CREATE OR REPLACE FUNCTION queen.metrics_backlog(p_limit int)
RETURNS TABLE (queue text, pending bigint, dead bigint, partitions bigint)
LANGUAGE sql STABLE AS $$
  SELECT q.name::text, sum(s.pending)::bigint, sum(s.dead_letter)::bigint, sum(s.partitions)::bigint
    FROM queen.stats s JOIN queen.queues q ON q.id = s.queue_id
   GROUP BY q.name ORDER BY sum(s.pending) + sum(s.dead_letter) DESC, q.name LIMIT p_limit
$$;

-- For scrapes: how far groups are behind, by names of queue and group; those furthest behind, p_limit of them.
CREATE OR REPLACE FUNCTION queen.metrics_groups(p_limit int)
RETURNS TABLE (queue text, consumer_group text, lag bigint, behind bigint, lag_ms bigint)
LANGUAGE sql STABLE AS $$
  SELECT q.name::text, g.consumer_group, sum(g.lag)::bigint, sum(g.behind)::bigint,
         coalesce(greatest(extract(epoch FROM queen.clock() - min(g.since)) * 1000, 0), 0)::bigint
    FROM queen.stats_groups g JOIN queen.queues q ON q.id = g.queue_id
   GROUP BY q.name, g.consumer_group ORDER BY sum(g.lag) DESC, q.name, g.consumer_group LIMIT p_limit
$$;

-- Expired keys that the sweep has not deleted yet, counted up to p_most in each shard. `capped`: there may be more.
CREATE OR REPLACE FUNCTION queen.metrics_kv_expired(p_most int) RETURNS TABLE (expired bigint, capped boolean)
LANGUAGE sql STABLE AS $$
  SELECT sum(n.found)::bigint, bool_or(n.found >= p_most)
    FROM (SELECT queen.clock() AS now) AS t, generate_series(0, 63) AS s (shard),
         LATERAL (SELECT count(*) AS found
                    FROM (SELECT FROM queen.kv k
                           WHERE k.shard = s.shard AND k.expires_at <= t.now LIMIT p_most) AS few) AS n
$$;

-- Dead letters of a queue: how many, of which groups, after how many failures, and on which days ...
CREATE OR REPLACE FUNCTION queen.dlq_summary(p_tenant uuid, p_queue text)
RETURNS TABLE (kind text, key text, n bigint, bytes float8, oldest timestamptz, newest timestamptz)
LANGUAGE sql STABLE AS $$
  WITH letters AS MATERIALIZED (
    SELECT d.consumer_group::text AS grp, d.retry_count, d.failed_at, octet_length(d.payload) AS bytes
      FROM queen.queues q
      JOIN queen.log_partitions p ON p.queue_id = q.id
      JOIN queen.log_dlq d ON d.partition_id = p.id
     WHERE q.tenant_id = p_tenant AND q.name = p_queue
  )
  SELECT 'all', '', count(*), avg(l.bytes)::float8, min(l.failed_at), max(l.failed_at) FROM letters l
  UNION ALL
  SELECT 'group', l.grp, count(*), NULL, NULL, NULL FROM letters l GROUP BY l.grp
  UNION ALL
  SELECT 'retries', l.retry_count::text, count(*), NULL, NULL, NULL FROM letters l GROUP BY l.retry_count
  UNION ALL
  SELECT 'day', to_char(l.failed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD'), count(*), NULL, NULL, NULL FROM letters l GROUP BY 2
   ORDER BY 1, 2
$$;

-- ... and the newest reasons.
CREATE OR REPLACE FUNCTION queen.dlq_reasons(p_tenant uuid, p_queue text, p_limit int) RETURNS TABLE (error text)
LANGUAGE sql STABLE AS $$
  SELECT left(d.error, 1000)
    FROM queen.queues q
    JOIN queen.log_partitions p ON p.queue_id = q.id
    JOIN queen.log_dlq d ON d.partition_id = p.id
   WHERE q.tenant_id = p_tenant AND q.name = p_queue
   ORDER BY d.failed_at DESC, d.id DESC LIMIT p_limit
$$;
