-- Appending to partitions. Everything that adds messages to the log goes through queen.log_push: there is one
-- allocator.
--
-- The invariant: the ranges of a partition are disjoint, ascending and without holes of their own, created_at
-- never decreases along them, and inside the queue's window no transactionId is stored twice.
--
-- The argument: the row lock on queen.log_partitions is the partition's one serializer. Every statement of a
-- VOLATILE function takes a new snapshot, so what runs after the locking statement sees whatever the previous
-- holder committed: its last_offset, its sidecar rows, its created_at. Probe, allocation and inserts happen
-- inside that lock, and a rollback takes the allocation back together with the rows. Locks are taken in
-- ascending partition id, the order of every other path that takes several, so a bundle can wait but not
-- deadlock. A segment with a verdict other than `stored` writes nothing, so no savepoint is needed and the other
-- segments of its bundle commit untouched.
--
-- Finding a hot row. While any session keeps a snapshot open, the versions that every push leaves of its row cannot be
-- removed, and a look-up by key visits them all: 286 pages after 20,000 pushes, and every operation on the lane grows
-- slower by the minute. Equal keys lie in an index by place, and the newest version is nearly always the furthest, so
-- here, in the claim and in the ack a row is looked up backwards with LIMIT 1: two pages, however many versions. `id
-- BETWEEN x AND x ORDER BY id DESC` is how to say that: of `id = x` the planner knows that there is nothing to order. What
-- was locked is then written by its ctid, which cannot move while the lock is held. LATERAL and LIMIT keep the planner
-- from any other order of the joins. It costs nothing measurable when there is no such snapshot.
--
-- Rejected: a call a segment. What a procedure pays for is starting its statements, not their rows: sixteen calls of
-- one segment cost the server five times the CPU of one call of sixteen. That one costs 1.6 times the two bare inserts of
-- the same sixteen rows, a call of one segment three times. Locking, allocating and inserting in a single statement
-- was rejected too: its snapshot is older than the locks it takes.

