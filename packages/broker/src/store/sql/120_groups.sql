-- Consumer groups as things to look at and to move: lag, subscription, seek, deletion.
--
-- What is read is watermark arithmetic: one set-based statement, no message is looked at. Only the lag in seconds
-- touches segments, one step on the primary key for each partition that is behind and whose next message is not its
-- oldest one.
--
-- What is written moves cursors behind the backs of brokers that keep ready indexes in memory. So each move publishes a
-- row of hotlist_repairs in its own transaction: whoever sees the cursors moved can see that they were.
--
-- Lock order: the queue row (KEY SHARE: it must not be deleted meanwhile), partitions ascending (KEY SHARE, only where
-- consumer rows have to be made), consumer rows ascending, then the leaves: watermarks, registrations, repairs.

-- The registration that decides where a group (NULL: each) starts on a queue that it has registered on, or that a scope of
-- its registrations covers. The queue's own comes before a scope's.
CREATE OR REPLACE FUNCTION queen.group_registrations(p_tenant uuid, p_group text)
RETURNS TABLE (consumer_group text, queue_id bigint, mode text, at timestamptz, conflation boolean,
               registered_at timestamptz)
LANGUAGE sql STABLE AS $$
  SELECT DISTINCT ON (m.consumer_group, q.id)
         m.consumer_group::text, q.id, m.subscription_mode, m.subscription_timestamp, m.conflation, m.created_at
    FROM queen.consumer_groups_metadata m
    JOIN queen.queues q
      ON q.tenant_id = m.tenant_id
     AND (q.id = m.queue_id
          OR (m.queue_id IS NULL AND m.namespace IN ('', q.namespace) AND m.task IN ('', q.task)))
   WHERE m.tenant_id = p_tenant AND m.partition_name = ''
     AND (p_group IS NULL OR m.consumer_group = p_group)
   ORDER BY m.consumer_group, q.id, m.queue_id NULLS LAST, m.subscription_timestamp NULLS FIRST
$$;

-- Where groups stand, one row a (group, partition): `done` is the highest offset that is consumed or gone, `since` the time
-- of the oldest message above it (NULL: there is none). A partition that a registered group has not met yet (`met`
-- false) counts from where the group would start on it: it was mostly created after the registration, so nothing of it
-- is done. `since` is a subquery in a CASE, not a function: this way it runs only where somebody is behind and the
-- partition's own columns do not tell, and it is not started anew as a function for each of a hundred thousand rows. The
-- queue's name comes along with the partition: a join on top of all this would leave the planner its order to guess.
-- p_group and p_queue NULL: of all.
CREATE OR REPLACE FUNCTION queen.group_positions(p_tenant uuid, p_group text, p_queue text)
RETURNS TABLE (consumer_group text, queue_id bigint, queue text, partition_id bigint, partition text, met boolean, done bigint,
               last_offset bigint, oldest_live_at timestamptz, worker_id text, leased boolean, total_consumed bigint,
               since timestamptz)
LANGUAGE sql STABLE AS $$
  WITH parts AS MATERIALIZED (
    SELECT p.id, p.queue_id, q.name::text AS queue, p.name::text AS name, p.last_offset, p.log_start, p.oldest_live_at,
           p.last_created_at, p.created_at
      FROM queen.queues q JOIN queen.log_partitions p ON p.queue_id = q.id
     WHERE q.tenant_id = p_tenant AND (p_queue IS NULL OR q.name = p_queue)
  )
  SELECT u.grp, u.queue_id, u.queue, u.id, u.name, u.met, u.done, u.last_offset, u.oldest_live_at, u.worker_id, u.leased,
         u.consumed,
         CASE WHEN u.done >= u.last_offset THEN NULL
              WHEN u.done < u.log_start THEN u.oldest_live_at
              ELSE coalesce((SELECT s.created_at FROM queen.log_segments s
                              WHERE s.partition_id = u.id AND s.base_offset <= u.done + 1
                              ORDER BY s.base_offset DESC LIMIT 1), u.oldest_live_at) END
    FROM (
      SELECT c.consumer_group::text AS grp, p.queue_id, p.queue, p.id, p.name, true AS met,
             greatest(c.committed, p.log_start - 1) AS done, p.last_offset, p.log_start, p.oldest_live_at,
             c.worker_id,
             c.worker_id IS NOT NULL AND c.batch_end IS NOT NULL AND c.lease_expires_at > t.now AS leased,
             c.total_consumed AS consumed
        FROM (SELECT queen.clock() AS now) t, parts p
        JOIN queen.log_consumers c ON c.partition_id = p.id
       WHERE p_group IS NULL OR c.consumer_group = p_group
      UNION ALL
      SELECT r.consumer_group, p.queue_id, p.queue, p.id, p.name, false,
             CASE WHEN r.mode = 'all' OR r.at IS NULL OR p.created_at >= r.at THEN p.log_start - 1
                  ELSE greatest(p.log_start - 1, queen.log_seed(r.mode, r.at, false, p.id, p.log_start, p.last_offset,
                                                                p.last_created_at)) END,
             p.last_offset, p.log_start, p.oldest_live_at, NULL, false, 0
        FROM queen.group_registrations(p_tenant, p_group) r
        JOIN parts p ON p.queue_id = r.queue_id
       WHERE NOT EXISTS (SELECT FROM queen.log_consumers c
                          WHERE c.partition_id = p.id AND c.consumer_group = r.consumer_group)
    ) u
