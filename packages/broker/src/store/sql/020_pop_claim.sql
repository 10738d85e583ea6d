-- Claiming batches for one pop: all its candidate partitions in one call.
--
-- The invariant: at most one live lease a (partition, group), and a batch is exactly what is stored and visible
-- from the cursor on. The argument: a claim is decided under the row lock of the queen.log_consumers row, which
-- every other claim, ack and seek of the group takes too. The lock is taken with SKIP LOCKED: somebody who holds it
-- is at work on the partition, and a pop never waits. What is read of the partition and its segments may be older
-- than the locked row, never inconsistent: the commits of a partition are serialised, so a snapshot shows a prefix
-- of it, and a batch that ends too early is only a smaller batch.
--
-- Only as many rows are locked at a time as the pop may still claim partitions, so that a pop of one partition
-- does not make others skip the candidates that it never gets to.
--
-- Rows are looked up backwards and written by their ctid for the sake of lanes with many row versions: see 010_push.sql.
--
-- Rejected: one set-based statement for segments and budget together. The budget is spent in order, so it reads
-- up to a full batch of segments for each of 64 candidates where the loop below stops. The loop costs one statement a
-- claimed partition, which is a third of what 64 of them cost in all (figures in the test of the claim's cost). Segments
-- are handed out as the scan finds them: reading them again at the end cost as much as the scan, and retention could
-- take them in between.

-- verdict of a visited candidate (the ones after a spent budget have no row):
--   0 claimed    from_offset..to_offset, with the segments that hold them, whole
--   1 empty      nothing behind the cursor
--   2 leased     until `wait_us` from now
--   3 skipped    pending, but somebody else is at it
--   4 deferred   pending, but not visible before `wait_us` from now
--   5 unmet      the group has no row here (queen.log_pop_meet)
--   6 missing    no such partition
--   7 foreign    it belongs to another queue than the caller believes: one of the same name, created anew
-- position: everything at or below is done or gone. prev_*: the attempt columns before the claim, for an undo.
-- p_queues: the queue that each candidate is believed to belong to, 0: not known. p_worker NULL: commit at delivery. p_window_batch 0: the quiet period of a windowed queue has no other end.
CREATE OR REPLACE FUNCTION queen.log_pop_claim(
  p_group text, p_candidates bigint[], p_queues bigint[], p_worker text, p_batch int, p_partitions int, p_bytes bigint,
  p_lease_seconds int, p_conflate boolean, p_window_batch int
) RETURNS TABLE (
  partition_id bigint, verdict int, queue_id bigint, queue text, partition text, last_offset bigint,
  "position" bigint, wait_us bigint, min_pop_wait int, from_offset bigint, to_offset bigint, attempt int,
  lease_seconds int, prev_offset bigint, prev_count int,
  bases bigint[], ends bigint[], created bigint[], blobs bytea[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now    timestamptz := queen.clock();
  v_left   int := p_batch;
  v_bytes  bigint := p_bytes;
  v_want   int := CASE WHEN p_partitions <= 0 THEN cardinality(p_candidates) ELSE p_partitions END;
  v_next   int := 1;
  v_chunk  bigint[];
  v_of     bigint[];
  r        record;
  s        record;
  v_first  bigint;
  v_base   bigint;
  v_opens  timestamptz;
  v_hidden timestamptz;
  c_ids    bigint[] := '{}';
  c_places tid[] := '{}';
  c_from   bigint[] := '{}';
  c_to     bigint[] := '{}';
  c_anchor bigint[] := '{}';
  c_count  int[] := '{}';
  c_lease  int[] := '{}';
  s_ids    bigint[];
  s_places tid[];
  s_to     bigint[];
BEGIN
  WHILE v_next <= cardinality(p_candidates) AND v_want > 0 AND v_left > 0 AND v_bytes > 0 LOOP
    v_chunk := p_candidates[v_next : v_next + v_want - 1];
    v_of := p_queues[v_next : v_next + v_want - 1];
    v_next := v_next + cardinality(v_chunk);
    FOR r IN
      SELECT w.id, w.queue_id <> 0 AND p.queue_id <> w.queue_id AS foreign_, p.queue_id, p.queue, p.name,
             p.last_offset, p.log_start, p.last_created_at, p.min_wait, p.lease, p.delay, p.quiet,
             u.partition_id IS NOT NULL AS met, u.committed AS seen,
             CASE WHEN u.worker_id IS NOT NULL AND u.batch_end IS NOT NULL AND u.lease_expires_at > v_now
                  THEN u.lease_expires_at END AS leased_until,
             h.place IS NOT NULL AS held, h.place, h.committed, h.attempt_offset, h.attempt_count
        FROM unnest(v_chunk, v_of) WITH ORDINALITY AS w (id, queue_id, seq)
        LEFT JOIN LATERAL (
               SELECT t.queue_id, q.name::text AS queue, t.name::text AS name, t.last_offset, t.log_start,
                      t.last_created_at, q.min_pop_wait_time AS min_wait,
                      CASE WHEN p_lease_seconds > 0 THEN p_lease_seconds
                           WHEN q.lease_time > 0 THEN q.lease_time ELSE 60 END AS lease,
                      q.delayed_processing * interval '1 second' AS delay, q.window_buffer * interval '1 second' AS quiet
                 FROM (SELECT * FROM queen.log_partitions x
                        WHERE x.id BETWEEN w.id AND w.id ORDER BY x.id DESC LIMIT 1) t
                CROSS JOIN LATERAL (SELECT * FROM queen.queues x WHERE x.id = t.queue_id LIMIT 1) q OFFSET 0) p ON TRUE
        LEFT JOIN LATERAL (
               SELECT * FROM queen.log_consumers c
                WHERE c.partition_id = w.id AND c.consumer_group BETWEEN p_group AND p_group
                ORDER BY c.consumer_group DESC LIMIT 1) u ON TRUE
        -- Looked at before it is locked: a row that is leased or has nothing left is not taken from its holder.
        LEFT JOIN LATERAL (
               SELECT c.ctid AS place, c.committed, c.attempt_offset, c.attempt_count
                 FROM queen.log_consumers c
                WHERE c.partition_id = w.id AND c.consumer_group BETWEEN p_group AND p_group
                  AND (u.worker_id IS NULL OR u.batch_end IS NULL OR u.lease_expires_at <= v_now)
                  AND p.last_offset > u.committed
                  AND (c.worker_id IS NULL OR c.batch_end IS NULL OR c.lease_expires_at <= v_now)
                  AND p.last_offset > c.committed
                ORDER BY c.consumer_group DESC LIMIT 1 FOR UPDATE SKIP LOCKED) h ON TRUE
       ORDER BY w.seq
    LOOP
      EXIT WHEN v_left <= 0 OR v_bytes <= 0;
      partition_id := r.id;
      queue_id := r.queue_id;
      queue := r.queue;
      partition := r.name;
      last_offset := r.last_offset;
      min_pop_wait := r.min_wait;
      "position" := GREATEST(COALESCE(r.committed, r.seen), r.log_start - 1);
      wait_us := NULL;
      from_offset := NULL;
      to_offset := NULL;
      attempt := NULL;
      lease_seconds := NULL;
      prev_offset := NULL;
      prev_count := NULL;
      bases := NULL;
      ends := NULL;
      created := NULL;
      blobs := NULL;
      v_hidden := NULL;
      v_opens := v_now;
      IF r.foreign_ OR NOT r.held THEN
        verdict := CASE WHEN r.foreign_ THEN 7
                        WHEN r.queue_id IS NULL THEN 6
                        WHEN NOT r.met THEN 5
                        WHEN r.leased_until IS NOT NULL THEN 2
                        WHEN r.seen >= r.last_offset THEN 1
                        ELSE 3 END;
        wait_us := CASE WHEN verdict = 2 THEN queen.micros(r.leased_until) - queen.micros(v_now) END;
        RETURN NEXT;
        CONTINUE;
      END IF;
      -- The seal: both facts come from one read of one row, else a push in between would be sealed over.
      IF r.log_start > r.last_offset THEN
        s_ids := array_append(s_ids, r.id);
        s_places := array_append(s_places, r.place);
        s_to := array_append(s_to, r.last_offset);
        verdict := 1;
        RETURN NEXT;
        CONTINUE;
      END IF;
      v_first := r.committed + 1;
      IF r.quiet > interval '0' AND r.last_created_at > v_now - r.quiet
         AND (p_window_batch <= 0 OR r.last_offset - "position" < p_window_batch) THEN
        v_opens := r.last_created_at + r.quiet;
        IF p_window_batch > 0 THEN
          SELECT LEAST(v_opens, g.created_at + r.quiet) INTO v_opens
            FROM queen.log_segments g
           WHERE g.partition_id = r.id
             AND g.base_offset >= COALESCE((SELECT b.base_offset FROM queen.log_segments b
                                             WHERE b.partition_id = r.id AND b.base_offset <= v_first
                                             ORDER BY b.base_offset DESC LIMIT 1), 0)
             AND g.end_offset >= v_first
           ORDER BY g.base_offset LIMIT 1;
          v_opens := COALESCE(v_opens, r.last_created_at + r.quiet);
        END IF;
      END IF;
      IF v_opens > v_now THEN
        v_hidden := v_opens;
      ELSIF p_conflate THEN
        SELECT g.base_offset, g.end_offset, g.created_at, g.blob INTO s
          FROM queen.log_segments g
         WHERE g.partition_id = r.id AND g.base_offset <= r.last_offset
           AND (r.delay = interval '0' OR g.created_at <= v_now - r.delay)
         ORDER BY g.base_offset DESC LIMIT 1;
        IF FOUND AND s.end_offset > r.committed THEN
          from_offset := s.end_offset;
          to_offset := s.end_offset;
          bases := ARRAY[s.base_offset];
          ends := ARRAY[s.end_offset];
          created := ARRAY[queen.micros(s.created_at)];
          blobs := ARRAY[s.blob];
          v_bytes := v_bytes - octet_length(s.blob);
          v_left := v_left - 1;
        ELSIF r.delay > interval '0' THEN
          v_hidden := r.last_created_at + r.delay;
        END IF;
      ELSE
        -- The head probe (the segment that covers the wanted offset, one backward step on the key) and the scan
        -- from there on. A hole that retention left is skipped: the next existing base is taken.
        FOR s IN
          SELECT g.base_offset, g.end_offset, g.created_at, g.blob
            FROM queen.log_segments g
           WHERE g.partition_id = r.id AND g.base_offset <= r.last_offset
             AND g.base_offset >= COALESCE(
                   (SELECT b.base_offset
                      FROM (SELECT a.base_offset, a.end_offset FROM queen.log_segments a
                             WHERE a.partition_id = r.id AND a.base_offset <= v_first
                             ORDER BY a.base_offset DESC LIMIT 1) b
                     WHERE b.end_offset >= v_first), v_first)
           ORDER BY g.base_offset LIMIT v_left
        LOOP
          IF s.created_at > v_now - r.delay AND r.delay > interval '0' THEN
            v_hidden := s.created_at + r.delay;
            EXIT;
          END IF;
          -- Between segments a hole may lie: the span grows by it, the budget only by what is stored.
          v_base := GREATEST(s.base_offset, v_first);
          from_offset := COALESCE(from_offset, v_base);
          to_offset := v_base - 1 + LEAST(s.end_offset - v_base + 1, v_left);
          v_left := v_left - (to_offset - v_base + 1)::int;
          v_bytes := v_bytes - octet_length(s.blob);
          bases := array_append(bases, s.base_offset);
          ends := array_append(ends, s.end_offset);
          created := array_append(created, queen.micros(s.created_at));
          blobs := array_append(blobs, s.blob);
          EXIT WHEN v_left <= 0 OR v_bytes <= 0;
        END LOOP;
      END IF;
      IF from_offset IS NULL THEN
        verdict := CASE WHEN v_hidden IS NULL THEN 1 ELSE 4 END;
        wait_us := queen.micros(v_hidden) - queen.micros(v_now);
        RETURN NEXT;
        CONTINUE;
      END IF;
      -- A conflated batch is anchored where it begins, not at the one frame that is delivered: newer arrivals
      -- move that frame, and the count of attempts must survive them.
      v_first := CASE WHEN p_conflate THEN r.committed + 1 ELSE from_offset END;
      attempt := CASE WHEN p_worker IS NOT NULL AND r.attempt_offset = v_first THEN r.attempt_count + 1 ELSE 1 END;
      lease_seconds := r.lease;
      prev_offset := r.attempt_offset;
      prev_count := r.attempt_count;
      verdict := 0;
      RETURN NEXT;
      c_ids := array_append(c_ids, r.id);
      c_places := array_append(c_places, r.place);
      c_from := array_append(c_from, from_offset);
      c_to := array_append(c_to, to_offset);
      c_lease := array_append(c_lease, r.lease);
      c_anchor := array_append(c_anchor, v_first);
      c_count := array_append(c_count, attempt);
      v_want := v_want - 1;
    END LOOP;
  END LOOP;

  IF s_ids IS NOT NULL THEN
    UPDATE queen.log_consumers c SET committed = t.upto
      FROM unnest(s_ids, s_places, s_to) AS t (id, place, upto)
     WHERE c.ctid = t.place AND c.committed < t.upto;
  END IF;
  IF cardinality(c_ids) = 0 THEN
    RETURN;
  END IF;
  IF p_worker IS NULL THEN
    UPDATE queen.log_consumers c
       SET committed = t.upto, batch_end = NULL, worker_id = NULL, lease_expires_at = NULL, lease_acquired_at = NULL,
           lease_conflated = FALSE, batch_retry_count = 0, total_consumed = c.total_consumed + t.upto - t.start + 1
      FROM unnest(c_ids, c_places, c_from, c_to) AS t (id, place, start, upto)
     WHERE c.ctid = t.place;
  ELSE
    UPDATE queen.log_consumers c
       SET batch_end = t.upto, worker_id = p_worker, lease_acquired_at = v_now,
           lease_expires_at = v_now + t.lease * interval '1 second', lease_conflated = p_conflate,
           attempt_offset = t.anchor, attempt_count = t.times
      FROM unnest(c_ids, c_places, c_to, c_lease, c_anchor, c_count) AS t (id, place, upto, lease, anchor, times)
     WHERE c.ctid = t.place;
  END IF;
END $$;

-- Takes back the claims of one worker that nobody received: the lease goes, the attempt columns are as before, the
-- cursor stays. Where the earlier columns are not known (NULL in p_counts) the attempt is merely not counted.
-- Returns the partitions that were still leased by the worker.
CREATE OR REPLACE FUNCTION queen.log_pop_undo(
  p_group text, p_worker text, p_partitions bigint[], p_offsets bigint[], p_counts int[], OUT undone bigint[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  PERFORM FROM queen.log_consumers c
    WHERE c.partition_id = ANY (p_partitions) AND c.consumer_group = p_group AND c.worker_id = p_worker
    ORDER BY c.partition_id FOR UPDATE;
  WITH freed AS (
    UPDATE queen.log_consumers c
       SET batch_end = NULL, worker_id = NULL, lease_expires_at = NULL, lease_acquired_at = NULL,
           lease_conflated = FALSE,
           attempt_offset = CASE WHEN t.times IS NOT NULL THEN t.start WHEN c.attempt_count > 1 THEN c.attempt_offset END,
           attempt_count = COALESCE(t.times, GREATEST(c.attempt_count - 1, 0))
      FROM unnest(p_partitions, p_offsets, p_counts) AS t (id, start, times)
     WHERE c.partition_id = t.id AND c.consumer_group = p_group AND c.worker_id = p_worker
       AND c.batch_end IS NOT NULL
    RETURNING c.partition_id
  )
  SELECT array_agg(f.partition_id) INTO undone FROM freed f;
END $$;

-- Takes back a commit at delivery of batches that could not be read after all, where the cursor still stands where
-- that commit left it. Returns the partitions that were put back; the others have been passed by another consumer.
CREATE OR REPLACE FUNCTION queen.log_pop_unread(
  p_group text, p_partitions bigint[], p_committed bigint[], p_back bigint[], p_counts bigint[], OUT put_back bigint[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  PERFORM FROM queen.log_consumers c
    WHERE c.partition_id = ANY (p_partitions) AND c.consumer_group = p_group
    ORDER BY c.partition_id FOR UPDATE;
  WITH moved AS (
    UPDATE queen.log_consumers c
       SET committed = t.back, total_consumed = c.total_consumed - t.count
      FROM unnest(p_partitions, p_committed, p_back, p_counts) AS t (id, upto, back, count)
     WHERE c.partition_id = t.id AND c.consumer_group = p_group AND c.committed = t.upto AND c.batch_end IS NULL
    RETURNING c.partition_id
  )
  SELECT array_agg(m.partition_id) INTO put_back FROM moved m;
END $$;

-- Candidates without the hot list: partitions of the queue that are pending for the group and not leased, in random
-- order. The watermark of the group keeps the scan from walking what was found empty before; two minutes of slack
-- cover last_write_at, which moves at most once a second, and slow commits. It moves only when a check that
-- ignores leases finds nothing either (a backlog that is merely leased must not be hidden), at most every 30 s.
CREATE OR REPLACE FUNCTION queen.log_pop_candidates(p_queues bigint[], p_group text, p_limit int, OUT candidates bigint[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now   timestamptz := queen.clock();
  v_since timestamptz;
  v_mark  timestamptz;
BEGIN
  SELECT min(COALESCE(w.last_empty_scan_at, timestamptz 'epoch')), max(w.last_empty_scan_at) INTO v_since, v_mark
    FROM unnest(p_queues) AS q (id)
    LEFT JOIN queen.consumer_watermarks w ON w.queue_id = q.id AND w.consumer_group = p_group;
  -- The clock stepped back: a watermark from the future would hide what is written until then.
  IF v_mark > v_now THEN
    UPDATE queen.consumer_watermarks w SET last_empty_scan_at = timestamptz 'epoch', updated_at = v_now
     WHERE w.queue_id = ANY (p_queues) AND w.consumer_group = p_group;
    v_since := timestamptz 'epoch';
  END IF;
  SELECT array_agg(f.id) INTO candidates FROM (
    SELECT p.id FROM queen.log_partitions p
      LEFT JOIN queen.log_consumers c ON c.partition_id = p.id AND c.consumer_group = p_group
     WHERE p.queue_id = ANY (p_queues)
       AND (v_since = timestamptz 'epoch' OR p.last_write_at >= v_since - interval '2 minutes')
       AND p.last_offset > COALESCE(c.committed, -1)
       AND (c.worker_id IS NULL OR c.batch_end IS NULL OR c.lease_expires_at <= v_now)
     ORDER BY random() LIMIT p_limit) f;
  IF candidates IS NULL AND v_since < v_now - interval '30 seconds' THEN
    INSERT INTO queen.consumer_watermarks (queue_id, consumer_group, last_empty_scan_at, updated_at)
    SELECT q.id, p_group, v_now, v_now
      FROM queen.queues q
     WHERE q.id = ANY (p_queues)
       AND NOT EXISTS (SELECT FROM queen.log_partitions p
                         LEFT JOIN queen.log_consumers c ON c.partition_id = p.id AND c.consumer_group = p_group
                        WHERE p.queue_id = q.id
                          AND (v_since = timestamptz 'epoch' OR p.last_write_at >= v_since - interval '2 minutes')
                          AND p.last_offset > COALESCE(c.committed, -1))
     ORDER BY q.id
    ON CONFLICT (queue_id, consumer_group) DO UPDATE
       SET last_empty_scan_at = EXCLUDED.last_empty_scan_at, updated_at = EXCLUDED.updated_at
     WHERE queen.consumer_watermarks.last_empty_scan_at < EXCLUDED.last_empty_scan_at;
  END IF;
END $$;
