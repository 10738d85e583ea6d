-- Retention: what deletes messages, sidecar rows and partitions that nobody needs any more.
--
-- The invariant. A step deletes a contiguous prefix of whole segments, under the partition row lock that every
-- push takes first, and moves the watermarks in the same UPDATE. So a reader finds either the old prefix with
-- the old watermark or neither; log_start never moves back; and what stays behind is still one gapless log.
--
-- Why the lock is FOR UPDATE and not the weaker kind: creating a consumer row takes KEY SHARE on its
-- partition (the foreign key). A group that meets the partition in the same instant is therefore either seen
-- by the step, and held for, or starts after it.
--
-- Time. Every function takes the moment of the whole cycle, `p_now`, and works out its cutoffs from the
-- queue's configuration as the same transaction reads it: a limit that was lifted meanwhile deletes nothing.
-- A rule that is off has a NULL cutoff, and NULL matches nothing.
--
-- Which partitions have work is read off the partial indexes over oldest_live_at and oldest_txn_at. They hold
-- facts (the age of the oldest data) and never policy, so a changed configuration needs no backfill.
--
-- enable_seqscan is off in the procedures because their plans are cached for the session: one that was made
-- while a table was small would scan it whole long after it has grown.

-- The moment that all cutoffs of one cycle are measured from.
CREATE OR REPLACE FUNCTION queen.maintenance_now() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$ SELECT queen.clock() $$;