$$;

-- One row a (group, queue), by name. `cursors` counts the partitions that the group has met; a registered group of a
-- queue without partitions is there with zeros.
CREATE OR REPLACE FUNCTION queen.group_list(p_tenant uuid)
RETURNS TABLE (consumer_group text, queue text, cursors bigint, behind bigint, lag bigint, lag_us bigint,
               consumed boolean, conflation boolean, mode text, at timestamptz, registered_at timestamptz)
LANGUAGE sql STABLE AS $$
  WITH standing AS MATERIALIZED (
    SELECT g.consumer_group, g.queue_id, count(*) FILTER (WHERE g.met) AS cursors,
           count(*) FILTER (WHERE g.last_offset > g.done) AS behind,
           coalesce(sum(greatest(g.last_offset - g.done, 0)), 0)::bigint AS lag,
           min(g.since) AS since,
           bool_or(g.total_consumed > 0) AS consumed
      FROM queen.group_positions(p_tenant, NULL, NULL) g
     GROUP BY g.consumer_group, g.queue_id
  ), registered AS MATERIALIZED (
    SELECT r.* FROM queen.group_registrations(p_tenant, NULL) r
  )
  SELECT coalesce(s.consumer_group, r.consumer_group), q.name::text, coalesce(s.cursors, 0), coalesce(s.behind, 0),
         coalesce(s.lag, 0), greatest(coalesce(queen.micros(queen.clock()) - queen.micros(s.since), 0), 0),
         coalesce(s.consumed, false), coalesce(r.conflation, false), r.mode, r.at, r.registered_at
    FROM standing s
    FULL JOIN registered r ON r.consumer_group = s.consumer_group AND r.queue_id = s.queue_id
    JOIN queen.queues q ON q.id = coalesce(s.queue_id, r.queue_id)
   ORDER BY 1, 2
$$;

-- The (group, partition) pairs whose oldest unconsumed message has waited for p_min microseconds or longer, the longest
-- first. The age of the partition's oldest message is an upper bound that costs nothing, so most pairs are settled by it.
CREATE OR REPLACE FUNCTION queen.group_lagging(p_tenant uuid, p_min bigint, p_limit int)
RETURNS TABLE (consumer_group text, queue text, partition text, partition_id bigint, worker_id text, lag bigint,
               lag_us bigint, since timestamptz)
LANGUAGE sql STABLE AS $$
  WITH bound AS MATERIALIZED (
    SELECT c.now, c.now - p_min * interval '1 microsecond' AS at FROM (SELECT queen.clock() AS now) c
  ), behind AS MATERIALIZED (
    SELECT g.consumer_group, g.queue, g.partition, g.partition_id, g.worker_id, g.last_offset - g.done AS lag, g.since
      FROM queen.group_positions(p_tenant, NULL, NULL) g
     WHERE g.last_offset > g.done AND g.oldest_live_at <= (SELECT b.at FROM bound b)
  )
  SELECT w.consumer_group, w.queue, w.partition, w.partition_id, w.worker_id, w.lag,
         greatest(queen.micros(b.now) - queen.micros(w.since), 0), w.since
    FROM behind w, bound b
   WHERE w.since <= b.at
   ORDER BY w.since, w.consumer_group, w.partition_id
   LIMIT p_limit
$$;

-- A group in detail, one row a partition, by queue and name.
CREATE OR REPLACE FUNCTION queen.group_detail(p_tenant uuid, p_group text)
RETURNS TABLE (queue text, conflation boolean, partition text, worker_id text, consumed bigint, lag bigint, lag_us bigint,
               leased boolean)