-- Provisioning
--
-- Gives every (queue, partition) of the lists its ids, creating what is missing. A transaction of its own, before
-- the flush (`made`: the ids of those that it created): a conflicting insert waits for the other inserter's whole transaction, and behind a flush those
-- waits would chain. The usual case is the first lookup alone. Inserts are ordered by the unique key, so that two
-- brokers that create the same lanes meet in the same order; FOR KEY SHARE first, so that a queue that is
-- deleted meanwhile drops out of the insert instead of failing its foreign key.
--
-- Each lane is looked up by itself, as the first name at or behind it: so no index but that of the key is of use. An equality
-- was planned for the few partitions that there were when the plan was made, as a walk along all those of the
-- queue for each lane (by the other index, a merge, an anti join): ten thousand new lanes took a minute.
CREATE OR REPLACE FUNCTION queen.log_provision(
  p_tenant uuid, p_queues text[], p_partitions text[],
  OUT partition_ids bigint[], OUT last_offsets bigint[], OUT windows int[], OUT encrypts boolean[], OUT made bigint[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_made bigint[];
BEGIN
  IF cardinality(p_queues) <> cardinality(p_partitions) THEN
    RAISE EXCEPTION 'log_provision: % queues, % partitions', cardinality(p_queues), cardinality(p_partitions)
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- Each round but the last can only be lost to a queue deletion in the same instant.
  FOR attempt IN 1..5 LOOP
    SELECT array_agg(p.id ORDER BY w.seq), array_agg(p.last_offset ORDER BY w.seq),
           array_agg(q.dedup_window_seconds ORDER BY w.seq), array_agg(q.encryption_enabled ORDER BY w.seq)
      INTO partition_ids, last_offsets, windows, encrypts
      FROM unnest(p_queues, p_partitions) WITH ORDINALITY AS w (queue, partition, seq)
      LEFT JOIN queen.queues q ON q.tenant_id = p_tenant AND q.name = w.queue
      LEFT JOIN LATERAL (
        SELECT x.id, x.last_offset, x.name FROM queen.log_partitions x
         WHERE x.queue_id = q.id AND x.name >= w.partition ORDER BY x.queue_id, x.name LIMIT 1
      ) p ON p.name = w.partition;
    EXIT WHEN array_position(partition_ids, NULL) IS NULL;

    PERFORM queen.queue_ensure(p_tenant, p_queues);

    WITH queue AS MATERIALIZED (
      SELECT q.id, q.name FROM queen.queues q
       WHERE q.tenant_id = p_tenant AND q.name = ANY (p_queues)
       ORDER BY q.name COLLATE "C"
         FOR KEY SHARE
    ), created AS (
      INSERT INTO queen.log_partitions (queue_id, name)
        SELECT q.id, w.partition
          FROM (
            SELECT DISTINCT u.queue, u.partition
              FROM unnest(p_queues, p_partitions, partition_ids) AS u (queue, partition, id)
             WHERE u.id IS NULL
          ) w
          JOIN queue q ON q.name = w.queue
         ORDER BY q.id, w.partition COLLATE "C"
        ON CONFLICT (queue_id, name) DO NOTHING
      RETURNING id
    )
    SELECT array_agg(c.id) INTO v_made FROM created c;
    made := made || v_made;
  END LOOP;
END $$;

-- The allocator, for a bundle of segments
--
-- Parallel arrays, one element a segment, each partition once:
--   p_partitions  the partition
--   p_counts      frames in the segment
--   p_verified    the offset up to which the caller vouches that none of the hashes occurs in the window; -1: it
--                 cannot vouch, probe the whole window
--   p_windows     the deduplication window that the caller assumed when it built the segment; NULL: no matter
--   p_hashes      16 bytes a frame
--   p_blobs       the packed frames
--   p_sealed      the payloads in the segment are encrypted. NULL: the caller looks at `encrypts` itself and rolls back
--                 what must not be stored in the clear
-- The answer, parallel arrays again, has the segments whose partition exists, in the order of their partitions:
--   segments      index of the segment in the call, from 1
--   verdicts      0 stored
--                 1 duplicates: nothing written; (dup_segments, dup_indexes, dup_offsets) tell which frames, from 0, and
--                   the smallest offset at which each is stored
--                 3 demands changed: nothing written; the caller assumed window 0, and may have left equal transactionIds
--                   in the segment, but the window is above 0; or the payloads are in the clear and the queue encrypts.
--                   What the caller remembered of the queue is old, and here is the last place where that shows
--   bases         offset of the first frame (if it is stored)
--   created       the segment's time
--   windows, encrypts   what the queue wants now
-- A segment that is not in the answer has no partition (any more).
CREATE OR REPLACE FUNCTION queen.log_push(
  p_partitions bigint[], p_counts int[], p_verified bigint[], p_windows int[], p_hashes bytea[], p_blobs bytea[],
  p_sealed boolean[] DEFAULT NULL,
  OUT segments int[], OUT verdicts int[], OUT bases bigint[], OUT created timestamptz[],
  OUT windows int[], OUT encrypts boolean[],
  OUT dup_segments int[], OUT dup_indexes int[], OUT dup_offsets bigint[]
) LANGUAGE plpgsql VOLATILE
-- A plan is cached for the session. One that was made while the tables were small would scan them whole long after
-- they have grown, and re-planning by parameter would cost more than the statement.
-- A merge join would sort the whole window by hash: nine seconds and 800 MB on disk for half a million, where the
-- hash join takes half a second.
SET enable_seqscan = off SET enable_memoize = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  n             int := cardinality(p_partitions);
  aligned       boolean;
  floors        bigint[];
  places        tid[];
  unsure        boolean;
  seq           int;
  found_indexes int[];
  found_offsets bigint[];
BEGIN
  IF (n = ALL (ARRAY[cardinality(p_counts), cardinality(p_verified), cardinality(p_windows),
                     cardinality(p_hashes), cardinality(p_blobs), coalesce(cardinality(p_sealed), n)])) IS NOT TRUE THEN
    RAISE EXCEPTION 'log_push: misaligned arrays' USING ERRCODE = 'invalid_parameter_value';
  END IF;

  -- Lock, then look: the clock is read for rows that are locked already. A later holder of one of these locks reads a
  -- later time, or inherits this one through last_created_at.
  SELECT array_agg(l.seq), array_agg(l.last_offset + 1), array_agg(greatest(queen.clock(), l.last_created_at)),
         array_agg(l.win), array_agg(l.encryption_enabled),
         array_agg(CASE WHEN l.win > 0 AND p_windows[l.seq] = 0 OR l.encryption_enabled AND NOT p_sealed[l.seq]
                        THEN 3 ELSE 0 END),
         array_agg(l.floor), array_agg(l.place),
         bool_or(l.win > 0 AND l.last_offset > l.floor),
         bool_and(p_counts[l.seq] > 0 AND octet_length(p_hashes[l.seq]) = 16 * p_counts[l.seq]
                  AND octet_length(p_blobs[l.seq]) > 0 AND p_verified[l.seq] >= -1)
    INTO segments, bases, created, windows, encrypts, verdicts, floors, places, unsure, aligned
    FROM (SELECT s.seq, p.place, p.last_offset, p.last_created_at, q.dedup_window_seconds AS win, q.encryption_enabled,
                 -- What was vouched for a shorter window says nothing about the rest of a longer one.
                 greatest(CASE WHEN p_windows[s.seq] < q.dedup_window_seconds OR p_verified[s.seq] > p.last_offset THEN -1
                               ELSE p_verified[s.seq] END,
                          p.txns_start - 1) AS floor
            FROM (SELECT u.id, u.seq::int FROM unnest(p_partitions) WITH ORDINALITY AS u (id, seq) ORDER BY u.id) s
           CROSS JOIN LATERAL (SELECT x.ctid AS place, x.queue_id, x.last_offset, x.last_created_at, x.txns_start
                                 FROM queen.log_partitions x
                                WHERE x.id BETWEEN s.id AND s.id ORDER BY x.id DESC LIMIT 1 FOR UPDATE) p
           CROSS JOIN LATERAL (SELECT x.dedup_window_seconds, x.encryption_enabled FROM queen.queues x
                                WHERE x.id = p.queue_id LIMIT 1) q) l;
  IF segments IS NULL THEN
    RETURN;
  END IF;
  -- Never a misaligned segment: a sidecar that does not match its frames makes acks hit the wrong message.
  IF aligned IS NOT TRUE THEN
    RAISE EXCEPTION 'log_push: a segment is misaligned' USING ERRCODE = 'invalid_parameter_value';
  END IF;

  IF unsure THEN
    FOR k IN 1..cardinality(segments) LOOP
      CONTINUE WHEN verdicts[k] <> 0 OR windows[k] = 0 OR bases[k] - 1 <= floors[k];
      seq := segments[k];
      SELECT array_agg(d.idx ORDER BY d.idx), array_agg(d.off ORDER BY d.idx)
        INTO found_indexes, found_offsets
        FROM (SELECT mine.idx, min(t.base_offset + stored.idx) AS off
                FROM queen.log_txns t
               -- Fetched from its TOAST pieces once, not once a hash.
               CROSS JOIN LATERAL (SELECT substring(t.hashes FROM 1) AS hashes OFFSET 0) whole
               CROSS JOIN LATERAL queen.log_unnest_hashes(whole.hashes) stored
                JOIN queen.log_unnest_hashes(p_hashes[seq]) mine ON mine.h = stored.h
               WHERE t.partition_id = p_partitions[seq]
                 -- The row that covers the floor, found by one backward step, is where the scan starts.
                 AND t.base_offset >= coalesce((SELECT max(b.base_offset) FROM queen.log_txns b
                                                 WHERE b.partition_id = p_partitions[seq]
                                                   AND b.base_offset <= floors[k]), 0)
                 AND t.end_offset > floors[k]
                 AND t.created_at >= created[k] - make_interval(secs => windows[k])
                 -- A few hashes are looked for in the bytes of a row before it is taken apart. A match there may
                 -- straddle two hashes, so it decides nothing. For one hash over half a million stored ones this made 30
                 -- of 480 ms; from a dozen on the way apart is the faster one.
                 AND (p_counts[seq] > 8
                      OR EXISTS (SELECT FROM queen.log_unnest_hashes(p_hashes[seq]) few
                                  WHERE position(few.h IN whole.hashes) > 0))
               GROUP BY mine.idx) d;
      IF found_indexes IS NOT NULL THEN
        verdicts[k] := 1;
        dup_segments := dup_segments || array_fill(seq, ARRAY[cardinality(found_indexes)]);
        dup_indexes := dup_indexes || found_indexes;
        dup_offsets := dup_offsets || found_offsets;
      END IF;
    END LOOP;
  END IF;

  -- One statement, since starting one costs more than its rows do. A partition that is named twice fails on the
  -- primary keys here.
  WITH stored AS MATERIALIZED (
    SELECT s.seq, p_partitions[s.seq] AS id, s.place, s.base, s.base + p_counts[s.seq] - 1 AS last, s.at
      FROM unnest(segments, verdicts, places, bases, created) AS s (seq, verdict, place, base, at)
     WHERE s.verdict = 0
  ), logged AS (
    INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
      SELECT s.id, s.base, s.last, s.at, p_blobs[s.seq] FROM stored s
  ), hashed AS (
    INSERT INTO queen.log_txns (partition_id, base_offset, end_offset, created_at, hashes)
      SELECT s.id, s.base, s.last, s.at, p_hashes[s.seq] FROM stored s
  )
  -- The three indexed columns change at most once a second, or when the partition was empty: else the update is HOT.
  UPDATE queen.log_partitions p
     SET last_offset = s.last,
         last_created_at = s.at,
         last_write_at = CASE WHEN s.at > p.last_write_at + interval '1 second' THEN s.at ELSE p.last_write_at END,
         oldest_live_at = coalesce(p.oldest_live_at, s.at),
         oldest_txn_at = coalesce(p.oldest_txn_at, s.at)
    FROM stored s
   WHERE p.ctid = s.place;
END $$;

-- The allocator for one segment: what a transaction, a timer's fire or a replay calls. Same arguments and verdicts, and
-- verdict 2: no such partition (any more).
CREATE OR REPLACE FUNCTION queen.log_append(
  p_partition bigint, p_count int, p_verified bigint, p_window int, p_hashes bytea, p_blob bytea,
  OUT verdict int, OUT base_offset bigint, OUT created timestamptz, OUT window_seconds int, OUT encrypts boolean,
  OUT dup_indexes int[], OUT dup_offsets bigint[]
) LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(r.verdicts[1], 2), r.bases[1], r.created[1], r.windows[1], r.encrypts[1], r.dup_indexes, r.dup_offsets
    FROM queen.log_push(ARRAY[p_partition], ARRAY[p_count], ARRAY[p_verified], ARRAY[p_window],
                        ARRAY[p_hashes], ARRAY[p_blob]) r
$$;

-- The segments that cover the given offsets of a partition, as far as they still exist: where the message ids of
-- duplicates are read from. Ascending by base; a covering segment comes once however many offsets it covers.
CREATE OR REPLACE FUNCTION queen.log_covering(p_partition bigint, p_offsets bigint[])
RETURNS TABLE (base_offset bigint, end_offset bigint, blob bytea)
LANGUAGE sql STABLE AS $$
  SELECT s.base_offset, s.end_offset, s.blob
    FROM (SELECT DISTINCT (SELECT max(c.base_offset) FROM queen.log_segments c
                            WHERE c.partition_id = p_partition AND c.base_offset <= o.at) AS base
            FROM unnest(p_offsets) AS o (at)) w
    JOIN queen.log_segments s ON s.partition_id = p_partition AND s.base_offset = w.base
   ORDER BY s.base_offset
$$;
