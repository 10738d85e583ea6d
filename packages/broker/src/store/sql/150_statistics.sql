-- Statistics, first half: where everything stands. The second half, what has passed through, is in 151.
--
-- A rollup: one row a queue and one a (queue, group), counted anew every few seconds by one broker. It is arithmetic on
-- watermarks, in one set-based statement a few thousand partitions or more at a time; no message is looked at. Readers of
-- it cost what they show, however many partitions there are. Namespaces, tasks and the whole are sums of queue rows and
-- are not stored: a sum of a thousand rows costs less than keeping it true.
--
-- A row is only written when something in it has changed, so a broker with nothing to do writes nothing here but the row
-- of the refresh. Ages are stored as instants for the same reason.
--
-- No foreign key to queen.queues: the deletion of a queue would meet the refresh on these rows in no order. What is left
-- of a deleted queue goes with the next refresh, and readers join the queues anyway.

CREATE TABLE IF NOT EXISTS queen.stats (
  queue_id        bigint PRIMARY KEY,
  partitions      bigint NOT NULL,
  total           bigint NOT NULL,
  pending         bigint NOT NULL,
  processing      bigint NOT NULL,
  dead_letter     bigint NOT NULL,
  dead_partitions bigint NOT NULL,
  leases          bigint NOT NULL,  -- live ones, of all groups
  leased_parts    bigint NOT NULL,  -- partitions with one
  leased_messages bigint NOT NULL,
  consumers       bigint NOT NULL,  -- groups with a cursor or a registration, queue mode among them
  consumed        bigint NOT NULL,  -- over all groups, ever
  since           timestamptz,      -- the oldest pending message; NULL: nothing is pending
  live_1h         bigint NOT NULL,  -- partitions written so recently
  live_24h        bigint NOT NULL,
  live_7d         bigint NOT NULL,
  created_24h     bigint NOT NULL,
  oldest_write_at timestamptz,      -- of the partition that was written least recently
  newest_write_at timestamptz
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.2, autovacuum_vacuum_threshold = 500);

CREATE TABLE IF NOT EXISTS queen.stats_groups (
  queue_id       bigint NOT NULL,
  consumer_group text NOT NULL,
  cursors        bigint NOT NULL,
  behind         bigint NOT NULL,  -- partitions with something left for the group
  lag            bigint NOT NULL,
  since          timestamptz,      -- the oldest message that is left for it
  PRIMARY KEY (queue_id, consumer_group)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.2, autovacuum_vacuum_threshold = 500);

-- One row: the last whole refresh.
CREATE TABLE IF NOT EXISTS queen.stats_refresh (
  one         boolean PRIMARY KEY DEFAULT true CHECK (one),
  finished_at timestamptz NOT NULL,
  took_ms     bigint NOT NULL,
  partitions  bigint NOT NULL
);

-- The queues of all tenants in groups for one statement each: by id, as long as their partitions (as last counted) stay
-- within p_partitions. A queue with more is a group of its own. At least one group, which may be empty; none at all while
-- the last refresh is not p_rest times as long ago as it took.
CREATE OR REPLACE FUNCTION queen.stats_plan(p_partitions bigint, p_rest int) RETURNS TABLE (queues bigint[])
LANGUAGE sql STABLE AS $$
  WITH known AS (
    SELECT q.id,
           -- A new queue counts as one partition, so that new ones do not all end in one group.
           (sum(greatest(coalesce(s.partitions, 0), 1)) OVER (ORDER BY q.id)) / p_partitions AS part
      FROM queen.queues q LEFT JOIN queen.stats s ON s.queue_id = q.id
  ), parts AS (
    SELECT trunc(k.part) AS part, array_agg(k.id ORDER BY k.id) AS ids FROM known k GROUP BY trunc(k.part)
    UNION ALL
    SELECT 0, '{}' WHERE NOT EXISTS (SELECT FROM queen.queues)
  )
  SELECT p.ids FROM parts p
   WHERE NOT EXISTS (SELECT FROM queen.stats_refresh r
                      WHERE queen.clock() BETWEEN r.finished_at
                                              AND r.finished_at + r.took_ms * p_rest * interval '1 millisecond')
   ORDER BY p.part