LANGUAGE sql STABLE AS $$
  WITH registered AS MATERIALIZED (
    SELECT r.queue_id, r.conflation FROM queen.group_registrations(p_tenant, p_group) r
  )
  SELECT g.queue, coalesce((SELECT r.conflation FROM registered r WHERE r.queue_id = g.queue_id), false), g.partition,
         g.worker_id, g.total_consumed, greatest(g.last_offset - g.done, 0),
         greatest(coalesce(queen.micros(t.now) - queen.micros(g.since), 0), 0), g.leased
    FROM (SELECT queen.clock() AS now) t, queen.group_positions(p_tenant, p_group, NULL) g
   ORDER BY g.queue, g.partition
$$;

-- A group on one queue for a person who looks: sums over its partitions in every row, and one page of those whose name
-- holds p_search (NULL: all), in whatever case, by 'lag', 'waiting' or 'name'. A page without partitions is one row whose
-- partition is NULL.
CREATE OR REPLACE FUNCTION queen.group_page(p_tenant uuid, p_group text, p_queue text, p_search text, p_sort text,
                                            p_descending boolean, p_limit int, p_skip bigint)
RETURNS TABLE (partitions bigint, cursors bigint, behind bigint, total_lag bigint, max_lag_us bigint, matches bigint,
               conflation boolean, partition text, partition_id bigint, met boolean, next_offset bigint, end_offset bigint,
               worker_id text, consumed bigint, lag bigint, lag_us bigint, leased boolean)
LANGUAGE sql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
  WITH standing AS MATERIALIZED (
    SELECT g.partition, g.partition_id, g.met, g.done + 1 AS next_offset, g.last_offset + 1 AS end_offset, g.worker_id,
           g.total_consumed AS consumed, greatest(g.last_offset - g.done, 0) AS lag,
           greatest(coalesce(queen.micros(t.now) - queen.micros(g.since), 0), 0) AS lag_us, g.leased,
           p_search IS NULL OR position(lower(p_search) IN lower(g.partition)) > 0 AS wanted
      FROM (SELECT queen.clock() AS now) t, queen.group_positions(p_tenant, p_group, p_queue) g
  ), sums AS MATERIALIZED (
    SELECT count(*) AS partitions, count(*) FILTER (WHERE s.met) AS cursors, count(*) FILTER (WHERE s.lag > 0) AS behind,
           coalesce(sum(s.lag), 0)::bigint AS lag, coalesce(max(s.lag_us), 0) AS lag_us,
           count(*) FILTER (WHERE s.wanted) AS matches
      FROM standing s
  ), page AS (
    SELECT s.*, row_number() OVER (ORDER BY CASE WHEN p_descending THEN -f.figure ELSE f.figure END,
                                            CASE WHEN p_descending AND p_sort = 'name' THEN s.partition END DESC,
                                            s.partition) AS seq
      FROM standing s
     CROSS JOIN LATERAL (SELECT CASE p_sort WHEN 'lag' THEN s.lag WHEN 'waiting' THEN s.lag_us END AS figure) f
     WHERE s.wanted ORDER BY seq LIMIT p_limit OFFSET p_skip
  )
  SELECT m.partitions, m.cursors, m.behind, m.lag, m.lag_us, m.matches,
         coalesce((SELECT bool_or(r.conflation) FROM queen.group_registrations(p_tenant, p_group) r
                     JOIN queen.queues q ON q.id = r.queue_id AND q.name = p_queue), false),
         p.partition, p.partition_id, p.met, p.next_offset, p.end_offset, p.worker_id, p.consumed, p.lag, p.lag_us,
         p.leased
    FROM sums m LEFT JOIN page p ON true
   ORDER BY p.seq
$$;