-- The time before which a rule applies; NULL when it is off.
CREATE OR REPLACE FUNCTION queen.retention_cutoff(p_now timestamptz, p_seconds bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_seconds > 0 THEN p_now - p_seconds * interval '1 second' END
$$;

-- How long a hash stays resolvable, in seconds: the window, completed retention (an ack may come as late as
-- that rule allows), and never less than a quarter of an hour.
CREATE OR REPLACE FUNCTION queen.sidecar_seconds(p_window int, p_completed int) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT greatest(p_window, p_completed, 900)::bigint $$;

-- Partitions whose oldest segment (or sidecar row, for 'sidecar') is old enough for a rule of their queue,
-- read from where the previous list stopped: in the order of (queue, age, id), from just after
-- (p_after_queue, p_after_at, p_after_id) on. Partitions that are due but blocked (a consumer that is behind,
-- a sink) so cannot keep the others off a list of bounded length. `rules` is the configuration that made the
-- partition due, so that a caller who backs off notices a change. At most p_limit partitions and as many queues:
-- after that many queues the list ends with a row without a partition that names the queue to go on from.
CREATE OR REPLACE FUNCTION queen.retention_due(p_phase text, p_now timestamptz, p_after_queue bigint,
                                               p_after_at timestamptz, p_after_id bigint, p_limit int)
RETURNS TABLE (partition_id bigint, queue_id bigint, oldest_at timestamptz, rules text)
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  q         record;
  v_from    timestamptz;
  v_from_id bigint;
  v_left    int := p_limit;
  v_queues  int := 0;
  v_got     int;
BEGIN
  FOR q IN
    SELECT c.id, c.cutoff, c.rules FROM (
      SELECT x.id,
             CASE p_phase
               WHEN 'segments' THEN CASE WHEN x.retention_enabled THEN
                 greatest(queen.retention_cutoff(p_now, x.retention_seconds),
                          queen.retention_cutoff(p_now, x.completed_retention_seconds)) END
               WHEN 'max_wait' THEN queen.retention_cutoff(p_now, x.max_wait_time_seconds)
               WHEN 'sidecar' THEN queen.retention_cutoff(p_now,
                 queen.sidecar_seconds(x.dedup_window_seconds, x.completed_retention_seconds))
             END AS cutoff,
             concat_ws(' ', x.retention_seconds, x.completed_retention_seconds, x.max_wait_time_seconds,
                       x.dedup_window_seconds, x.retention_sink_hold, x.retention_sink_hold_max_seconds) AS rules
        FROM queen.queues x WHERE x.id >= p_after_queue) AS c
     WHERE c.cutoff IS NOT NULL
     ORDER BY c.id
  LOOP
    -- The sidecar rule concerns every queue, whether or not one of its partitions is due.
    IF v_queues >= p_limit THEN
      RETURN QUERY SELECT NULL::bigint, q.id, timestamptz 'epoch', NULL::text;
      EXIT;
    END IF;
    v_queues := v_queues + 1;
    v_from := CASE WHEN q.id = p_after_queue THEN p_after_at ELSE timestamptz 'epoch' END;
    v_from_id := CASE WHEN q.id = p_after_queue THEN p_after_id ELSE 0 END;
    IF p_phase = 'sidecar' THEN
      RETURN QUERY
        SELECT p.id, q.id, p.oldest_txn_at, q.rules FROM queen.log_partitions p
         WHERE p.queue_id = q.id AND p.oldest_txn_at < q.cutoff
           AND p.oldest_txn_at >= v_from AND (p.oldest_txn_at, p.id) > (v_from, v_from_id)
         ORDER BY p.oldest_txn_at, p.id LIMIT v_left;
    ELSE
      RETURN QUERY
        SELECT p.id, q.id, p.oldest_live_at, q.rules FROM queen.log_partitions p
         WHERE p.queue_id = q.id AND p.oldest_live_at < q.cutoff
           AND p.oldest_live_at >= v_from AND (p.oldest_live_at, p.id) > (v_from, v_from_id)
         ORDER BY p.oldest_live_at, p.id LIMIT v_left;
    END IF;
    GET DIAGNOSTICS v_got = ROW_COUNT;
    v_left := v_left - v_got;
    EXIT WHEN v_left <= 0;
  END LOOP;
END $$;

-- The highest offset that every group of a partition has passed; NULL when no group has met it. A registered group that has
-- not met it yet (it was mostly created after the registration) stands where it would start on it: a slow group must not
-- lose what faster ones have done with before it came to it. What holds here is what is listed and counted as lag, so a
-- record of a single partition, which a pop may have left that never came again, does not.
CREATE OR REPLACE FUNCTION queen.retention_passed(p_part queen.log_partitions, p_queue queen.queues) RETURNS bigint
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
  v_done bigint;
BEGIN
  SELECT min(c.committed) INTO v_done FROM queen.log_consumers c WHERE c.partition_id = p_part.id;
  -- Nothing to hold: the slowest of those that have met it holds all of it.
  IF v_done IS NULL OR v_done < p_part.log_start THEN RETURN v_done; END IF;
  SELECT least(v_done, min(queen.log_seed(r.mode, r.at, false, p_part.id, p_part.log_start, p_part.last_offset,
                                          p_part.last_created_at)))
    INTO v_done
    FROM (SELECT m.consumer_group FROM queen.consumer_groups_metadata m
           WHERE m.queue_id = p_queue.id AND m.partition_name = ''
           UNION
          SELECT m.consumer_group FROM queen.consumer_groups_metadata m
           WHERE m.queue_id IS NULL AND m.tenant_id = p_queue.tenant_id
             AND m.namespace IN ('', p_queue.namespace) AND m.task IN ('', p_queue.task)) AS g
   CROSS JOIN LATERAL queen.log_pop_record(p_queue.tenant_id, g.consumer_group, p_queue.id, p_part.name,
                                           p_queue.namespace, p_queue.task, NULL) AS r
   WHERE NOT EXISTS (SELECT FROM queen.log_consumers c
                      WHERE c.partition_id = p_part.id AND c.consumer_group = g.consumer_group);
  RETURN v_done;
END $$;

-- One step of the segment rules on one partition: 'segments' (rules 1 and 2) or 'max_wait' (rule 3). At most
-- `p_rows` segments go, and no more after the one that takes the step past 32 MiB: a large blob is many rows of the
-- TOAST table, and pushes wait for the partition meanwhile. `more`: all that the step could look at went and
-- something is left, so another step may find work at once. No row: the partition is gone. A step that finds the recorded age wrong puts it right on the way.
--
--   1 retention           older than retention_seconds, consumed or not
--   2 completed retention older than completed_retention_seconds and passed by every group of the partition;
--                         no group at all: nothing
--   3 max wait            older than max_wait_time_seconds, whatever leases and groups say
--
-- A sink hold stops 1 and 2, never 3, and never for data older than the hold's maximum: see retention_sink_point.
CREATE OR REPLACE FUNCTION queen.retention_step(p_partition bigint, p_phase text, p_now timestamptz, p_rows int)
RETURNS TABLE (segments bigint, messages bigint, more boolean, rule text)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
DECLARE
  v_part      queen.log_partitions;
  v_queue     queen.queues;
  v_age       timestamptz;  -- rule 1, or rule 3: older goes
  v_done_age  timestamptz;  -- rule 2: older goes if ...
  v_done      bigint;       -- ... it ends at or below this offset
  v_hold_max  timestamptz;  -- older than this is never held
  v_hold_at   timestamptz;  -- written at or after this is held
  v_hold_from bigint;       -- ends above this offset is held
  v_held      boolean := false;
  v_seen      bigint;
  v_stay      bigint;
  v_end       bigint;
  v_by_age    bigint;
  v_next      bigint;
  v_next_at   timestamptz;
BEGIN
  SELECT * INTO v_part FROM queen.log_partitions p WHERE p.id = p_partition FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  SELECT * INTO v_queue FROM queen.queues q WHERE q.id = v_part.queue_id;

  IF p_phase = 'max_wait' THEN
    v_age := queen.retention_cutoff(p_now, v_queue.max_wait_time_seconds);
  ELSIF v_queue.retention_enabled THEN
    v_age := queen.retention_cutoff(p_now, v_queue.retention_seconds);
    v_done_age := queen.retention_cutoff(p_now, v_queue.completed_retention_seconds);
    IF v_done_age IS NOT NULL THEN
      v_done := queen.retention_passed(v_part, v_queue);
    END IF;
    IF v_queue.retention_sink_hold <> '' THEN
      v_held := true;
      v_hold_max := queen.retention_cutoff(p_now, greatest(v_queue.retention_sink_hold_max_seconds, 60));
      SELECT s.committed_at - interval '60 seconds', s.committed_offset INTO v_hold_at, v_hold_from
        FROM queen.retention_sink_point(v_queue.tenant_id, v_queue.retention_sink_hold, p_partition) s LIMIT 1;
    END IF;
  END IF;

  -- The horizon: the first p_rows live segments, walked on the primary key; of their blobs only the length.
  SELECT count(*), coalesce(min(s.base_offset) FILTER (WHERE NOT s.goes), max(s.base_offset) + 1),
         max(s.end_offset) FILTER (WHERE s.by_age)
    INTO v_seen, v_stay, v_by_age
    FROM (SELECT h.base_offset, h.end_offset,
                 (coalesce(h.created_at < v_age, false)
                  OR coalesce(h.created_at < v_done_age AND h.end_offset <= v_done, false))
                 AND NOT (v_held AND h.created_at >= v_hold_max
                          AND CASE WHEN v_hold_at IS NULL AND v_hold_from IS NULL THEN true
                                   ELSE coalesce(h.created_at >= v_hold_at, false)
                                        OR coalesce(h.end_offset > v_hold_from, false) END) AS goes,
                 coalesce(h.created_at < v_age, false) AS by_age
            FROM (SELECT l.*, coalesce(sum(l.bytes) OVER (ORDER BY l.base_offset
                                                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS ahead
                    FROM (SELECT g.base_offset, g.end_offset, g.created_at, octet_length(g.blob) AS bytes
                            FROM queen.log_segments g
                           WHERE g.partition_id = p_partition AND g.base_offset >= v_part.log_start
                           ORDER BY g.base_offset LIMIT p_rows) AS l) AS h
           WHERE h.ahead < 33554432) AS s;

  WITH gone AS (
    DELETE FROM queen.log_segments g
     WHERE g.partition_id = p_partition AND g.base_offset >= v_part.log_start AND g.base_offset < v_stay
    RETURNING g.base_offset, g.end_offset
  )
  SELECT count(*), coalesce(sum(g.end_offset - g.base_offset + 1), 0), max(g.end_offset)
    INTO segments, messages, v_end FROM gone g;

  SELECT g.base_offset, g.created_at INTO v_next, v_next_at
    FROM queen.log_segments g
   WHERE g.partition_id = p_partition AND g.base_offset >= coalesce(v_end + 1, v_part.log_start)
   ORDER BY g.base_offset LIMIT 1;
  more := segments > 0 AND segments = v_seen AND v_next IS NOT NULL;
  v_next := greatest(coalesce(v_next, v_part.last_offset + 1), v_part.log_start);
  IF v_next <> v_part.log_start OR v_next_at IS DISTINCT FROM v_part.oldest_live_at THEN
    UPDATE queen.log_partitions p SET log_start = v_next, oldest_live_at = v_next_at WHERE p.id = p_partition;
  END IF;

  IF segments > 0 THEN
    rule := CASE WHEN p_phase = 'max_wait' THEN 'max_wait'
                 WHEN coalesce(v_by_age, -1) >= v_end THEN 'retention'
                 ELSE 'completed_retention' END;
    INSERT INTO queen.retention_history (partition_id, messages_deleted, retention_type, executed_at)
    VALUES (p_partition, messages, rule, p_now);
  END IF;
  RETURN NEXT;
END $$;

-- One step of the sidecar purge on one partition: at most `p_rows` rows, oldest first. Independent of the
-- segments: a message may outlive its hash, and a hash its message. No row: the partition is gone.
CREATE OR REPLACE FUNCTION queen.sidecar_step(p_partition bigint, p_now timestamptz, p_rows int)
RETURNS TABLE (purged bigint, more boolean)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
DECLARE
  v_part    queen.log_partitions;
  v_cutoff  timestamptz;
  v_stay    bigint;
  v_end     bigint;
  v_next    bigint;
  v_next_at timestamptz;
BEGIN
  SELECT * INTO v_part FROM queen.log_partitions p WHERE p.id = p_partition FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  SELECT queen.retention_cutoff(p_now, queen.sidecar_seconds(q.dedup_window_seconds, q.completed_retention_seconds))
    INTO v_cutoff FROM queen.queues q WHERE q.id = v_part.queue_id;

  WITH horizon AS MATERIALIZED (
    SELECT t.base_offset, t.created_at FROM queen.log_txns t
     WHERE t.partition_id = p_partition AND t.base_offset >= v_part.txns_start
     ORDER BY t.base_offset LIMIT p_rows
  )
  SELECT coalesce(min(h.base_offset) FILTER (WHERE h.created_at >= v_cutoff), max(h.base_offset) + 1)
    INTO v_stay FROM horizon h;

  WITH gone AS (
    DELETE FROM queen.log_txns t
     WHERE t.partition_id = p_partition AND t.base_offset >= v_part.txns_start AND t.base_offset < v_stay
    RETURNING t.end_offset
  )
  SELECT count(*), max(g.end_offset) INTO purged, v_end FROM gone g;
  more := purged >= p_rows;

  SELECT t.base_offset, t.created_at INTO v_next, v_next_at
    FROM queen.log_txns t
   WHERE t.partition_id = p_partition AND t.base_offset >= coalesce(v_end + 1, v_part.txns_start)
   ORDER BY t.base_offset LIMIT 1;
  v_next := greatest(coalesce(v_next, v_part.last_offset + 1), v_part.txns_start);
  IF v_next <> v_part.txns_start OR v_next_at IS DISTINCT FROM v_part.oldest_txn_at THEN
    UPDATE queen.log_partitions p SET txns_start = v_next, oldest_txn_at = v_next_at WHERE p.id = p_partition;
  END IF;
  RETURN NEXT;
END $$;

-- What makes a partition removable, apart from its age: nothing retained, no dead letter that refers to it, no
-- group that leased or met it since the cutoff, and no hash that could still turn a push into a duplicate (a
-- deduplication window may be longer than the cleanup's patience). Whatever keeps state
-- of its own about a partition has to be asked here.
CREATE OR REPLACE FUNCTION queen.partition_unused(p_partition bigint, p_cutoff timestamptz, p_now timestamptz)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT NOT EXISTS (SELECT 1 FROM queen.log_segments s WHERE s.partition_id = p_partition)
     AND NOT EXISTS (SELECT 1 FROM queen.log_dlq d WHERE d.partition_id = p_partition)
     AND NOT EXISTS (SELECT 1 FROM queen.log_consumers c
                      WHERE c.partition_id = p_partition
                        AND (c.created_at >= p_cutoff OR c.lease_acquired_at >= p_cutoff
                             OR (c.worker_id IS NOT NULL AND c.lease_expires_at > p_now)))
     AND NOT EXISTS (SELECT 1 FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id
                      WHERE p.id = p_partition
                        AND p.last_created_at >= p_now - q.dedup_window_seconds * interval '1 second')
$$;

-- Removes partitions that have been empty and idle since the cutoff, from one page of `p_page` partitions
-- after `p_after`. `last_id` is where the next page starts, NULL after the last one. At most `p_max` go in one
-- transaction, so that no lock is held long; a page that reaches it ends there.
--
-- SKIP LOCKED: a partition that somebody is working on is not idle. The conditions on other tables are judged
-- again under the lock, since the first look at them was a snapshot. A push that waits for the lock finds the
-- row gone and provisions a new partition with another id, so no cursor of the old one can lie ahead of it.
CREATE OR REPLACE FUNCTION queen.partition_cleanup(p_cutoff timestamptz, p_now timestamptz, p_after bigint,
                                                   p_page int, p_max int)
RETURNS TABLE (removed bigint[], queues bigint[], last_id bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
DECLARE
  v_id     bigint;
  v_queue  bigint;
  v_seen   int;
  v_taken  int := 0;
BEGIN
  removed := '{}';
  queues := '{}';
  last_id := NULL;
  -- The second belt beside maintenance_leases: two cleanups at once would only skip each other's rows.
  IF NOT pg_try_advisory_xact_lock(737001) THEN RETURN NEXT; RETURN; END IF;

  SELECT max(g.id), count(*) INTO last_id, v_seen
    FROM (SELECT p.id FROM queen.log_partitions p WHERE p.id > p_after ORDER BY p.id LIMIT p_page) AS g;
  FOR v_id, v_queue IN
    SELECT p.id, p.queue_id FROM queen.log_partitions p
     WHERE p.id > p_after AND p.id <= last_id
       AND p.created_at < p_cutoff AND p.last_write_at < p_cutoff AND p.log_start > p.last_offset
       AND queen.partition_unused(p.id, p_cutoff, p_now)
     ORDER BY p.id LIMIT p_max
       FOR UPDATE SKIP LOCKED
  LOOP
    v_taken := v_taken + 1;
    PERFORM 1 FROM (SELECT 1 FROM queen.log_consumers c WHERE c.partition_id = v_id
                     ORDER BY c.consumer_group FOR UPDATE) AS l;
    IF queen.partition_unused(v_id, p_cutoff, p_now) THEN
      DELETE FROM queen.log_txns t WHERE t.partition_id = v_id;
      DELETE FROM queen.log_partitions p WHERE p.id = v_id;
      INSERT INTO queen.retention_history (partition_id, messages_deleted, retention_type, executed_at)
      VALUES (v_id, 0, '__partition_deleted__', p_now);
      removed := removed || v_id;
      queues := queues || v_queue;
    END IF;
    IF v_taken >= p_max THEN last_id := v_id; END IF;
  END LOOP;
  IF v_taken < p_max AND v_seen < p_page THEN last_id := NULL; END IF;
  RETURN NEXT;
END $$;

-- One step behind the deletion of queues: some `p_rows` segments and sidecar rows of partitions that are no more, from
-- where the last step stopped. Brokers at it at once pass each other by. `more`: something may be left.
CREATE OR REPLACE FUNCTION queen.garbage_step(p_rows int) RETURNS TABLE (rows bigint, more boolean)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
DECLARE
  g      queen.log_garbage;
  v_stay bigint;
  v_gone bigint;
BEGIN
  rows := 0;
  more := false;
  FOR g IN SELECT * FROM queen.log_garbage x ORDER BY x.partition_id LIMIT 100 FOR UPDATE SKIP LOCKED LOOP
    more := true;
    EXIT WHEN rows >= p_rows;
    -- The first offset that stays for the next step; NULL: all of the partition goes.
    v_stay := least(
      (SELECT s.base_offset FROM queen.log_segments s
        WHERE s.partition_id = g.partition_id AND s.base_offset >= g.from_offset
        ORDER BY s.base_offset OFFSET p_rows - rows LIMIT 1),
      (SELECT t.base_offset FROM queen.log_txns t
        WHERE t.partition_id = g.partition_id AND t.base_offset >= g.from_offset
        ORDER BY t.base_offset OFFSET p_rows - rows LIMIT 1));
    DELETE FROM queen.log_segments s
     WHERE s.partition_id = g.partition_id AND s.base_offset >= g.from_offset
       AND s.base_offset < coalesce(v_stay, 9223372036854775807);
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    rows := rows + v_gone;
    DELETE FROM queen.log_txns t
     WHERE t.partition_id = g.partition_id AND t.base_offset >= g.from_offset
       AND t.base_offset < coalesce(v_stay, 9223372036854775807);
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    rows := rows + v_gone;
    IF v_stay IS NULL THEN DELETE FROM queen.log_garbage x WHERE x.partition_id = g.partition_id;
    ELSE UPDATE queen.log_garbage x SET from_offset = v_stay WHERE x.partition_id = g.partition_id;
    END IF;
  END LOOP;
  RETURN NEXT;
END $$;

-- The safety walk, first half: partitions of one page whose recorded ages differ from the tables. Returns the
-- facts together with the watermarks that they were read under, and where the next page starts (`last_id`,
-- NULL after the last one; the row with NULL id carries it when nothing differs).
CREATE OR REPLACE FUNCTION queen.retention_walk_read(p_after bigint, p_page int)
RETURNS TABLE (last_id bigint, id bigint, last_offset bigint, log_start bigint, txns_start bigint,
               oldest_live_at timestamptz, oldest_txn_at timestamptz)
LANGUAGE sql STABLE AS $$
  WITH page AS MATERIALIZED (
    SELECT p.id, p.last_offset, p.log_start, p.txns_start, p.oldest_live_at, p.oldest_txn_at
      FROM queen.log_partitions p WHERE p.id > p_after ORDER BY p.id LIMIT p_page
  ), drifted AS (
    SELECT p.id, p.last_offset, p.log_start, p.txns_start, s.created_at AS live_at, t.created_at AS txn_at
      FROM page p
      LEFT JOIN LATERAL (SELECT g.created_at FROM queen.log_segments g
                          WHERE g.partition_id = p.id AND g.base_offset >= p.log_start
                          ORDER BY g.base_offset LIMIT 1) AS s ON true
      LEFT JOIN LATERAL (SELECT g.created_at FROM queen.log_txns g
                          WHERE g.partition_id = p.id AND g.base_offset >= p.txns_start
                          ORDER BY g.base_offset LIMIT 1) AS t ON true
     WHERE (p.oldest_live_at, p.oldest_txn_at) IS DISTINCT FROM (s.created_at, t.created_at)
  ), mark AS (
    SELECT CASE WHEN count(*) >= p_page THEN max(p.id) END AS last_id FROM page p
  )
  SELECT m.last_id, d.id, d.last_offset, d.log_start, d.txns_start, d.live_at, d.txn_at
    FROM mark m LEFT JOIN drifted d ON true ORDER BY d.id
$$;

-- The safety walk, second half: writes one partition's facts unless its watermarks moved since they were read
-- (then whoever moved them wrote truer ones).
CREATE OR REPLACE FUNCTION queen.retention_walk_write(p_id bigint, p_last_offset bigint, p_log_start bigint,
  p_txns_start bigint, p_oldest_live_at timestamptz, p_oldest_txn_at timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE queen.log_partitions p SET oldest_live_at = p_oldest_live_at, oldest_txn_at = p_oldest_txn_at
   WHERE p.id = p_id AND p.last_offset = p_last_offset AND p.log_start = p_log_start
     AND p.txns_start = p_txns_start;
  RETURN FOUND;
END $$;

-- Drops retention history written before the cutoff, at most `p_rows` a call.
CREATE OR REPLACE FUNCTION queen.history_prune(p_cutoff timestamptz, p_rows int) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
  WITH gone AS (
    DELETE FROM queen.retention_history h
     WHERE h.id = ANY (ARRAY(SELECT o.id FROM queen.retention_history o WHERE o.executed_at < p_cutoff
                              ORDER BY o.executed_at LIMIT p_rows))
    RETURNING 1
  ) SELECT count(*) FROM gone
$$;

-- Bytes and segments of one queue, written down for the listings. Reads the lengths of the blobs, not the
-- blobs. False: another broker is at it, or the queue is gone.
CREATE OR REPLACE FUNCTION queen.queue_retained_refresh(p_queue bigint, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_bytes    bigint;
  v_segments bigint;
BEGIN
  IF NOT pg_try_advisory_xact_lock(737003) THEN RETURN false; END IF;
  SELECT coalesce(sum(octet_length(s.blob)), 0), count(*) INTO v_bytes, v_segments
    FROM queen.log_partitions p JOIN queen.log_segments s ON s.partition_id = p.id
   WHERE p.queue_id = p_queue;
  -- The insert would take this lock anyway; a queue that went away during the count is no error.
  PERFORM 1 FROM queen.queues q WHERE q.id = p_queue FOR KEY SHARE SKIP LOCKED;
  IF NOT FOUND THEN RETURN false; END IF;
  INSERT INTO queen.queue_retained AS r (queue_id, retained_bytes, segments, computed_at)
  VALUES (p_queue, v_bytes, v_segments, p_now)
  ON CONFLICT (queue_id) DO UPDATE SET retained_bytes = excluded.retained_bytes,
    segments = excluded.segments, computed_at = excluded.computed_at;
  RETURN true;
END $$;

-- ---- maintenance leases: each background job once a period over all brokers ----------------------------

-- Inserts a task that is missing. Never touches `enabled`; a changed period takes effect, and brings a due
-- time that lies further ahead than one period back.
CREATE OR REPLACE FUNCTION queen.maintenance_ensure(p_task text, p_period_ms bigint) RETURNS void
LANGUAGE sql VOLATILE AS $$
  INSERT INTO queen.maintenance_leases AS m (task, period_ms, next_due_at) VALUES (p_task, p_period_ms, queen.clock())
  ON CONFLICT (task) DO UPDATE SET period_ms = excluded.period_ms,
    next_due_at = least(m.next_due_at, excluded.next_due_at + p_period_ms * interval '1 millisecond')
   WHERE m.period_ms <> excluded.period_ms
$$;

-- Claims a task that is enabled, due and not held: `fence` is then the number that the release has to show.
-- Otherwise `fence` is NULL and `wait_ms` says when it is worth another look (NULL: the task is disabled).
CREATE OR REPLACE FUNCTION queen.maintenance_claim(p_task text, p_holder text, p_lease_ms bigint)
RETURNS TABLE (fence bigint, wait_ms bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := queen.clock();
BEGIN
  RETURN QUERY
    UPDATE queen.maintenance_leases m
       SET fence = m.fence + 1, holder = p_holder, last_start_at = v_now,
           lease_until = v_now + p_lease_ms * interval '1 millisecond'
     WHERE m.task = p_task AND m.enabled AND m.next_due_at <= v_now
       AND (m.lease_until IS NULL OR m.lease_until <= v_now)
    RETURNING m.fence, 0::bigint;
  IF FOUND THEN RETURN; END IF;
  RETURN QUERY
    SELECT NULL::bigint,
           ceil(extract(epoch FROM greatest(m.next_due_at, m.lease_until) - v_now) * 1000)::bigint
      FROM queen.maintenance_leases m WHERE m.task = p_task AND m.enabled;
END $$;

-- Extends the lease of a holder that is still the latest. False: another one took over; stop.
CREATE OR REPLACE FUNCTION queen.maintenance_renew(p_task text, p_fence bigint, p_lease_ms bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE queen.maintenance_leases m SET lease_until = queen.clock() + p_lease_ms * interval '1 millisecond'
   WHERE m.task = p_task AND m.fence = p_fence AND m.lease_until IS NOT NULL;
  RETURN FOUND;
END $$;

-- Ends a run. The due time moves here and nowhere else, by exactly one period and never into the past, so a
-- holder that crashed is replaced as soon as its lease ends. Answers the milliseconds until the next run is
-- due; NULL: the fence is not the latest, nothing changed.
CREATE OR REPLACE FUNCTION queen.maintenance_release(p_task text, p_fence bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := queen.clock();
  v_due timestamptz;
BEGIN
  UPDATE queen.maintenance_leases m
     SET lease_until = NULL, holder = NULL, runs = m.runs + 1, last_end_at = v_now,
         last_duration_ms = greatest(extract(epoch FROM v_now - m.last_start_at) * 1000, 0)::bigint,
         next_due_at = greatest(m.next_due_at + m.period_ms * interval '1 millisecond', v_now)
   WHERE m.task = p_task AND m.fence = p_fence AND m.lease_until IS NOT NULL
  RETURNING m.next_due_at INTO v_due;
  RETURN ceil(extract(epoch FROM v_due - v_now) * 1000)::bigint;
END $$;
