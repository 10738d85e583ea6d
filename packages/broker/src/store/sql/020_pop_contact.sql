-- First contact: where a group starts on a partition that it has never met. Decided once, when its
-- queen.log_consumers row is created, and never again.
--
-- What decides, the first that exists: the record of the partition (a pinned pop waited for it before it
-- existed), the registration of the queue, the registration of a discovery scope that covers the queue, and only
-- for pinned pops what the pop itself carries. A group that nobody registered starts at the beginning.
--
-- The invariant: a message that was committed after the moment S of a registration is delivered to the group. The
-- argument: the registration takes S from the clock first, then inserts its record, then seeds every partition
-- that it sees, all in one transaction. A partition that it saw has a row from then on, at the `last_offset` of
-- that snapshot or lower. A partition that it did not see was committed after the snapshot, so its segments are
-- stamped after S, and it starts just before the first segment at or after S. Starting such a partition at its
-- `last_offset`, since the pop says `new`, would lose the very messages that created it.
--
-- Locks: the insert into log_consumers takes KEY SHARE on partition rows and may wait for a push. So it runs in
-- transactions of its own, rows ascending, while nothing else is locked.

-- One before the base of the first segment at or after `p_at`; `p_last` when there is none. created_at never
-- decreases along a partition, so the boundary is found by bisection over offsets: about 2 log2(n) steps on the
-- primary key, where a walk of a million segments takes a third of a second. STABLE: `p_start`, `p_last` and the
-- segments come from the snapshot of the caller's statement.
CREATE OR REPLACE FUNCTION queen.log_position_at(
  p_partition bigint, p_at timestamptz, p_start bigint, p_last bigint, p_last_created timestamptz
) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
  low  bigint := p_start;
  high bigint := p_last + 1;
  mid  bigint;
  seg  record;
BEGIN
  IF p_last < p_start OR p_last_created < p_at THEN
    RETURN p_last;
  END IF;
  -- Every segment whose base is below `low` is older than p_at, the first at or after it lies at or below `high`.
  WHILE low < high LOOP
    mid := low + (high - low) / 2;
    SELECT s.base_offset, s.end_offset, s.created_at INTO seg FROM queen.log_segments s
     WHERE s.partition_id = p_partition AND s.base_offset >= low AND s.base_offset <= mid
     ORDER BY s.base_offset DESC LIMIT 1;
    IF NOT FOUND THEN
      low := mid + 1;
    ELSIF seg.created_at < p_at THEN
      low := GREATEST(seg.end_offset, mid) + 1;
    ELSE
      high := seg.base_offset;
    END IF;
  END LOOP;
  SELECT s.base_offset INTO mid FROM queen.log_segments s
   WHERE s.partition_id = p_partition AND s.base_offset >= low
   ORDER BY s.base_offset LIMIT 1;
  RETURN COALESCE(mid - 1, p_last);
END $$;

-- The seed of one partition. p_mode: `all`, `new`, `timestamp`; NULL: nobody registered the group.
CREATE OR REPLACE FUNCTION queen.log_seed(
  p_mode text, p_at timestamptz, p_fresh boolean,
  p_partition bigint, p_start bigint, p_last bigint, p_last_created timestamptz
) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF p_mode IS NULL OR p_mode = 'all' OR (p_at IS NULL AND NOT p_fresh) THEN
    RETURN GREATEST(p_start - 1, -1);
  ELSIF p_mode = 'new' AND p_fresh THEN
    RETURN p_last;
  END IF;
  RETURN queen.log_position_at(p_partition, p_at, p_start, p_last, p_last_created);
END $$;

