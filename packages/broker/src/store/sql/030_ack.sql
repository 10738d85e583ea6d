-- The ack: what happens to the cursor, the lease and the retry budget of a (partition, group) when a consumer
-- reports on messages.
--
-- The invariant: the cursor never moves back, and never passes a message that was failed, put back or dead-lettered
-- in the same batch, except by dead-lettering or dropping exactly that one. A stale or foreign lease id changes nothing.
--
-- The argument: everything that decides (cursor, lease, budget) stands in one row of queen.log_consumers. The row is
-- locked first and the time is read under the lock, so of two acks of one batch the second sees what the first did,
-- and a pop, which skips locked rows, cannot claim in between. Nothing but consumer rows is locked, ascending by
-- (partition, group): an ack can wait for another ack but never stands in a cycle with a push. No business
-- outcome raises, so the function can run inside a larger transaction and its caller decides what a refusal means.
--
-- Rejected: one call (or one statement) a group. A statement inside a procedure costs 10 to 25 µs whatever it does; here
-- a request of any number of groups costs four (lock, resolve, update, report), three when it comes by offset.

-- The offsets at or below `p_committed` at which the wanted hashes (p_wanted[i] for the i-th 16 bytes) are known. Only asked
-- for what was not found above the cursor. Walks back from the cursor in growing steps and stops when everything
-- is found, since what is acked twice was mostly acked just before.
CREATE OR REPLACE FUNCTION queen.log_ack_below(
  p_partition bigint, p_committed bigint, p_hashes bytea, p_wanted boolean[]
) RETURNS boolean[] LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  found_  boolean[] := array_fill(false, ARRAY[cardinality(p_wanted)]);
  left_   int := (SELECT count(*) FROM unnest(p_wanted) AS u (w) WHERE u.w);
  upper_  bigint := p_committed;
  step    int := 64;
  hits    int[];
  lowest  bigint;
BEGIN
  WHILE left_ > 0 LOOP
    WITH rows_ AS MATERIALIZED (
      SELECT t.base_offset, t.hashes FROM queen.log_txns t
       WHERE t.partition_id = p_partition AND t.base_offset <= upper_
       ORDER BY t.base_offset DESC LIMIT step
    ), wanted AS MATERIALIZED (
      SELECT w.n, substring(p_hashes FROM (w.n::int - 1) * 16 + 1 FOR 16) AS h
        FROM unnest(p_wanted, found_) WITH ORDINALITY AS w (want, got, n) WHERE w.want AND NOT w.got
    )
    SELECT (SELECT min(r.base_offset) FROM rows_ r),
           array(SELECT DISTINCT w.n::int
                   FROM (SELECT x.h
                           FROM rows_ r
                          CROSS JOIN LATERAL (
                            SELECT substring(r.hashes FROM 1 FOR (least(p_committed - r.base_offset + 1, 67108863) * 16)::int)
                                   AS part OFFSET 0) f
                          CROSS JOIN LATERAL queen.log_unnest_hashes(f.part) x OFFSET 0) s
                   JOIN wanted w ON w.h = s.h)
      INTO lowest, hits;
    EXIT WHEN lowest IS NULL;
    FOR i IN 1..cardinality(hits) LOOP
      found_[hits[i]] := true;
    END LOOP;
    left_ := left_ - cardinality(hits);
    upper_ := lowest - 1;
    step := least(step * 4, 4096);
  END LOOP;
  RETURN found_;
END $$;

-- The smallest offset above `p_lower - 1` of each wanted hash, with no upper bound: for lease-less acks of a
-- row without a batch. Walks forward in growing steps and stops when everything is found. -1: not found.
CREATE OR REPLACE FUNCTION queen.log_ack_above(
  p_partition bigint, p_lower bigint, p_hashes bytea, p_wanted boolean[]
) RETURNS bigint[] LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  found_  bigint[] := array_fill(-1::bigint, ARRAY[cardinality(p_wanted)]);
  left_   int := (SELECT count(*) FROM unnest(p_wanted) AS u (w) WHERE u.w);
  from_   bigint := coalesce((SELECT max(t.base_offset) FROM queen.log_txns t
                               WHERE t.partition_id = p_partition AND t.base_offset <= p_lower), p_lower);
  step    int := 64;
  hits    int[];
  offsets bigint[];
  highest bigint;
