-- Reading the log without a group: messages for a person who looks, records by offset for a program that copies. No
-- cursor moves and nothing is locked. Blobs are read by position once it is known which are wanted, a few at a time.

-- Messages for a person

-- Segments of the tenant's partitions, the newest first: where a page of messages is picked from. A message is listed as
-- long as its transactionId can be resolved, so nothing below txns_start.
--   p_pick    0 all, 1 only segments with something above what is done, 2 at or below it, 3 with a dead letter
--   p_from    NULL: the last hour; p_to (exclusive) NULL: to the end of this minute
--   p_before_*  go on behind this segment (p_before_at NULL: from the newest)
-- Of a tenant with more partitions than p_partitions, those are looked at that were written last.
--
-- With every segment come the facts that tell the status of its messages: `done`, the lowest cursor that counts (named
-- groups; queue mode only on a queue without any), NULL when nobody consumes; the spans that live leases of such groups
-- cover; and the offsets of its dead letters.
CREATE OR REPLACE FUNCTION queen.message_segments(
  p_tenant uuid, p_queue text, p_partition text, p_namespace text, p_task text, p_pick int,
  p_from timestamptz, p_to timestamptz,
  p_before_at timestamptz, p_before_partition bigint, p_before_base bigint, p_limit int, p_partitions int
) RETURNS TABLE (partition_id bigint, queue text, partition text, namespace text, task text, base_offset bigint,
                 end_offset bigint, created_at timestamptz, done bigint,
                 lease_after bigint[], lease_upto bigint[], dead bigint[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
  v_now  timestamptz := queen.clock();
  v_from timestamptz := coalesce(p_from, v_now - interval '1 hour');
  v_to   timestamptz := coalesce(p_to, date_trunc('minute', v_now) + interval '1 minute');
BEGIN
  RETURN QUERY
    WITH parts AS MATERIALIZED (
      SELECT p.id, p.queue_id, p.name::text AS name, p.last_offset, p.last_created_at,
             greatest(p.log_start, p.txns_start) AS start,
             p.oldest_live_at >= v_from AS young,
             q.name::text AS queue, q.namespace, q.task
        FROM queen.queues q JOIN queen.log_partitions p ON p.queue_id = q.id
       WHERE q.tenant_id = p_tenant
         AND (p_queue IS NULL OR q.name = p_queue)
         AND (p_partition IS NULL OR p.name = p_partition)
         AND (p_namespace IS NULL OR q.namespace = p_namespace)
         AND (p_task IS NULL OR q.task = p_task)
         -- It moves at most once a second.
         AND p.last_write_at >= v_from - interval '2 seconds'
       ORDER BY p.last_write_at DESC, p.id DESC LIMIT p_partitions
    ), named AS MATERIALIZED (
      SELECT d.queue_id FROM (SELECT DISTINCT x.queue_id FROM parts x) d
       WHERE EXISTS (SELECT FROM queen.log_partitions p JOIN queen.log_consumers c ON c.partition_id = p.id
                      WHERE p.queue_id = d.queue_id AND c.consumer_group <> '__QUEUE_MODE__')
    ), placed AS MATERIALIZED (
      SELECT x.*, f.done, f.lease_after, f.lease_upto,
             CASE WHEN x.young THEN x.start
                  ELSE queen.log_position_at(x.id, v_from, x.start, x.last_offset, x.last_created_at) + 1 END AS low,
             CASE WHEN p_before_at IS NULL AND v_to > x.last_created_at THEN x.last_offset
                  ELSE queen.log_position_at(x.id, least(v_to, p_before_at + interval '1 microsecond'),
                                             x.start, x.last_offset, x.last_created_at) END AS high
        FROM parts x
        LEFT JOIN LATERAL (
          SELECT min(c.committed) AS done,
                 array_agg(c.committed) FILTER (WHERE live.is) AS lease_after,
                 array_agg(c.batch_end) FILTER (WHERE live.is) AS lease_upto
            FROM queen.log_consumers c
           CROSS JOIN LATERAL (SELECT c.worker_id IS NOT NULL AND c.batch_end IS NOT NULL
                                      AND c.lease_expires_at > v_now AS is) live
           WHERE c.partition_id = x.id
             AND (c.consumer_group <> '__QUEUE_MODE__' OR x.queue_id NOT IN (SELECT n.queue_id FROM named n))
        ) f ON true
       WHERE x.last_offset >= x.start
    ), found AS MATERIALIZED (
      SELECT x.id, s.base_offset, s.end_offset, s.created_at
        FROM placed x
       CROSS JOIN LATERAL (
         SELECT s.base_offset, s.end_offset, s.created_at FROM queen.log_segments s
          WHERE p_pick < 3 AND s.partition_id = x.id
            AND (p_pick <> 1 OR x.done IS NULL OR x.done < x.last_offset)
            AND s.base_offset <= CASE p_pick WHEN 2 THEN least(x.high, coalesce(x.done, -1)) ELSE x.high END
            AND s.base_offset >= CASE WHEN p_pick = 1 AND x.done >= x.low
                  THEN coalesce((SELECT max(b.base_offset) FROM queen.log_segments b
                                  WHERE b.partition_id = x.id AND b.base_offset <= x.done + 1), x.low)
                  ELSE x.low END
            AND (p_before_at IS NULL OR (s.created_at, x.id, s.base_offset) < (p_before_at, p_before_partition, p_before_base))
          ORDER BY s.base_offset DESC LIMIT p_limit) s
      UNION ALL
      SELECT DISTINCT x.id, s.base_offset, s.end_offset, s.created_at
        FROM placed x
       CROSS JOIN LATERAL (
         SELECT d."offset" AS at FROM queen.log_dlq d
          WHERE p_pick = 3 AND d.partition_id = x.id AND d."offset" >= x.low
          ORDER BY d."offset" DESC) d
       CROSS JOIN LATERAL (
         SELECT s.base_offset, s.end_offset, s.created_at FROM queen.log_segments s
          WHERE s.partition_id = x.id AND s.base_offset <= d.at
          ORDER BY s.base_offset DESC LIMIT 1) s
       WHERE s.base_offset BETWEEN x.low AND x.high
         AND (p_before_at IS NULL OR (s.created_at, x.id, s.base_offset) < (p_before_at, p_before_partition, p_before_base))
    ), page AS (
      SELECT n.* FROM found n ORDER BY n.created_at DESC, n.id DESC, n.base_offset DESC LIMIT p_limit
    )
    SELECT x.id, x.queue, x.name, x.namespace, x.task, g.base_offset, g.end_offset, g.created_at, x.done,
           x.lease_after, x.lease_upto,
           (SELECT array_agg(DISTINCT d."offset") FROM queen.log_dlq d
             WHERE d.partition_id = x.id AND d."offset" BETWEEN g.base_offset AND g.end_offset)
      FROM page g JOIN placed x ON x.id = g.id
     ORDER BY g.created_at DESC, g.id DESC, g.base_offset DESC;
END $$;

-- All cursors of these partitions, whosever: who has consumed a message, and who holds it.
CREATE OR REPLACE FUNCTION queen.message_cursors(p_tenant uuid, p_partitions bigint[])
RETURNS TABLE (partition_id bigint, consumer_group text, committed bigint, lease_upto bigint, lease_expires_at timestamptz)
LANGUAGE sql STABLE AS $$
  SELECT c.partition_id, c.consumer_group::text, c.committed,
         CASE WHEN live.is THEN c.batch_end END, CASE WHEN live.is THEN c.lease_expires_at END
    FROM (SELECT queen.clock() AS now) t
   CROSS JOIN (SELECT DISTINCT u.id FROM unnest(p_partitions) AS u (id)) w
    JOIN queen.log_partitions p ON p.id = w.id
    JOIN queen.queues q ON q.id = p.queue_id AND q.tenant_id = p_tenant
    JOIN queen.log_consumers c ON c.partition_id = p.id
   CROSS JOIN LATERAL (SELECT c.worker_id IS NOT NULL AND c.batch_end IS NOT NULL AND c.lease_expires_at > t.now AS is) live
   ORDER BY c.partition_id, c.consumer_group
$$;

-- These segments, in the order asked; one that is gone meanwhile is left out.
CREATE OR REPLACE FUNCTION queen.message_blobs(p_partitions bigint[], p_bases bigint[])
RETURNS TABLE (seq int, end_offset bigint, blob bytea) LANGUAGE sql STABLE AS $$
  SELECT w.seq::int - 1, s.end_offset, s.blob
    FROM unnest(p_partitions, p_bases) WITH ORDINALITY AS w (partition_id, base_offset, seq)
    JOIN queen.log_segments s ON s.partition_id = w.partition_id AND s.base_offset = w.base_offset
   ORDER BY w.seq
$$;

-- What a message's address leads to before it is looked for: its partition, which must be the tenant's, and its queue.
CREATE OR REPLACE FUNCTION queen.message_place(p_tenant uuid, p_partition bigint)
RETURNS TABLE (queue text, namespace text, task text, partition text, options jsonb, txns_start bigint, named boolean)
LANGUAGE sql STABLE AS $$
  SELECT q.name::text, q.namespace, q.task, p.name::text, queen.queue_options(q), p.txns_start,
         EXISTS (SELECT FROM queen.log_partitions o JOIN queen.log_consumers c ON c.partition_id = o.id
                  WHERE o.queue_id = q.id AND c.consumer_group <> '__QUEUE_MODE__')
    FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id
   WHERE p.id = p_partition AND q.tenant_id = p_tenant
$$;

-- The newest offset at which a transactionId (by its hash) is stored; NULL: the sidecar does not know it. The bytes of a
-- row are searched before it is taken apart: a match there may straddle two hashes, so it does not decide.
CREATE OR REPLACE FUNCTION queen.message_locate(p_partition bigint, p_hash bytea) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT t.base_offset + h.idx
    FROM queen.log_txns t
   CROSS JOIN LATERAL (SELECT max(u.idx) AS idx FROM queen.log_unnest_hashes(t.hashes) u WHERE u.h = p_hash) h
   WHERE t.partition_id = p_partition AND position(p_hash IN t.hashes) > 0 AND h.idx IS NOT NULL
   ORDER BY t.base_offset DESC LIMIT 1
$$;

-- Up to p_limit segments with a base below p_below, the newest first.
CREATE OR REPLACE FUNCTION queen.message_walk(p_partition bigint, p_below bigint, p_limit int)
RETURNS TABLE (base_offset bigint, end_offset bigint, created_at timestamptz, blob bytea) LANGUAGE sql STABLE AS $$
  SELECT s.base_offset, s.end_offset, s.created_at, s.blob FROM queen.log_segments s
   WHERE s.partition_id = p_partition AND s.base_offset < p_below
   ORDER BY s.base_offset DESC LIMIT p_limit
$$;

-- The segment that holds an offset.
CREATE OR REPLACE FUNCTION queen.message_segment(p_partition bigint, p_offset bigint)
RETURNS TABLE (base_offset bigint, end_offset bigint, created_at timestamptz, blob bytea) LANGUAGE sql STABLE AS $$
  SELECT s.* FROM queen.message_walk(p_partition, p_offset + 1, 1) s WHERE s.end_offset >= p_offset
$$;

-- The dead letters of a message, the newest first. p_offset NULL: of whichever offset (the message is not in the log).
CREATE OR REPLACE FUNCTION queen.message_dead(p_partition bigint, p_offset bigint, p_transaction_id text)
RETURNS TABLE (consumer_group text, message_id uuid, "position" bigint, payload bytea, error text, retry_count int,
               failed_at timestamptz)
LANGUAGE sql STABLE AS $$
  SELECT d.consumer_group::text, d.message_id, d."offset", d.payload, d.error, d.retry_count, d.failed_at
    FROM queen.log_dlq d
   WHERE d.partition_id = p_partition
     AND hashtextextended(d.transaction_id, 0) = hashtextextended(p_transaction_id, 0)
     AND d.transaction_id = p_transaction_id
     AND (p_offset IS NULL OR d."offset" = p_offset)
   ORDER BY d.failed_at DESC, d.id DESC
$$;

-- Records for a program

-- Where these partitions are and what they hold, in the order asked; an unknown one is left out.
CREATE OR REPLACE FUNCTION queen.log_fetch_places(p_tenant uuid, p_queues text[], p_partitions text[])
RETURNS TABLE (seq int, partition_id bigint, last_offset bigint, log_start bigint) LANGUAGE sql STABLE AS $$
  SELECT w.seq::int - 1, p.id, p.last_offset, p.log_start
    FROM unnest(p_queues, p_partitions) WITH ORDINALITY AS w (queue, partition, seq)
    JOIN queen.queues q ON q.tenant_id = p_tenant AND q.name = w.queue
    JOIN queen.log_partitions p ON p.queue_id = q.id AND p.name = w.partition
   ORDER BY w.seq
$$;

-- The segments from an offset on, for many partitions at once: at least one where there is one, and further ones while
-- the stored bytes before them stay below p_bytes, at most p_segments.
CREATE OR REPLACE FUNCTION queen.log_fetch(p_partitions bigint[], p_from bigint[], p_bytes bigint[], p_segments int)
RETURNS TABLE (seq int, base_offset bigint, end_offset bigint, created_at timestamptz, blob bytea)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN QUERY
    SELECT w.seq::int - 1, s.base_offset, s.end_offset, s.created_at, s.blob
      FROM unnest(p_partitions, p_from, p_bytes) WITH ORDINALITY AS w (part, low, bytes, seq)
     CROSS JOIN LATERAL (
       SELECT x.*, sum(octet_length(x.blob)) OVER (ORDER BY x.base_offset) - octet_length(x.blob) AS before
         FROM (SELECT c.base_offset, c.end_offset, c.created_at, c.blob FROM queen.log_segments c
                WHERE c.partition_id = w.part AND c.end_offset >= w.low
                  AND c.base_offset >= coalesce((SELECT max(b.base_offset) FROM queen.log_segments b
                                                  WHERE b.partition_id = w.part AND b.base_offset <= w.low), w.low)
                ORDER BY c.base_offset LIMIT p_segments) x) s
     WHERE s.before < w.bytes
     ORDER BY w.seq, s.base_offset;
END $$;

-- The first message at or after an instant, for many partitions at once; an unknown partition is left out. `at_offset`
-- and `at` are NULL when nothing is that young.
CREATE OR REPLACE FUNCTION queen.log_fetch_offsets(p_tenant uuid, p_queues text[], p_partitions text[], p_at bigint[])
RETURNS TABLE (seq int, last_offset bigint, log_start bigint, at_offset bigint, at timestamptz)
LANGUAGE sql STABLE AS $$
  SELECT w.seq::int - 1, p.last_offset, p.log_start, s.base_offset, s.created_at
    FROM unnest(p_queues, p_partitions, p_at) WITH ORDINALITY AS w (queue, partition, at, seq)
    JOIN queen.queues q ON q.tenant_id = p_tenant AND q.name = w.queue
    JOIN queen.log_partitions p ON p.queue_id = q.id AND p.name = w.partition
    LEFT JOIN LATERAL (
      SELECT c.base_offset, c.created_at FROM queen.log_segments c
       WHERE c.partition_id = p.id
         AND c.base_offset = queen.log_position_at(p.id, queen.from_micros(w.at), p.log_start, p.last_offset,
                                                   p.last_created_at) + 1) s ON true
   ORDER BY w.seq
$$;

-- Pages of partitions, for many queues at once; an unknown queue is left out. Two kinds of sweep:
--   p_sweeps false   all partitions, by name, behind p_names
--   p_sweeps true    those written at or after p_since, by (last_write_at, name), behind (p_ats, p_names) when p_goes_on.
--                    last_write_at moves at most once a second, so it may lie a second before the last write
CREATE OR REPLACE FUNCTION queen.log_partitions_changed(
  p_tenant uuid, p_queues text[], p_sweeps boolean[], p_since bigint[], p_goes_on boolean[], p_ats bigint[],
  p_names text[], p_limits int[]
) RETURNS TABLE (seq int, names text[], lasts bigint[], starts bigint[], written bigint[])
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN QUERY
    SELECT w.seq::int - 1, n.names, n.lasts, n.starts, n.written
      FROM unnest(p_queues, p_sweeps, p_since, p_goes_on, p_ats, p_names, p_limits)
           WITH ORDINALITY AS w (queue, sweep, since, goes_on, at, after, cap, seq)
      JOIN queen.queues q ON q.tenant_id = p_tenant AND q.name = w.queue
     CROSS JOIN LATERAL (
       SELECT array_agg(g.name ORDER BY g.nr) AS names, array_agg(g.last_offset ORDER BY g.nr) AS lasts,
              array_agg(g.log_start ORDER BY g.nr) AS starts, array_agg(queen.micros(g.last_write_at) ORDER BY g.nr) AS written
         FROM (
           SELECT a.*, row_number() OVER (ORDER BY a.name) AS nr
             FROM (SELECT p.name::text AS name, p.last_offset, p.log_start, p.last_write_at FROM queen.log_partitions p
                    WHERE NOT w.sweep AND p.queue_id = q.id AND (NOT w.goes_on OR p.name > w.after)
                    ORDER BY p.name LIMIT w.cap) a
           UNION ALL
           SELECT b.*, row_number() OVER (ORDER BY b.last_write_at, b.name)
             FROM (SELECT p.name::text AS name, p.last_offset, p.log_start, p.last_write_at FROM queen.log_partitions p
                    WHERE w.sweep AND p.queue_id = q.id
                      AND p.last_write_at >= CASE WHEN w.goes_on THEN queen.from_micros(w.at)
                                                  ELSE queen.from_micros(w.since - 1000000) END
                      AND (NOT w.goes_on OR (p.last_write_at, p.name::text) > (queen.from_micros(w.at), w.after))
                    ORDER BY p.last_write_at, p.name LIMIT w.cap) b) g) n;
END $$;

-- The instant below which nothing can become visible any more. A message's time is read inside its transaction after
-- that has its id, so it is not before the start of that transaction; the margin is for a clock that is set back a
-- little. A transaction without an id has written nothing, and will read the time later than now.
--
-- It has to be read before the look at the partitions whose completeness it vouches for, in a transaction of its own:
-- the server copies its list of activities once a transaction. `degraded`: sessions of other accounts are hidden from
-- this one (grant it pg_read_all_stats), or the server does not track them; then p_floor_ms decides how far back is safe.
-- The age of a transaction is measured on the server's clock and laid on queen.clock(), the clock of the messages.
CREATE OR REPLACE FUNCTION queen.log_safe_time(p_floor_ms int, OUT safe timestamptz, OUT degraded boolean)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now    timestamptz := queen.clock();
  v_server timestamptz := clock_timestamp();
  v_oldest timestamptz;
BEGIN
  SELECT min(a.xact_start) FILTER (WHERE a.backend_xid IS NOT NULL),
         coalesce(bool_or(a.query = '<insufficient privilege>' OR (a.backend_xid IS NOT NULL AND a.xact_start IS NULL)),
                  false)
    INTO v_oldest, degraded
    FROM pg_stat_activity a
   WHERE a.datid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
     AND a.pid <> pg_backend_pid() AND a.backend_type IS DISTINCT FROM 'autovacuum worker';
  safe := CASE WHEN degraded THEN v_now - p_floor_ms * interval '1 millisecond'
               ELSE v_now - greatest(v_server - coalesce(v_oldest, v_server), interval '0') - interval '5 seconds' END;
END $$;