$$;

-- Counts these queues and writes their rows. Answers how many partitions they have.
--
-- Pending is what the furthest-behind cursor of a partition leaves; queue mode counts only on queues without a named
-- group; what none of those who count has met is pending as a whole. Which of the two it is shows only when the whole queue
-- has been seen, so a partition is counted both ways. A registered group that has not met a partition lags by what it
-- would get of it. The age of what is left takes a look into the segments, one step on the primary key, for partitions that
-- somebody has begun and not finished; there alone.
--
-- The memory is for a hundred thousand partitions with two groups: with less every step of it goes through a file.
CREATE OR REPLACE FUNCTION queen.stats_count(p_queues bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan SET work_mem = '64MB'
AS $$
DECLARE
  v_now        timestamptz := queen.clock();
  v_partitions bigint;
BEGIN
  -- A refresh that somebody asks for, beside the one that is due: they would lock each other's rows in a circle.
  PERFORM pg_advisory_xact_lock(737002);
  WITH parts AS MATERIALIZED (
    SELECT p.id, p.queue_id, p.last_offset, p.log_start, p.oldest_live_at, p.last_created_at, p.last_write_at, p.created_at
      FROM queen.log_partitions p WHERE p.queue_id = ANY (p_queues)
  ), cursors AS MATERIALIZED (
    SELECT c.id, c.queue_id, c.grp, c.grp <> '__QUEUE_MODE__' AS named, c.last_offset, c.done, c.consumed, c.leased,
           CASE WHEN c.done >= c.last_offset THEN NULL
                WHEN c.done < c.log_start THEN c.oldest_live_at
                ELSE coalesce((SELECT s.created_at FROM queen.log_segments s
                                WHERE s.partition_id = c.id AND s.base_offset <= c.done + 1
                                ORDER BY s.base_offset DESC LIMIT 1), c.oldest_live_at) END AS since
      FROM (SELECT p.id, p.queue_id, l.consumer_group::text AS grp, p.last_offset, p.log_start, p.oldest_live_at,
                   greatest(l.committed, p.log_start - 1) AS done, l.total_consumed AS consumed,
                   CASE WHEN l.worker_id IS NOT NULL AND l.batch_end IS NOT NULL AND l.lease_expires_at > v_now
                        THEN greatest(l.batch_end - greatest(l.committed, p.log_start - 1), 0) END AS leased
              FROM parts p JOIN queen.log_consumers l ON l.partition_id = p.id) AS c
  ), met AS MATERIALIZED (
    SELECT c.queue_id, c.grp, count(*) AS cursors, count(*) FILTER (WHERE c.last_offset > c.done) AS behind,
           sum(greatest(c.last_offset - c.done, 0))::bigint AS lag, min(c.since) AS since
      FROM cursors c GROUP BY c.queue_id, c.grp
  ), registered AS MATERIALIZED (
    SELECT DISTINCT ON (m.consumer_group, q.id)
           m.consumer_group::text AS grp, q.id AS queue_id, m.subscription_mode AS mode, m.subscription_timestamp AS at
      FROM queen.queues q
      JOIN queen.consumer_groups_metadata m
        ON m.tenant_id = q.tenant_id AND m.partition_name = ''
       AND (m.queue_id = q.id
            OR (m.queue_id IS NULL AND m.namespace IN ('', q.namespace) AND m.task IN ('', q.task)))
     WHERE q.id = ANY (p_queues)
     ORDER BY m.consumer_group, q.id, m.queue_id NULLS LAST, m.subscription_timestamp NULLS FIRST
  ), unmet AS MATERIALIZED (
    SELECT u.queue_id, u.grp, count(*) FILTER (WHERE u.last_offset > u.done) AS behind,
           sum(greatest(u.last_offset - u.done, 0))::bigint AS lag,
           min(CASE WHEN u.done >= u.last_offset THEN NULL
                    WHEN u.done < u.log_start THEN u.oldest_live_at
                    ELSE coalesce((SELECT s.created_at FROM queen.log_segments s
                                    WHERE s.partition_id = u.id AND s.base_offset <= u.done + 1
                                    ORDER BY s.base_offset DESC LIMIT 1), u.oldest_live_at) END) AS since
      FROM (SELECT p.queue_id, r.grp, p.id, p.last_offset, p.log_start, p.oldest_live_at,
                   CASE WHEN r.mode = 'all' OR r.at IS NULL OR p.created_at >= r.at THEN p.log_start - 1
                        ELSE greatest(p.log_start - 1, queen.log_seed(r.mode, r.at, false, p.id, p.log_start,
                                                                      p.last_offset, p.last_created_at)) END AS done
              FROM registered r
              JOIN (SELECT p.queue_id, count(*) AS n FROM parts p GROUP BY p.queue_id) AS size ON size.queue_id = r.queue_id
              JOIN parts p ON p.queue_id = r.queue_id
             -- Who has met all of them is not looked at partition by partition.
             WHERE size.n > coalesce((SELECT m.cursors FROM met m WHERE m.queue_id = r.queue_id AND m.grp = r.grp), 0)
               AND NOT EXISTS (SELECT FROM queen.log_consumers l
                                WHERE l.partition_id = p.id AND l.consumer_group = r.grp)) AS u
     GROUP BY u.queue_id, u.grp
  ), groups AS MATERIALIZED (
    SELECT coalesce(m.queue_id, r.queue_id) AS queue_id, coalesce(m.grp, r.grp) AS grp, coalesce(m.cursors, 0) AS cursors,
           coalesce(m.behind, 0) + coalesce(u.behind, 0) AS behind, coalesce(m.lag, 0) + coalesce(u.lag, 0) AS lag,
           least(m.since, u.since) AS since
      FROM met m
      FULL JOIN registered r ON r.queue_id = m.queue_id AND r.grp = m.grp
      LEFT JOIN unmet u ON u.queue_id = r.queue_id AND u.grp = r.grp
  ), put_groups AS (
    INSERT INTO queen.stats_groups AS t (queue_id, consumer_group, cursors, behind, lag, since)
    SELECT g.queue_id, g.grp, g.cursors, g.behind, g.lag, g.since FROM groups g ORDER BY g.queue_id, g.grp
    ON CONFLICT (queue_id, consumer_group) DO UPDATE
       SET cursors = excluded.cursors, behind = excluded.behind, lag = excluded.lag, since = excluded.since
     WHERE (t.cursors, t.behind, t.lag, t.since)
           IS DISTINCT FROM (excluded.cursors, excluded.behind, excluded.lag, excluded.since)
  ), drop_groups AS (
    DELETE FROM queen.stats_groups t
     WHERE t.queue_id = ANY (p_queues)
       AND NOT EXISTS (SELECT FROM groups g WHERE g.queue_id = t.queue_id AND g.grp = t.consumer_group)
  ), standing AS (
    SELECT c.id, min(c.done) FILTER (WHERE c.named) AS done, min(c.done) AS any_done,
           max(c.leased) FILTER (WHERE c.named) AS leased, max(c.leased) AS any_leased,
           min(c.since) FILTER (WHERE c.named) AS since, min(c.since) AS any_since,
           count(c.leased) AS leases, coalesce(sum(c.leased), 0) AS leased_messages, sum(c.consumed) AS consumed
      FROM cursors c GROUP BY c.id
  ), counted AS (
    SELECT p.queue_id, count(*) AS partitions, sum(p.last_offset - p.log_start + 1)::bigint AS total,
           bool_or(s.done IS NOT NULL) AS named,
           sum(p.last_offset - coalesce(s.done, p.log_start - 1))::bigint AS pending,
           sum(p.last_offset - coalesce(s.any_done, p.log_start - 1))::bigint AS any_pending,
           sum(least(coalesce(s.leased, 0), p.last_offset - coalesce(s.done, p.log_start - 1)))::bigint AS processing,
           sum(least(coalesce(s.any_leased, 0), p.last_offset - coalesce(s.any_done, p.log_start - 1)))::bigint
             AS any_processing,
           min(CASE WHEN s.done IS NULL THEN p.oldest_live_at ELSE s.since END) AS since,
           min(CASE WHEN s.any_done IS NULL THEN p.oldest_live_at ELSE s.any_since END) AS any_since,
           coalesce(sum(s.leases), 0)::bigint AS leases, count(*) FILTER (WHERE s.leases > 0) AS leased_parts,
           coalesce(sum(s.leased_messages), 0)::bigint AS leased_messages,
           coalesce(sum(s.consumed), 0)::bigint AS consumed,
           count(*) FILTER (WHERE p.last_write_at >= v_now - interval '1 hour') AS live_1h,
           count(*) FILTER (WHERE p.last_write_at >= v_now - interval '24 hours') AS live_24h,
           count(*) FILTER (WHERE p.last_write_at >= v_now - interval '7 days') AS live_7d,
           count(*) FILTER (WHERE p.created_at >= v_now - interval '24 hours') AS created_24h,
           min(p.last_write_at) AS oldest_write_at, max(p.last_write_at) AS newest_write_at
      FROM parts p LEFT JOIN standing s ON s.id = p.id
     GROUP BY p.queue_id
  ), dead AS (
    SELECT p.queue_id, sum(d.n)::bigint AS letters, count(*) AS parts
      FROM (SELECT l.partition_id, count(*) AS n FROM queen.log_dlq l GROUP BY l.partition_id) AS d
      JOIN parts p ON p.id = d.partition_id
     GROUP BY p.queue_id
  ), put AS (
    INSERT INTO queen.stats AS t
           (queue_id, partitions, total, pending, processing, dead_letter, dead_partitions, leases, leased_parts,
            leased_messages, consumers, consumed, since, live_1h, live_24h, live_7d, created_24h, oldest_write_at,
            newest_write_at)
    SELECT q.id, coalesce(c.partitions, 0), coalesce(c.total, 0),
           coalesce(CASE WHEN c.named THEN c.pending ELSE c.any_pending END, 0),
           coalesce(CASE WHEN c.named THEN c.processing ELSE c.any_processing END, 0),
           coalesce(d.letters, 0), coalesce(d.parts, 0), coalesce(c.leases, 0), coalesce(c.leased_parts, 0),
           coalesce(c.leased_messages, 0), (SELECT count(*) FROM groups g WHERE g.queue_id = q.id),
           coalesce(c.consumed, 0), CASE WHEN c.named THEN c.since ELSE c.any_since END, coalesce(c.live_1h, 0),
           coalesce(c.live_24h, 0), coalesce(c.live_7d, 0), coalesce(c.created_24h, 0), c.oldest_write_at,
           c.newest_write_at
      FROM unnest(p_queues) AS q (id)
      LEFT JOIN counted c ON c.queue_id = q.id
      LEFT JOIN dead d ON d.queue_id = q.id
     ORDER BY q.id
    ON CONFLICT (queue_id) DO UPDATE
       SET partitions = excluded.partitions, total = excluded.total, pending = excluded.pending,
           processing = excluded.processing, dead_letter = excluded.dead_letter,
           dead_partitions = excluded.dead_partitions, leases = excluded.leases, leased_parts = excluded.leased_parts,
           leased_messages = excluded.leased_messages, consumers = excluded.consumers, consumed = excluded.consumed,
           since = excluded.since, live_1h = excluded.live_1h, live_24h = excluded.live_24h, live_7d = excluded.live_7d,
           created_24h = excluded.created_24h, oldest_write_at = excluded.oldest_write_at,
           newest_write_at = excluded.newest_write_at
     WHERE (t.*) IS DISTINCT FROM (excluded.*)
  )
  SELECT count(*) INTO v_partitions FROM parts;
  RETURN v_partitions;
END $$;

-- Ends a refresh: what is left of deleted queues goes, and the time is noted for those who want to know how old it all is.
CREATE OR REPLACE FUNCTION queen.stats_finish(p_took_ms bigint, p_partitions bigint) RETURNS void
LANGUAGE sql VOLATILE AS $$
  DELETE FROM queen.stats s WHERE NOT EXISTS (SELECT FROM queen.queues q WHERE q.id = s.queue_id);
  DELETE FROM queen.stats_groups s WHERE NOT EXISTS (SELECT FROM queen.queues q WHERE q.id = s.queue_id);
  INSERT INTO queen.stats_refresh AS r (finished_at, took_ms, partitions)
  VALUES (queen.clock(), p_took_ms, p_partitions)
  ON CONFLICT (one) DO UPDATE SET finished_at = excluded.finished_at, took_ms = excluded.took_ms,
    partitions = excluded.partitions
$$;

-- How old the last whole refresh is, and how long it took; no row: there was none.
CREATE OR REPLACE FUNCTION queen.stats_age() RETURNS TABLE (finished_at timestamptz, age_ms bigint, took_ms bigint)
LANGUAGE sql STABLE AS $$
  SELECT r.finished_at, greatest(extract(epoch FROM queen.clock() - r.finished_at) * 1000, 0)::bigint, r.took_ms
    FROM queen.stats_refresh r
$$;

-- The queues that filters let through (NULL: all) and whose name holds p_search, in whatever case: one page, by name or by
-- a figure, and in every row how many there are in all.
CREATE OR REPLACE FUNCTION queen.stats_queues(p_tenant uuid, p_queue text, p_namespace text, p_task text, p_search text,
                                              p_sort text, p_descending boolean, p_limit int, p_skip bigint)
RETURNS TABLE (id bigint, name text, namespace text, task text, created_at timestamptz, partitions bigint, total bigint,
               pending bigint, processing bigint, dead bigint, consumed bigint, retained_bytes bigint, segments bigint,
               matches bigint)
LANGUAGE sql STABLE AS $$
  SELECT q.id, q.name::text, q.namespace, q.task, q.created_at, coalesce(s.partitions, 0), coalesce(s.total, 0),
         coalesce(s.pending, 0), coalesce(s.processing, 0), coalesce(s.dead_letter, 0), coalesce(s.consumed, 0),
         coalesce(r.retained_bytes, 0), coalesce(r.segments, 0), count(*) OVER ()
    FROM queen.queues q
    LEFT JOIN queen.stats s ON s.queue_id = q.id
    LEFT JOIN queen.queue_retained r ON r.queue_id = q.id
   CROSS JOIN LATERAL (
     SELECT CASE p_sort WHEN 'partitions' THEN s.partitions WHEN 'total' THEN s.total WHEN 'pending' THEN s.pending
                        WHEN 'processing' THEN s.processing WHEN 'deadLetter' THEN s.dead_letter
                        WHEN 'retainedBytes' THEN r.retained_bytes END AS figure) f
   WHERE q.tenant_id = p_tenant AND (p_queue IS NULL OR q.name = p_queue)
     AND (p_namespace IS NULL OR q.namespace = p_namespace) AND (p_task IS NULL OR q.task = p_task)
     AND (p_search IS NULL OR position(lower(p_search) IN lower(q.name)) > 0)
   ORDER BY CASE WHEN p_descending THEN -coalesce(f.figure, 0) ELSE coalesce(f.figure, 0) END,
            CASE WHEN p_descending AND p_sort = 'name' THEN q.name END DESC, q.name
   LIMIT p_limit OFFSET p_skip
$$;

-- Sums over the queues of a tenant, or of all (NULL), that filters let through. The lags are of queues with something
-- pending: how long the oldest has waited, and how many there are.
CREATE OR REPLACE FUNCTION queen.stats_totals(p_tenant uuid, p_queue text, p_namespace text, p_task text)
RETURNS TABLE (queues bigint, partitions bigint, namespaces bigint, tasks bigint, total bigint, pending bigint,
               processing bigint, completed bigint, dead bigint, dead_partitions bigint, leases bigint, leased_parts bigint,
               leased_messages bigint, consumed bigint, lag_avg_us bigint, lag_median_us bigint, lag_min_us bigint,
               lag_max_us bigint, behind_avg bigint, behind_median bigint, behind_min bigint, behind_max bigint)
LANGUAGE sql STABLE AS $$
  WITH counted AS MATERIALIZED (
    SELECT q.namespace, q.task, s.*, queen.micros(t.now) - queen.micros(s.since) AS lag
      FROM (SELECT queen.clock() AS now) AS t, queen.queues q LEFT JOIN queen.stats s ON s.queue_id = q.id
     WHERE (p_tenant IS NULL OR q.tenant_id = p_tenant) AND (p_queue IS NULL OR q.name = p_queue)
       AND (p_namespace IS NULL OR q.namespace = p_namespace) AND (p_task IS NULL OR q.task = p_task)
  ), waiting AS (
    SELECT greatest(c.lag, 0) AS lag, c.pending FROM counted c WHERE c.pending > 0
  )
  SELECT c.*, w.*
    FROM (SELECT count(*), coalesce(sum(c.partitions), 0)::bigint,
                 count(DISTINCT c.namespace) FILTER (WHERE c.namespace <> ''),
                 count(DISTINCT c.task) FILTER (WHERE c.task <> ''), coalesce(sum(c.total), 0)::bigint,
                 coalesce(sum(c.pending), 0)::bigint, coalesce(sum(c.processing), 0)::bigint,
                 coalesce(sum(greatest(c.total - c.pending - c.dead_letter, 0)), 0)::bigint,
                 coalesce(sum(c.dead_letter), 0)::bigint, coalesce(sum(c.dead_partitions), 0)::bigint,
                 coalesce(sum(c.leases), 0)::bigint, coalesce(sum(c.leased_parts), 0)::bigint,
                 coalesce(sum(c.leased_messages), 0)::bigint, coalesce(sum(c.consumed), 0)::bigint
            FROM counted c) AS c,
         (SELECT coalesce(avg(w.lag), 0)::bigint,
                 coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY w.lag), 0)::bigint, coalesce(min(w.lag), 0),
                 coalesce(max(w.lag), 0), coalesce(avg(w.pending), 0)::bigint,
                 coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY w.pending), 0)::bigint,
                 coalesce(min(w.pending), 0), coalesce(max(w.pending), 0)
            FROM waiting w) AS w