BEGIN
  WHILE left_ > 0 LOOP
    WITH rows_ AS MATERIALIZED (
      SELECT t.base_offset, t.hashes FROM queen.log_txns t
       WHERE t.partition_id = p_partition AND t.base_offset >= from_
       ORDER BY t.base_offset LIMIT step
    ), wanted AS MATERIALIZED (
      SELECT w.n, substring(p_hashes FROM (w.n::int - 1) * 16 + 1 FOR 16) AS h
        FROM unnest(p_wanted, found_) WITH ORDINALITY AS w (want, got, n) WHERE w.want AND w.got < 0
    ), hit AS (
      SELECT w.n, min(s.off) AS off
        FROM (SELECT r.base_offset + x.idx AS off, x.h
                FROM rows_ r
               CROSS JOIN LATERAL (SELECT substring(r.hashes FROM 1) AS part OFFSET 0) f
               CROSS JOIN LATERAL queen.log_unnest_hashes(f.part) x OFFSET 0) s
        JOIN wanted w ON w.h = s.h
       WHERE s.off >= p_lower
       GROUP BY w.n
    )
    SELECT (SELECT max(r.base_offset) FROM rows_ r), array_agg(h.n::int), array_agg(h.off)
      INTO highest, hits, offsets FROM hit h;
    EXIT WHEN highest IS NULL;
    FOR i IN 1..coalesce(cardinality(hits), 0) LOOP
      found_[hits[i]] := offsets[i];
    END LOOP;
    left_ := left_ - coalesce(cardinality(hits), 0);
    from_ := highest + 1;
    step := least(step * 4, 4096);
  END LOOP;
  RETURN found_;
END $$;

