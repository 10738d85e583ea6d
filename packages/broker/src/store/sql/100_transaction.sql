-- The log's part of a transaction: pushes through the one allocator, then acks through the one decision procedure, in one
-- statement of a transaction that the caller commits. What stands before it in the order of locks (KV, timers) has
-- been done when it starts; provisioning has happened in a transaction of its own.
--
-- The invariant: nothing is committed unless everything is. The function writes part after part and stops at the first
-- that is refused; that the caller rolls back then is all that makes it atomic, so nothing here catches an error.
--
-- Partitions are locked first, all of them, ascending (log_push), then consumer rows, all of them, ascending. An ack takes
-- no partition lock and a push no consumer lock, so bundles that push to what others ack cannot form a cycle.
--
-- One statement and not four: each costs a round trip in which the locks are held, and on a busy partition the time for
-- which its lock is held is the rate at which transactions pass.
--
--   p_go          false: something before was refused, nothing is to be done
--   p_durable     the commit must reach the disk whatever the database's default is
--   p_partitions … p_sealed  segments, as log_push takes them
--   a_tenants … a_hashes     groups of acks and their items, as log_ack takes them; a lease is NULL when the ack names none
--   a_required    the distinct leases that the caller says it holds
--   a_decide      false: only lock the rows and find their leases
--
-- stage: how far it came. 0 nothing was to be done, 1 a push was refused (its verdict tells), 2 a group is leased by
-- somebody who is not in the list (fenced: its index), 3 all done.
-- Pushes and acks are answered as log_push and log_ack answer. leases: which lease each group was held against.
CREATE OR REPLACE FUNCTION queen.log_transaction(
  p_go boolean, p_durable boolean,
  p_partitions bigint[], p_counts int[], p_verified bigint[], p_windows int[], p_hashes bytea[], p_blobs bytea[],
  p_sealed boolean[],
  a_tenants uuid[], a_partitions bigint[], a_groups text[], a_leases text[], a_item_groups int[], a_statuses int[],
  a_offsets bigint[], a_hashes bytea, a_required text[], a_decide boolean,
  OUT stage int, OUT fenced int, OUT leases text[],
  OUT segments int[], OUT verdicts int[], OUT bases bigint[], OUT created timestamptz[], OUT windows int[],
  OUT encrypts boolean[], OUT dup_segments int[], OUT dup_indexes int[], OUT dup_offsets bigint[],
  OUT outcomes int[], OUT befores bigint[], OUT afters bigint[], OUT batch_ends bigint[], OUT holders text[],
  OUT signals bigint[], OUT released boolean[], OUT backlogs boolean[], OUT conflateds bigint[],
  OUT item_offsets bigint[], OUT item_below boolean[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  pushes   int := coalesce(cardinality(p_partitions), 0);
  groups_  int := coalesce(cardinality(a_partitions), 0);
  no       int[];
  workers  text[];
  ends     bigint[];
  expiries timestamptz[];
  now_at   timestamptz;
  holder   text;
BEGIN
  stage := 0;
  IF NOT p_go THEN
    RETURN;
  END IF;
  IF cardinality(a_leases) IS DISTINCT FROM groups_ THEN
    RAISE EXCEPTION 'log_transaction: misaligned arrays' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF p_durable AND current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;

  IF pushes > 0 THEN
    stage := 1;
    SELECT r.segments, r.verdicts, r.bases, r.created, r.windows, r.encrypts, r.dup_segments, r.dup_indexes,
           r.dup_offsets
      INTO segments, verdicts, bases, created, windows, encrypts, dup_segments, dup_indexes, dup_offsets
      FROM queen.log_push(p_partitions, p_counts, p_verified, p_windows, p_hashes, p_blobs, p_sealed) r;
    IF coalesce(cardinality(segments), 0) < pushes THEN
      RETURN;
    END IF;
    IF verdicts <> array_fill(0, ARRAY[pushes]) THEN
      RETURN;
    END IF;
  END IF;

  leases := a_leases;
  IF groups_ > 0 AND array_position(a_leases, NULL) IS NOT NULL AND cardinality(a_required) > 0 THEN
    stage := 2;
    -- All of them and not only those without a lease: it is the same order that log_ack will go by.
    SELECT array_agg(l.n::int), array_agg(l.worker_id), array_agg(l.batch_end), array_agg(l.lease_expires_at)
      INTO no, workers, ends, expiries
      FROM (SELECT w.n, k.worker_id, k.batch_end, k.lease_expires_at
              FROM unnest(a_tenants, a_partitions, a_groups) WITH ORDINALITY AS w (tenant, part, grp, n)
              JOIN queen.log_partitions p1 ON p1.id = w.part
              JOIN queen.queues q ON q.id = p1.queue_id AND q.tenant_id = w.tenant
              JOIN queen.log_consumers k ON k.partition_id = w.part AND k.consumer_group = w.grp
             ORDER BY k.partition_id, k.consumer_group
               FOR UPDATE OF k) l;
    now_at := queen.clock();
    FOR k IN 1..coalesce(cardinality(no), 0) LOOP
      CONTINUE WHEN leases[no[k]] IS NOT NULL OR workers[k] IS NULL OR ends[k] IS NULL OR expiries[k] IS NULL
                    OR expiries[k] <= now_at;
      IF NOT workers[k] = ANY (a_required) THEN
        fenced := no[k];
        RETURN;
      END IF;
      leases[no[k]] := workers[k];
    END LOOP;
    -- Nobody holds it: the one lease that the caller has must have been for it, and has ended.
    IF cardinality(a_required) = 1 THEN
      leases := array_replace(leases, NULL, a_required[1]);
    END IF;
  END IF;
  leases := array_replace(leases, NULL, '');

  IF groups_ > 0 AND a_decide THEN
    SELECT r.outcomes, r.befores, r.afters, r.batch_ends, r.holders, r.signals, r.released, r.backlogs, r.conflateds,
           r.item_offsets, r.item_below
      INTO outcomes, befores, afters, batch_ends, holders, signals, released, backlogs, conflateds, item_offsets,
           item_below
      FROM queen.log_ack(a_tenants, a_partitions, a_groups, leases, a_item_groups, a_statuses, a_offsets, a_hashes, 1) r;
  END IF;
  stage := 3;
END $$;