-- Changes where a group starts on partitions that it meets from now on; cursors stay. Every record of the group changes,
-- also those of single partitions that somebody waits for; only registrations count in the answer. A registration for
-- everything (`all`) becomes one from that instant: else the instant would mean nothing.
CREATE OR REPLACE FUNCTION queen.group_subscribe(p_tenant uuid, p_group text, p_at timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_registrations bigint;
BEGIN
  PERFORM FROM queen.consumer_watermarks w
    WHERE w.consumer_group = p_group AND w.queue_id IN (SELECT q.id FROM queen.queues q WHERE q.tenant_id = p_tenant)
    ORDER BY w.queue_id FOR UPDATE;
  DELETE FROM queen.consumer_watermarks w
    WHERE w.consumer_group = p_group AND w.queue_id IN (SELECT q.id FROM queen.queues q WHERE q.tenant_id = p_tenant);
  WITH known AS MATERIALIZED (
    SELECT m.id FROM queen.consumer_groups_metadata m
     WHERE m.tenant_id = p_tenant AND m.consumer_group = p_group
     ORDER BY m.id FOR UPDATE
  ), changed AS (
    UPDATE queen.consumer_groups_metadata m SET subscription_mode = 'timestamp', subscription_timestamp = p_at
      FROM known k WHERE m.id = k.id
    RETURNING m.partition_name
  )
  SELECT count(*) FILTER (WHERE c.partition_name = '') INTO v_registrations FROM changed c;
  RETURN v_registrations;
END $$;

-- Tells all brokers that cursors of a group were moved: on one partition, or (NULL) on a whole queue. A second repair for
-- another partition widens the row. The time always changes, since a change is what the readers act on. Old rows go,
-- those that nobody else holds just now: two callers that pruned each other's rows would wait in a circle.
CREATE OR REPLACE FUNCTION queen.group_repair(p_tenant uuid, p_queues text[], p_group text, p_partition text, p_reason text)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := queen.clock();
BEGIN
  INSERT INTO queen.hotlist_repairs AS r (tenant_id, queue_name, consumer_group, partition_name, repair_at, reason)
  SELECT p_tenant, n.name, p_group, p_partition, v_now, p_reason
    FROM (SELECT DISTINCT u.name FROM unnest(p_queues) AS u (name)) AS n ORDER BY n.name
  ON CONFLICT (tenant_id, queue_name, consumer_group) DO UPDATE
     SET partition_name = CASE WHEN r.partition_name = EXCLUDED.partition_name THEN r.partition_name END,
         repair_at = greatest(EXCLUDED.repair_at, r.repair_at + interval '1 microsecond'),
         reason = EXCLUDED.reason;
  DELETE FROM queen.hotlist_repairs r
   USING (SELECT o.tenant_id, o.queue_name, o.consumer_group FROM queen.hotlist_repairs o
           WHERE o.repair_at < v_now - interval '1 hour' FOR UPDATE SKIP LOCKED) AS old
   WHERE r.tenant_id = old.tenant_id AND r.queue_name = old.queue_name AND r.consumer_group = old.consumer_group;
END $$;

-- Moves the cursors of a group on a queue, or on one partition of it (p_partition not NULL), forward or backward. Leases
-- end, so that a late ack of what was delivered before is refused and cannot undo the move. Cursors are made for
-- partitions that the group has not met.
--   p_to   `end`, `beginning`, `offset` (delivery resumes at p_offset, held within what is there), `at` (it resumes with
--          the first segment written at or after p_at, at the end if there is none)
-- moved: cursors; 0: no such queue, or no such partition in it. resumes_at: the next offset of the (one) partition.
CREATE OR REPLACE FUNCTION queen.group_seek(
  p_tenant uuid, p_queue text, p_partition text, p_group text, p_to text, p_offset bigint, p_at timestamptz,
  OUT moved bigint, OUT resumes_at bigint
) LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_queue bigint;
  v_parts bigint[];
BEGIN
  moved := 0;
  SELECT q.id INTO v_queue FROM queen.queues q WHERE q.tenant_id = p_tenant AND q.name = p_queue FOR KEY SHARE;
  IF NOT FOUND THEN RETURN; END IF;

  -- Rows first where there are none. Their value is set below with all others; the key share, ascending, keeps out a
  -- partition that is being removed.
  SELECT array_agg(l.id) INTO v_parts
    FROM (SELECT p.id FROM queen.log_partitions p
           WHERE p.queue_id = v_queue AND (p_partition IS NULL OR p.name = p_partition)
             AND NOT EXISTS (SELECT FROM queen.log_consumers c
                              WHERE c.partition_id = p.id AND c.consumer_group = p_group)
           ORDER BY p.id FOR KEY SHARE) AS l;
  INSERT INTO queen.log_consumers (partition_id, consumer_group, created_at)
  SELECT u.id, p_group, queen.clock() FROM unnest(v_parts) AS u (id) ORDER BY u.id
  ON CONFLICT (partition_id, consumer_group) DO NOTHING;

  SELECT array_agg(l.partition_id) INTO v_parts
    FROM (SELECT c.partition_id FROM queen.log_consumers c
           WHERE c.consumer_group = p_group
             AND c.partition_id IN (SELECT p.id FROM queen.log_partitions p
                                     WHERE p.queue_id = v_queue AND (p_partition IS NULL OR p.name = p_partition))
           ORDER BY c.partition_id FOR UPDATE) AS l;

  -- A new snapshot, from after the locks. Between last_offset and the segments of one snapshot nothing is missing.
  WITH target AS MATERIALIZED (
    SELECT p.id, CASE p_to
             WHEN 'end' THEN p.last_offset
             WHEN 'beginning' THEN p.log_start - 1
             WHEN 'offset' THEN least(greatest(p_offset, p.log_start), p.last_offset + 1) - 1
             ELSE CASE
               WHEN p.last_offset < p.log_start OR p.last_created_at < p_at THEN p.last_offset
               -- A short log is walked: for a hundred thousand of five segments that took a tenth of the bisections' time.
               WHEN p.last_offset - p.log_start < 256 THEN
                 coalesce((SELECT s.base_offset FROM queen.log_segments s
                            WHERE s.partition_id = p.id AND s.created_at >= p_at
                            ORDER BY s.base_offset LIMIT 1) - 1, p.last_offset)
               ELSE queen.log_position_at(p.id, p_at, p.log_start, p.last_offset, p.last_created_at) END
             END AS done
      FROM queen.log_partitions p WHERE p.id = ANY (v_parts)
  ), changed AS (
    UPDATE queen.log_consumers c
       SET committed = t.done, batch_end = NULL, worker_id = NULL, lease_expires_at = NULL, lease_acquired_at = NULL,
           lease_conflated = false, batch_retry_count = 0, attempt_offset = NULL, attempt_count = 0
      FROM target t
     WHERE c.partition_id = t.id AND c.consumer_group = p_group
    RETURNING c.committed
  )
  SELECT count(*), max(g.committed) + 1 INTO moved, resumes_at FROM changed g;
  IF moved = 0 THEN RETURN; END IF;

  DELETE FROM queen.consumer_watermarks w WHERE w.queue_id = v_queue AND w.consumer_group = p_group;
  PERFORM queen.group_repair(p_tenant, ARRAY[p_queue], p_group, p_partition, 'seek');
END $$;

-- Removes the cursors of a group, on one queue or (p_queue NULL) on all of the tenant, and with p_registrations where it
-- was to start. Whatever comes next is first contact. `queues`: those that a broker may remember the group on.
CREATE OR REPLACE FUNCTION queen.group_delete(
  p_tenant uuid, p_group text, p_queue text, p_registrations boolean, OUT cursors bigint, OUT queues text[]
) LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_queues bigint[];
  v_parts  bigint[];
BEGIN
  SELECT array_agg(l.id), array_agg(l.name) INTO v_queues, queues
    FROM (SELECT q.id, q.name::text AS name FROM queen.queues q
           WHERE q.tenant_id = p_tenant AND (p_queue IS NULL OR q.name = p_queue)
             AND (p_queue IS NOT NULL
                  OR q.id IN (SELECT r.queue_id FROM queen.group_registrations(p_tenant, p_group) r)
                  OR q.id IN (SELECT m.queue_id FROM queen.consumer_groups_metadata m
                               WHERE m.tenant_id = p_tenant AND m.consumer_group = p_group)
                  OR q.id IN (SELECT p.queue_id FROM queen.log_consumers c
                                JOIN queen.log_partitions p ON p.id = c.partition_id
                               WHERE c.consumer_group = p_group))
           ORDER BY q.id FOR KEY SHARE OF q) AS l;

  SELECT array_agg(l.partition_id) INTO v_parts
    FROM (SELECT c.partition_id FROM queen.log_consumers c
           WHERE c.consumer_group = p_group
             AND c.partition_id IN (SELECT p.id FROM queen.log_partitions p WHERE p.queue_id = ANY (v_queues))
           ORDER BY c.partition_id FOR UPDATE) AS l;
  DELETE FROM queen.log_consumers c WHERE c.consumer_group = p_group AND c.partition_id = ANY (v_parts);
  GET DIAGNOSTICS cursors = ROW_COUNT;

  PERFORM FROM queen.consumer_watermarks w
    WHERE w.consumer_group = p_group AND w.queue_id = ANY (v_queues) ORDER BY w.queue_id FOR UPDATE;
  DELETE FROM queen.consumer_watermarks w WHERE w.consumer_group = p_group AND w.queue_id = ANY (v_queues);
  IF p_registrations THEN
    PERFORM FROM queen.consumer_groups_metadata m
      WHERE m.tenant_id = p_tenant AND m.consumer_group = p_group AND (p_queue IS NULL OR m.queue_id = ANY (v_queues))
      ORDER BY m.id FOR UPDATE;
    DELETE FROM queen.consumer_groups_metadata m
      WHERE m.tenant_id = p_tenant AND m.consumer_group = p_group AND (p_queue IS NULL OR m.queue_id = ANY (v_queues));
  END IF;
  queues := coalesce(queues, '{}');
  IF cardinality(queues) > 0 THEN
    PERFORM queen.group_repair(p_tenant, queues, p_group, NULL, 'group deleted');
  END IF;
END $$;