-- The one decision that most acks are, without the procedure around it: the holder of a live lease completes its batch
-- from the first message to the last. A row that is not exactly so stays as it is and is not in `settled`: its ack is for
-- queen.log_ack to judge. Less than half of what that costs for the same ack.
--
-- Rows are locked in the common order, (partition, group), and judged under the lock; the time is read there too. They are
-- looked up backwards and written by their ctid (see 010_push.sql). A row that somebody changed between the snapshot of the
-- statement and its lock is at a place that the update does not see: it is left to log_ack like every row that is not as
-- described. So is a conflated batch, of which log_ack says how many messages it skipped.
--   settled   positions (one-based) in the arguments; befores: the cursor before; backlogs: messages are left above
CREATE OR REPLACE FUNCTION queen.log_ack_whole(
  p_partitions bigint[], p_groups text[], p_workers text[], p_firsts bigint[], p_lasts bigint[],
  OUT settled int[], OUT befores bigint[], OUT backlogs boolean[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  WITH held AS MATERIALIZED (
    SELECT w.n, w.worker, w.first_, w.last_, k.*
      FROM (SELECT * FROM unnest(p_partitions, p_groups, p_workers, p_firsts, p_lasts)
                     WITH ORDINALITY AS u (part, grp, worker, first_, last_, n)
             ORDER BY u.part, u.grp) w
     CROSS JOIN LATERAL (SELECT c.ctid AS place, c.committed FROM queen.log_consumers c
                          WHERE c.partition_id = w.part AND c.consumer_group BETWEEN w.grp AND w.grp
                          ORDER BY c.consumer_group DESC LIMIT 1 FOR UPDATE) k
  ), done AS (
    UPDATE queen.log_consumers k
       SET committed = h.last_, total_consumed = k.total_consumed + h.last_ - k.committed, batch_retry_count = 0,
           attempt_offset = NULL, attempt_count = 0, batch_end = NULL, worker_id = NULL,
           lease_expires_at = NULL, lease_acquired_at = NULL
      FROM held h
     WHERE k.ctid = h.place AND k.worker_id = h.worker AND k.batch_end = h.last_ AND k.lease_expires_at > queen.clock()
       AND NOT k.lease_conflated AND h.first_ > k.committed AND h.first_ >= coalesce(k.attempt_offset, h.first_)
    RETURNING h.n, h.committed AS before, h.last_, k.partition_id
  )
  SELECT array_agg(d.n::int), array_agg(d.before), array_agg(p.last_offset > d.last_) INTO settled, befores, backlogs
    FROM done d
   CROSS JOIN LATERAL (SELECT x.last_offset FROM queen.log_partitions x
                        WHERE x.id BETWEEN d.partition_id AND d.partition_id ORDER BY x.id DESC LIMIT 1) p;
END $$;

-- Decides acks. A group here is one (partition, consumer group, lease): no two may name the same consumer row.
--
-- Rows are looked up backwards and written by their ctid for the sake of lanes with many row versions: see 010_push.sql.
--
-- One element a group, in any order:
--   p_tenants     who asks; a partition of somebody else is refused before it is locked
--   p_partitions  the partition
--   p_groups      the consumer group
--   p_leases      the lease id; '': lease-less, neither holder nor expiry is checked
-- One element an item, those of a group one after the other, groups in the order above:
--   p_item_groups index of the group, one-based, ascending
--   p_statuses    0 completed, 1 retry, 2 failed, 3 dead-letter: of two on one message the larger wins
--   p_offsets     the offset; -1: resolve by hash
--   p_hashes      16 bytes an item, of no matter for one that comes by offset
-- p_caution  0: items that are not effective hold nobody up
--            1: a group under a live lease with an item that the sidecar cannot tell answers 7 and changes nothing. The
--               caller looks into the leased segments and asks again by offset
--
-- Out, one element a group:
--   outcomes      0 decided
--                 1 decided, `signals` is to be dead-lettered next (log_ack_hand_off) and the lease is kept for that
--                 2 decided, the message at `signals` was dropped
--                 3 the lease is not the live one   4 no such consumer   5 somebody else's partition
--                 6 no such partition               7 see p_caution
--                 From 3 on nothing was changed.
--   befores, afters  the cursor before and after
--   batch_ends    end of the batch before, NULL: none
--   holders       worker id before; what a hand-off is fenced with
--   released      the lease ended by this call
--   backlogs      released, and messages are left above the cursor
--   conflateds    messages that the commit skipped; NULL unless the batch was conflated
-- and one element an item: item_offsets, where it is effective (-1: nowhere), item_below: only known at or below the cursor.
CREATE OR REPLACE FUNCTION queen.log_ack(
  p_tenants uuid[], p_partitions bigint[], p_groups text[], p_leases text[],
  p_item_groups int[], p_statuses int[], p_offsets bigint[], p_hashes bytea, p_caution int,
  OUT outcomes int[], OUT befores bigint[], OUT afters bigint[], OUT batch_ends bigint[], OUT holders text[],
  OUT signals bigint[], OUT released boolean[], OUT backlogs boolean[], OUT conflateds bigint[],
  OUT item_offsets bigint[], OUT item_below boolean[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  groups_   int := cardinality(p_partitions);
  items     int := cardinality(p_statuses);
  -- The locked rows, in lock order. no[k] is the group.
  no        int[];
  lasts     bigint[];
  starts    bigint[];
  txns      bigint[];
  workers   text[];
  expiries  timestamptz[];
  conflate  boolean[];
  cursors   bigint[];
  ends      bigint[];
  retries   int[];
  limits    int[];
  dead_on   boolean[];
  attempts  bigint[];
  counts    int[];
  places    tid[];
  -- The lowest offset that counts as not done.
  floors    bigint[];
  now_at    timestamptz;
  -- Where the hashes of a group may lie; NULL bounds keep it out of the common resolution.
  lows      bigint[];
  highs     bigint[];
  first_    int[];
  last_     int[];
  used      bigint[];
  -- One group at a time.
  g int; a int; b int; c bigint; e bigint; s bigint; p bigint; off bigint; rank int; moved bigint;
  by_hash boolean; open_ boolean; foreign_ boolean; bounded boolean := false;
  found_ bigint[]; below_ boolean[];
  changed int[] := '{}';
  more_no int[]; more boolean[];
BEGIN
  IF groups_ IS NULL OR items IS NULL OR cardinality(p_tenants) IS DISTINCT FROM groups_
     OR cardinality(p_groups) IS DISTINCT FROM groups_ OR cardinality(p_leases) IS DISTINCT FROM groups_
     OR cardinality(p_item_groups) IS DISTINCT FROM items OR cardinality(p_offsets) IS DISTINCT FROM items
     OR octet_length(p_hashes) IS DISTINCT FROM 16 * items THEN
    RAISE EXCEPTION 'log_ack: misaligned arrays' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  outcomes := array_fill(6, ARRAY[groups_]);
  befores := array_fill(NULL::bigint, ARRAY[groups_]);
  afters := befores;  batch_ends := befores;  signals := befores;  conflateds := befores;  lows := befores;
  highs := befores;  used := befores;
  holders := array_fill(NULL::text, ARRAY[groups_]);
  released := array_fill(false, ARRAY[groups_]);
  backlogs := released;
  item_offsets := p_offsets;
  item_below := array_fill(false, ARRAY[items]);
  IF groups_ = 0 THEN
    RETURN;
  END IF;

  -- First and last item of each group.
  first_ := array_fill(1, ARRAY[groups_]);
  last_ := array_fill(0, ARRAY[groups_]);
  FOR i IN 1..items LOOP
    g := p_item_groups[i];
    IF i > 1 AND g < p_item_groups[i - 1] OR p_statuses[i] NOT BETWEEN 0 AND 3 OR g NOT BETWEEN 1 AND groups_ THEN
      RAISE EXCEPTION 'log_ack: misaligned item %', i USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF last_[g] = 0 THEN
      first_[g] := i;
    END IF;
    last_[g] := i;
  END LOOP;

  SELECT array_agg(l.n::int), array_agg(l.last_offset), array_agg(l.log_start), array_agg(l.txns_start),
         array_agg(l.worker_id), array_agg(l.lease_expires_at), array_agg(l.lease_conflated), array_agg(l.committed),
         array_agg(l.batch_end), array_agg(l.batch_retry_count), array_agg(l.retry_limit), array_agg(l.dead_on),
         array_agg(l.attempt_offset), array_agg(l.attempt_count),
         array_agg(l.place)
    INTO no, lasts, starts, txns, workers, expiries, conflate, cursors, ends, retries, limits, dead_on, attempts, counts,
         places
    FROM (SELECT w.n, p1.last_offset, p1.log_start, p1.txns_start, q.retry_limit,
                 q.dead_letter_queue OR q.dlq_after_max_retries AS dead_on, k.*
            FROM (SELECT * FROM unnest(p_tenants, p_partitions, p_groups) WITH ORDINALITY AS u (tenant, part, grp, n)
                   ORDER BY u.part, u.grp) w
           CROSS JOIN LATERAL (SELECT * FROM queen.log_partitions x
                                WHERE x.id BETWEEN w.part AND w.part ORDER BY x.id DESC LIMIT 1) p1
           CROSS JOIN LATERAL (SELECT * FROM queen.queues x WHERE x.id = p1.queue_id LIMIT 1) q
           CROSS JOIN LATERAL (SELECT x.ctid AS place, x.* FROM queen.log_consumers x
                                WHERE q.tenant_id = w.tenant
                                  AND x.partition_id = w.part AND x.consumer_group BETWEEN w.grp AND w.grp
                                ORDER BY x.consumer_group DESC LIMIT 1 FOR UPDATE) k) l;
  now_at := queen.clock();

  IF coalesce(cardinality(no), 0) < groups_ THEN
    FOR g, foreign_ IN
      SELECT w.n, q.tenant_id IS DISTINCT FROM w.tenant
        FROM unnest(p_tenants, p_partitions) WITH ORDINALITY AS w (tenant, part, n)
        JOIN queen.log_partitions p1 ON p1.id = w.part LEFT JOIN queen.queues q ON q.id = p1.queue_id
    LOOP
      outcomes[g] := CASE WHEN foreign_ THEN 5 ELSE 4 END;
    END LOOP;
  END IF;

  -- The gate, and where to look.
  FOR k IN 1..coalesce(cardinality(no), 0) LOOP
    g := no[k];
    befores[g] := cursors[k];
    afters[g] := cursors[k];
    batch_ends[g] := ends[k];
    holders[g] := workers[k];
    IF p_leases[g] <> '' AND (workers[k] IS DISTINCT FROM p_leases[g] OR ends[k] IS NULL
                              OR expiries[k] IS NULL OR expiries[k] <= now_at) THEN
      outcomes[g] := 3;
      CONTINUE;
    END IF;
    outcomes[g] := 0;
    IF conflate[k] AND ends[k] IS NOT NULL THEN
      conflateds[g] := 0;
    END IF;
    -- A batch begins at its first delivered message. Between the cursor and that one may lie what retention took before
    -- the claim: nobody has it, and an id of it that was pushed again later means the message that was delivered.
    floors[k] := greatest(cursors[k] + 1, CASE WHEN ends[k] IS NOT NULL THEN attempts[k] END);
    by_hash := false;
    FOR i IN first_[g]..last_[g] LOOP
      off := p_offsets[i];
      IF off < 0 THEN
        by_hash := true;
      ELSIF off < floors[k] THEN
        item_offsets[i] := -1;
        item_below[i] := true;
      ELSIF off > coalesce(ends[k], lasts[k]) THEN
        item_offsets[i] := -1;
      END IF;
    END LOOP;
    IF by_hash THEN
      lows[g] := greatest(floors[k], txns[k]);
      highs[g] := ends[k];
      bounded := bounded OR ends[k] IS NOT NULL;
    END IF;
  END LOOP;

  -- Resolution within the batches, all at once. Rows above a batch are not read, and of the rows at its two ends
  -- only the hashes that belong to it are looked at. A conflated batch delivered only its last message, so a match there
  -- comes before the same id on a message that it skipped. Both sides of the join are materialized (on the fly, each
  -- pair of a slot and an item sliced its hash anew), and OFFSET 0 fetches a row's hashes once instead of once a slot.
  IF bounded THEN
    WITH item AS MATERIALIZED (
      SELECT u.n, u.grp, substring(p_hashes FROM (u.n::int - 1) * 16 + 1 FOR 16) AS h
        FROM unnest(p_item_groups, p_offsets) WITH ORDINALITY AS u (grp, off, n)
       WHERE u.off < 0
    ), slot AS MATERIALIZED (
      SELECT w.grp, f.off + s.idx AS off, s.h, w.whole AND f.off + s.idx = w.high AS newest
        FROM (SELECT r.no AS grp, p_partitions[r.no] AS part, lows[r.no] AS low, highs[r.no] AS high, r.whole
                FROM unnest(no, conflate) AS r (no, whole)
               WHERE lows[r.no] IS NOT NULL AND highs[r.no] IS NOT NULL) w
       CROSS JOIN LATERAL (
         SELECT t.base_offset, t.end_offset, t.hashes FROM queen.log_txns t
          WHERE t.partition_id = w.part
            AND t.base_offset >= coalesce((SELECT max(b0.base_offset) FROM queen.log_txns b0
                                            WHERE b0.partition_id = w.part AND b0.base_offset <= w.low), 0)
            AND t.base_offset <= w.high AND t.end_offset >= w.low) t
       CROSS JOIN LATERAL (
         SELECT c0.off, substring(t.hashes FROM (c0.off - t.base_offset)::int * 16 + 1
                                           FOR (least(t.end_offset, w.high) - c0.off + 1)::int * 16) AS part
           FROM (SELECT greatest(t.base_offset, w.low) AS off) c0 OFFSET 0) f
       CROSS JOIN LATERAL queen.log_unnest_hashes(f.part) s
    ), hit AS (
      SELECT i.n, min(s.off) AS low, max(s.off) FILTER (WHERE s.newest) AS newest
        FROM slot s JOIN item i ON i.h = s.h AND i.grp = s.grp
       GROUP BY i.n
    )
    SELECT array_agg(coalesce(h.newest, h.low, u.off) ORDER BY u.n) INTO item_offsets
      FROM unnest(item_offsets) WITH ORDINALITY AS u (off, n) LEFT JOIN hit h ON h.n = u.n;
  END IF;

  FOR k IN 1..coalesce(cardinality(no), 0) LOOP
    g := no[k];
    CONTINUE WHEN outcomes[g] <> 0;
    a := first_[g];
    b := last_[g];
    c := cursors[k];
    e := ends[k];

    -- What is left: above the cursor without a bound when there is no batch, then at or below the cursor.
    IF lows[g] IS NOT NULL THEN
      IF e IS NULL THEN
        found_ := queen.log_ack_above(p_partitions[g], lows[g],
          substring(p_hashes FROM (a - 1) * 16 + 1 FOR (b - a + 1) * 16),
          array(SELECT u.off < 0 FROM unnest(p_offsets[a:b]) WITH ORDINALITY AS u (off, n) ORDER BY u.n));
        FOR i IN a..b LOOP
          IF p_offsets[i] < 0 THEN
            item_offsets[i] := found_[i - a + 1];
          END IF;
        END LOOP;
      END IF;
      open_ := false;
      FOR i IN a..b LOOP
        open_ := open_ OR (p_offsets[i] < 0 AND item_offsets[i] < 0);
      END LOOP;
      IF open_ THEN
        below_ := queen.log_ack_below(p_partitions[g], floors[k] - 1,
          substring(p_hashes FROM (a - 1) * 16 + 1 FOR (b - a + 1) * 16),
          array(SELECT u.off < 0 AND u.got < 0
                  FROM unnest(p_offsets[a:b], item_offsets[a:b]) WITH ORDINALITY AS u (off, got, n) ORDER BY u.n));
        open_ := false;
        FOR i IN a..b LOOP
          IF p_offsets[i] < 0 AND item_offsets[i] < 0 THEN
            item_below[i] := below_[i - a + 1];
            open_ := open_ OR NOT item_below[i];
          END IF;
        END LOOP;
        IF open_ AND p_caution = 1 AND p_leases[g] <> '' THEN
          outcomes[g] := 7;
          CONTINUE;
        END IF;
      END IF;
    END IF;

    -- s: the lowest message with a signal, rank: the strongest signal on it, p: how far completions reach below it.
    s := NULL;  rank := 0;  p := NULL;
    FOR i IN a..b LOOP
      off := item_offsets[i];
      IF off >= 0 AND p_statuses[i] > 0 AND (s IS NULL OR off <= s) THEN
        rank := CASE WHEN off = s THEN greatest(rank, p_statuses[i]) ELSE p_statuses[i] END;
        s := off;
      END IF;
    END LOOP;
    FOR i IN a..b LOOP
      off := item_offsets[i];
      IF off >= 0 AND p_statuses[i] = 0 AND (s IS NULL OR off < s) AND (p IS NULL OR off > p) THEN
        p := off;
      END IF;
    END LOOP;
    moved := coalesce(p, c);
    used[g] := moved - c;

    IF e IS NULL THEN
      -- Without a batch there is nothing to give back and no budget to charge: a signal only ends the prefix. The budget
      -- belongs to the head, which a completion passes.
      IF moved > c THEN
        retries[k] := 0;
      END IF;
    ELSIF s IS NULL THEN
      IF moved >= e THEN
        released[g] := true;
        retries[k] := 0;
        attempts[k] := NULL;
        counts[k] := 0;
      END IF;
    ELSIF rank = 1 THEN
      released[g] := true;
    ELSIF rank = 2 AND retries[k] < limits[k] THEN
      released[g] := true;
      retries[k] := retries[k] + 1;
    ELSE
      signals[g] := s;
      outcomes[g] := 1;
      IF rank = 2 AND NOT dead_on[k] THEN
        outcomes[g] := 2;
        used[g] := used[g] + 1;
        moved := s;
        released[g] := true;
        retries[k] := 0;
        attempts[k] := NULL;
        counts[k] := 0;
      END IF;
    END IF;
    -- A prefix was committed and the rest comes again: it is the rest of the same delivery, so its attempts count on.
    IF e IS NOT NULL AND moved > c AND moved < e AND outcomes[g] <> 2 THEN
      attempts[k] := moved + 1;
    END IF;
    afters[g] := moved;
    IF conflateds[g] IS NOT NULL THEN
      -- Neither what was acked by name nor what was dropped was skipped.
      conflateds[g] := greatest(0, moved - greatest(c, starts[k] - 1) - 1
                                     - CASE WHEN outcomes[g] = 2 AND p IS NOT NULL THEN 1 ELSE 0 END);
    END IF;
    IF moved > c OR released[g] THEN
      changed := changed || k;
    END IF;
  END LOOP;

  IF cardinality(changed) = 0 THEN
    RETURN;
  END IF;
  WITH done AS (
    UPDATE queen.log_consumers k
       SET committed = u.moved,
           total_consumed = k.total_consumed + u.used,
           batch_retry_count = u.retries,
           attempt_offset = u.attempt,
           attempt_count = u.attempt_count,
           batch_end = CASE WHEN u.free THEN NULL ELSE k.batch_end END,
           worker_id = CASE WHEN u.free THEN NULL ELSE k.worker_id END,
           lease_expires_at = CASE WHEN u.free THEN NULL ELSE k.lease_expires_at END,
           lease_acquired_at = CASE WHEN u.free THEN NULL ELSE k.lease_acquired_at END,
           lease_conflated = k.lease_conflated AND NOT u.free
      FROM (SELECT no[x.k] AS g, p_partitions[no[x.k]] AS part, p_groups[no[x.k]] AS grp, afters[no[x.k]] AS moved,
                   used[no[x.k]] AS used, retries[x.k] AS retries, attempts[x.k] AS attempt,
                   counts[x.k] AS attempt_count, released[no[x.k]] AS free, places[x.k] AS place
              FROM unnest(changed) AS x (k)) u
     CROSS JOIN LATERAL (SELECT x.last_offset FROM queen.log_partitions x
                          WHERE x.id BETWEEN u.part AND u.part ORDER BY x.id DESC LIMIT 1) p1
     WHERE k.ctid = u.place
    RETURNING u.g, u.free AND p1.last_offset > u.moved AS more
  )
  SELECT array_agg(d.g), array_agg(d.more) INTO more_no, more FROM done d;
  IF cardinality(more_no) IS DISTINCT FROM cardinality(changed) THEN
    RAISE EXCEPTION 'log_ack: % of % rows updated (does a request name one consumer twice?)',
      coalesce(cardinality(more_no), 0), cardinality(changed) USING ERRCODE = 'invalid_parameter_value';
  END IF;
  FOR i IN 1..cardinality(more_no) LOOP
    backlogs[more_no[i]] := more[i];
  END LOOP;
END $$;