$$;

-- How alive the partitions of queues are; the queues with most partitions first.
CREATE OR REPLACE FUNCTION queen.stats_liveness(p_tenant uuid, p_queue text, p_namespace text, p_task text, p_limit int)
RETURNS TABLE (queue text, namespace text, task text, partitions bigint, live_1h bigint, live_24h bigint, live_7d bigint,
               created_24h bigint, oldest_write_at timestamptz, newest_write_at timestamptz, pending bigint)
LANGUAGE sql STABLE AS $$
  SELECT q.name::text, q.namespace, q.task, s.partitions, s.live_1h, s.live_24h, s.live_7d, s.created_24h,
         s.oldest_write_at, s.newest_write_at, s.pending
    FROM queen.queues q JOIN queen.stats s ON s.queue_id = q.id
   WHERE q.tenant_id = p_tenant AND (p_queue IS NULL OR q.name = p_queue)
     AND (p_namespace IS NULL OR q.namespace = p_namespace) AND (p_task IS NULL OR q.task = p_task)
   ORDER BY s.partitions DESC, q.name LIMIT p_limit
$$;

-- One queue, live: its counters in one row. Pages of its partitions are in 153_partitions.sql.
CREATE OR REPLACE FUNCTION queen.queue_totals(p_tenant uuid, p_queue_id bigint)
RETURNS TABLE (partitions bigint, total bigint, pending bigint, processing bigint, dead bigint)
LANGUAGE sql STABLE AS $$
  SELECT count(*), coalesce(sum(c.total), 0)::bigint, coalesce(sum(c.pending), 0)::bigint,
         coalesce(sum(c.processing), 0)::bigint,
         (SELECT count(*) FROM queen.log_dlq d JOIN queen.log_partitions p ON p.id = d.partition_id
           WHERE p.queue_id = p_queue_id)
    FROM queen.partition_counts(p_tenant, p_queue_id, NULL) c
$$;