-- The id of the queue, which is created when it is unknown: an early subscriber must be recorded.
CREATE OR REPLACE FUNCTION queen.log_pop_queue(p_tenant uuid, p_queue text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_id bigint;
BEGIN
  LOOP
    SELECT q.id INTO v_id FROM queen.queues q WHERE q.tenant_id = p_tenant AND q.name = p_queue;
    IF FOUND THEN
      RETURN v_id;
    END IF;
    PERFORM queen.queue_ensure(p_tenant, ARRAY[p_queue]);
  END LOOP;
END $$;

-- The record that decides for a (group, partition), `p_except` left out. No row: nothing does.
CREATE OR REPLACE FUNCTION queen.log_pop_record(
  p_tenant uuid, p_group text, p_queue bigint, p_partition text, p_namespace text, p_task text, p_except bigint
) RETURNS TABLE (mode text, at timestamptz, conflation boolean) LANGUAGE sql STABLE AS $$
  SELECT m.subscription_mode, m.subscription_timestamp, m.conflation
    FROM queen.consumer_groups_metadata m
   WHERE m.tenant_id = p_tenant AND m.consumer_group = p_group AND m.id IS DISTINCT FROM p_except
     AND ((m.queue_id = p_queue AND m.partition_name IN ('', p_partition))
          OR (m.queue_id IS NULL AND m.namespace IN ('', p_namespace) AND m.task IN ('', p_task)))
   ORDER BY CASE WHEN m.queue_id IS NULL THEN 2 WHEN m.partition_name = '' THEN 1 ELSE 0 END,
            m.subscription_timestamp NULLS FIRST
   LIMIT 1
$$;

-- Gives every partition of the queues a row for the group where there is none. Ascending, the global lock order.
-- p_record: the registration that was just made; an older record that covers a partition comes before it. Most groups
-- have no older one, and then nothing has to be looked up a partition.
CREATE OR REPLACE FUNCTION queen.log_pop_seed(
  p_tenant uuid, p_group text, p_queues bigint[], p_mode text, p_at timestamptz, p_fresh boolean, p_record bigint
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := queen.clock();
BEGIN
  IF NOT EXISTS (SELECT FROM queen.consumer_groups_metadata m
                  WHERE m.tenant_id = p_tenant AND m.consumer_group = p_group AND m.id <> p_record) THEN
    INSERT INTO queen.log_consumers (partition_id, consumer_group, committed, created_at)
    SELECT p.id, p_group,
           CASE WHEN p_mode = 'new' AND p_fresh THEN p.last_offset
                WHEN p_mode = 'all' THEN GREATEST(p.log_start - 1, -1)
                ELSE queen.log_seed(p_mode, p_at, p_fresh, p.id, p.log_start, p.last_offset, p.last_created_at) END,
           v_now
      FROM queen.log_partitions p
     WHERE p.queue_id = ANY (p_queues)
       AND NOT EXISTS (SELECT FROM queen.log_consumers c WHERE c.partition_id = p.id AND c.consumer_group = p_group)
     ORDER BY p.id
    ON CONFLICT (partition_id, consumer_group) DO NOTHING;
    RETURN;
  END IF;
  INSERT INTO queen.log_consumers (partition_id, consumer_group, committed, created_at)
  SELECT p.id, p_group,
         CASE WHEN r.mode IS NULL
              THEN queen.log_seed(p_mode, p_at, p_fresh, p.id, p.log_start, p.last_offset, p.last_created_at)
              ELSE queen.log_seed(r.mode, r.at, FALSE, p.id, p.log_start, p.last_offset, p.last_created_at)
         END,
         v_now
    FROM queen.log_partitions p
    JOIN queen.queues q ON q.id = p.queue_id
    LEFT JOIN LATERAL queen.log_pop_record(p_tenant, p_group, q.id, p.name, q.namespace, q.task, p_record) r ON TRUE
   WHERE p.queue_id = ANY (p_queues)
     AND NOT EXISTS (SELECT FROM queen.log_consumers c WHERE c.partition_id = p.id AND c.consumer_group = p_group)
   ORDER BY p.id
  ON CONFLICT (partition_id, consumer_group) DO NOTHING;
END $$;

-- Makes sure that the group is registered on the queue, which is created when it is unknown.
--   p_mode    all, new, timestamp (then p_from counts)
--   p_from    microseconds. With mode `new`, -1 backdates the registration to the creation of the queue: the
--             group was polling that name already when the queue was made anew
-- Queue mode (p_group = __QUEUE_MODE__) has no registration: only the queue's facts come back.
CREATE OR REPLACE FUNCTION queen.log_pop_register(
  p_tenant uuid, p_queue text, p_group text, p_mode text, p_from bigint, p_conflate boolean,
  OUT queue_id bigint, OUT created_at bigint, OUT conflation boolean, OUT inserted boolean,
  OUT min_pop_wait int, OUT namespace text, OUT task text, OUT now_at bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now    timestamptz := queen.clock();
  v_at     timestamptz;
  v_record bigint;
BEGIN
  now_at := queen.micros(v_now);
  inserted := FALSE;
  conflation := FALSE;
  -- A round is lost only to the deletion of the queue in the same instant.
  FOR attempt IN 1..5 LOOP
    queue_id := queen.log_pop_queue(p_tenant, p_queue);
    SELECT queen.micros(q.created_at), q.min_pop_wait_time, q.namespace, q.task
      INTO created_at, min_pop_wait, namespace, task
      FROM queen.queues q WHERE q.id = queue_id;
    CONTINUE WHEN NOT FOUND;
    IF p_group = '__QUEUE_MODE__' THEN
      RETURN;
    END IF;
    SELECT m.conflation INTO conflation FROM queen.consumer_groups_metadata m
     WHERE m.tenant_id = p_tenant AND m.consumer_group = p_group AND m.queue_id = log_pop_register.queue_id
       AND m.partition_name = '' AND m.namespace = '' AND m.task = '';
    IF FOUND THEN
      RETURN;
    END IF;
    PERFORM FROM queen.queues q WHERE q.id = queue_id FOR KEY SHARE;
    CONTINUE WHEN NOT FOUND;
    v_at := CASE WHEN p_mode = 'all' THEN timestamptz 'epoch'
                 WHEN p_from = -1 THEN LEAST(queen.from_micros(created_at), v_now)
                 WHEN p_from IS NOT NULL THEN queen.from_micros(p_from) ELSE v_now END;
    INSERT INTO queen.consumer_groups_metadata
      (tenant_id, consumer_group, queue_id, subscription_mode, subscription_timestamp, conflation, created_at)
      VALUES (p_tenant, p_group, queue_id, p_mode, v_at, p_conflate, v_now)
      ON CONFLICT ON CONSTRAINT cgm_identity_uk DO NOTHING
      RETURNING id INTO v_record;
    -- Another one was faster: the next round reads what it has stored, its seeding is over by then.
    CONTINUE WHEN v_record IS NULL;
    PERFORM queen.log_pop_seed(p_tenant, p_group, ARRAY[queue_id], p_mode, v_at, p_from IS NULL, v_record);
    conflation := p_conflate;
    inserted := TRUE;
    RETURN;
  END LOOP;
  RAISE EXCEPTION 'queue % is being deleted', p_queue USING ERRCODE = '40001';
END $$;

-- The same for a discovery scope ('' = any). Partitions of all queues that match are seeded.
CREATE OR REPLACE FUNCTION queen.log_pop_register_scope(
  p_tenant uuid, p_namespace text, p_task text, p_group text, p_mode text, p_from bigint, p_conflate boolean,
  OUT conflation boolean, OUT inserted boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now    timestamptz := queen.clock();
  v_at     timestamptz;
  v_record bigint;
BEGIN
  inserted := FALSE;
  conflation := FALSE;
  IF p_group = '__QUEUE_MODE__' THEN
    RETURN;
  END IF;
  FOR attempt IN 1..5 LOOP
    SELECT m.conflation INTO conflation FROM queen.consumer_groups_metadata m
     WHERE m.tenant_id = p_tenant AND m.consumer_group = p_group AND m.queue_id IS NULL
       AND m.partition_name = '' AND m.namespace = p_namespace AND m.task = p_task;
    IF FOUND THEN
      RETURN;
    END IF;
    v_at := CASE WHEN p_mode = 'all' THEN timestamptz 'epoch'
                 WHEN p_from IS NOT NULL THEN queen.from_micros(p_from) ELSE v_now END;
    INSERT INTO queen.consumer_groups_metadata
      (tenant_id, consumer_group, namespace, task, subscription_mode, subscription_timestamp, conflation, created_at)
      VALUES (p_tenant, p_group, p_namespace, p_task, p_mode, v_at, p_conflate, v_now)
      ON CONFLICT ON CONSTRAINT cgm_identity_uk DO NOTHING
      RETURNING id INTO v_record;
    CONTINUE WHEN v_record IS NULL;
    PERFORM queen.log_pop_seed(p_tenant, p_group,
      ARRAY(SELECT q.id FROM queen.queues q
             WHERE q.tenant_id = p_tenant AND p_namespace IN ('', q.namespace) AND p_task IN ('', q.task)),
      p_mode, v_at, p_from IS NULL, v_record);
    conflation := p_conflate;
    inserted := TRUE;
    RETURN;
  END LOOP;
  RAISE EXCEPTION 'the registration of % keeps vanishing', p_group USING ERRCODE = '40001';
END $$;

-- The queues of a discovery scope.
CREATE OR REPLACE FUNCTION queen.log_pop_scope(p_tenant uuid, p_namespace text, p_task text)
RETURNS TABLE (queue_id bigint, queue text, created_at bigint, min_pop_wait int) LANGUAGE sql STABLE AS $$
  SELECT q.id, q.name::text, queen.micros(q.created_at), q.min_pop_wait_time FROM queen.queues q
   WHERE q.tenant_id = p_tenant AND p_namespace IN ('', q.namespace) AND p_task IN ('', q.task)
$$;

-- Finds the partition of a pinned pop. One that does not exist is not created; instead the group's start on it is
-- recorded, unless a registration of the queue covers it already. `conflation`: the policy in force.
CREATE OR REPLACE FUNCTION queen.log_pop_pin(
  p_tenant uuid, p_queue text, p_partition text, p_group text, p_mode text, p_from bigint,
  OUT queue_id bigint, OUT partition_id bigint, OUT conflation boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := queen.clock();
BEGIN
  FOR attempt IN 1..5 LOOP
    queue_id := queen.log_pop_queue(p_tenant, p_queue);
    conflation := FALSE;
    SELECT p.id INTO partition_id FROM queen.log_partitions p
     WHERE p.queue_id = log_pop_pin.queue_id AND p.name = p_partition;
    IF p_group = '__QUEUE_MODE__' THEN
      RETURN;
    END IF;
    SELECT m.conflation INTO conflation FROM queen.consumer_groups_metadata m
     WHERE m.tenant_id = p_tenant AND m.consumer_group = p_group AND m.queue_id = log_pop_pin.queue_id
       AND m.partition_name IN ('', p_partition) AND m.namespace = '' AND m.task = ''
     ORDER BY m.partition_name LIMIT 1;
    IF NOT FOUND THEN
      conflation := FALSE;
      IF partition_id IS NULL THEN
        PERFORM FROM queen.queues q WHERE q.id = queue_id FOR KEY SHARE;
        CONTINUE WHEN NOT FOUND;
        INSERT INTO queen.consumer_groups_metadata
          (tenant_id, consumer_group, queue_id, partition_name, subscription_mode, subscription_timestamp, created_at)
          VALUES (p_tenant, p_group, queue_id, p_partition, p_mode,
                  CASE WHEN p_mode = 'all' THEN timestamptz 'epoch'
                       WHEN p_from IS NOT NULL THEN queen.from_micros(p_from) ELSE v_now END, v_now)
          ON CONFLICT ON CONSTRAINT cgm_identity_uk DO NOTHING;
      END IF;
    END IF;
    RETURN;
  END LOOP;
  RAISE EXCEPTION 'queue % is being deleted', p_queue USING ERRCODE = '40001';
END $$;

-- Creates the missing rows of a group on these partitions. A try of the advisory lock decides who inserts: a
-- conflicting insert would wait for the other inserter's whole transaction, and under mass creation of partitions
-- those waits chain. KEY SHARE is taken ascending before the insert, so that a partition that is being deleted
-- drops out instead of failing its foreign key.
--   p_pinned   the pop names the partition: without a record, p_mode and p_from decide. Else a record must exist
-- verdict: 0 met, 1 somebody else is at it, 2 no such partition, 3 the group is not registered
CREATE OR REPLACE FUNCTION queen.log_pop_meet(
  p_group text, p_partitions bigint[], p_pinned boolean, p_mode text, p_from bigint,
  OUT verdicts int[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now  timestamptz := queen.clock();
  v_mine bigint[];
  v_seen bigint[];
  v_known bigint[];
BEGIN
  WITH missing AS MATERIALIZED (
    SELECT w.id FROM unnest(p_partitions) AS w (id)
     WHERE NOT EXISTS (SELECT FROM queen.log_consumers c
                        WHERE c.partition_id = w.id AND c.consumer_group = p_group)
     ORDER BY w.id
  )
  SELECT array_agg(m.id) FILTER (WHERE pg_try_advisory_xact_lock(hashtextextended(p_group, m.id)))
    INTO v_mine FROM missing m;

  PERFORM FROM queen.log_partitions p WHERE p.id = ANY (v_mine) ORDER BY p.id FOR KEY SHARE;

  -- A statement of its own, hence a snapshot from after the locks: the lock may have waited for a push, and a
  -- last_offset that counts its segment beside a snapshot that does not show it would skip that segment.
  WITH placed AS MATERIALIZED (
    SELECT p.id, p.log_start, p.last_offset, p.last_created_at, r.mode, r.at,
           p_pinned OR r.mode IS NOT NULL OR p_group = '__QUEUE_MODE__' AS known
      FROM queen.log_partitions p
      JOIN queen.queues q ON q.id = p.queue_id
      LEFT JOIN LATERAL queen.log_pop_record(q.tenant_id, p_group, q.id, p.name, q.namespace, q.task, NULL) r ON TRUE
     WHERE p.id = ANY (v_mine)
  ), made AS (
    INSERT INTO queen.log_consumers (partition_id, consumer_group, committed, created_at)
    SELECT p.id, p_group,
           CASE WHEN p_group = '__QUEUE_MODE__' THEN -1
                WHEN p.mode IS NULL
                THEN queen.log_seed(p_mode, queen.from_micros(p_from), p_from IS NULL,
                                    p.id, p.log_start, p.last_offset, p.last_created_at)
                ELSE queen.log_seed(p.mode, p.at, FALSE, p.id, p.log_start, p.last_offset, p.last_created_at)
           END, v_now
      FROM placed p
     WHERE p.known
     ORDER BY p.id
    ON CONFLICT (partition_id, consumer_group) DO NOTHING
  )
  SELECT array_agg(p.id), array_agg(p.id) FILTER (WHERE p.known) INTO v_seen, v_known FROM placed p;

  SELECT array_agg(CASE
             WHEN w.id = ANY (v_known) THEN 0
             WHEN w.id = ANY (v_seen) THEN 3
             WHEN w.id = ANY (v_mine) THEN 2
             WHEN EXISTS (SELECT FROM queen.log_consumers c
                           WHERE c.partition_id = w.id AND c.consumer_group = p_group) THEN 0
             ELSE 1 END ORDER BY w.seq)
    INTO verdicts
    FROM unnest(p_partitions) WITH ORDINALITY AS w (id, seq);
END $$;
