-- Timers: messages that are to be pushed later, each under (tenant, queue, key), at most one pending a key.
--
-- The invariant: a timer that was scheduled, and neither cancelled nor replaced, becomes one message, with the id and the
-- transactionId that its scheduling answered, and not before its time. One that was answered `cancelled` becomes none.
--
-- The argument: the row is the timer. It leaves by one of two statements, and both decide under its lock: a cancellation
-- deletes it unless it is held, a fire deletes it in the very transaction that appends the message. A fire must show
-- the token of its own claim, and a claim that is taken over by somebody else brings another token, so a sweeper that
-- was delayed beyond its lease finds a row that is no longer its own, and appends nothing. What dies in between has
-- committed nothing, and its claim ends by itself. No deduplication window takes part in this.
--
-- Held: the row has a token and its claim is in the future. It cannot be changed then (`too late`), so that whoever was
-- told `cancelled` or `rescheduled` can rely on it. Backing off: no token, but a time before which it is not tried
-- again; it can be changed.
--
-- The row names its destination and holds no id of it: the queue may not exist yet, or be deleted and come back.
--
-- Order of locks: timer rows come after KV rows and before queues and partitions, ascending by (queue, key) of a tenant.
-- The sweeper takes them with SKIP LOCKED and so never waits for a transaction that holds one and wants a partition
-- that the sweeper has.

-- The 64 shards are in stored rows: their number can never change. vacuum_truncate off as for KV: nobody who holds other
-- locks may meet an ACCESS EXCLUSIVE one here.
CREATE TABLE IF NOT EXISTS queen.log_timers (
  tenant_id     uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000001',
  queue         text COLLATE "C" NOT NULL,
  timer_key     text COLLATE "C" NOT NULL,
  partition     text NOT NULL DEFAULT 'Default',
  deliver_at    timestamptz NOT NULL,
  txn           text NOT NULL,
  message_id    uuid NOT NULL,
  payload       bytea NOT NULL,
  payload_zstd  boolean NOT NULL DEFAULT FALSE,
  -- By whoever scheduled it; `sealed`: by the broker, for a queue that encrypts.
  encrypted     boolean NOT NULL DEFAULT FALSE,
  sealed        boolean NOT NULL DEFAULT FALSE,
  producer_sub  text,
  attempts      int NOT NULL DEFAULT 0,
  last_error    text,
  claimed_until timestamptz,
  claim_token   uuid,
  shard         smallint GENERATED ALWAYS AS ((hashtext(timer_key) & 63)::smallint) STORED,
  visible_at    timestamptz GENERATED ALWAYS AS (greatest(deliver_at, claimed_until)) STORED,
  created_at    timestamptz NOT NULL DEFAULT queen.clock(),
  updated_at    timestamptz NOT NULL DEFAULT queen.clock(),
  PRIMARY KEY (tenant_id, queue, timer_key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
CREATE INDEX IF NOT EXISTS idx_log_timers_visible ON queen.log_timers (shard, visible_at);

-- Schedules and cancels, all of it at one instant. Parallel arrays, one element an operation, ascending by (queue, key),
-- each key once:
--   p_ops       0 schedule (also over a pending one), 1 cancel
--   p_delays    ms from now; below 0: due at once, before what is due later
--   p_ids       of the message to come
--   p_zstd, p_encrypted, p_sealed   what the payload is: compressed, encrypted by the caller, encrypted by the broker
--   p_timers_left  what the tenant's plan still allows; NULL: any number
-- outcome  0  applied
--          1  nothing done: the payloads of `sealing` (their indexes) go to queues that store encrypted ones only
--          2  the plan allows no more: the caller must roll back
-- statuses: 0 scheduled, 1 rescheduled, 2 cancelled, 3 absent, 4 too late. due: when it will fire, at the earliest.
-- txns: of what was cancelled.
CREATE OR REPLACE FUNCTION queen.timers_apply(
  p_tenant uuid, p_sub text, p_ops int[], p_queues text[], p_keys text[], p_partitions text[], p_delays bigint[],
  p_txns text[], p_ids uuid[], p_payloads bytea[], p_zstd boolean[], p_encrypted boolean[], p_sealed boolean[],
  p_timers_left bigint,
  OUT outcome int, OUT sealing int[], OUT statuses int[], OUT due timestamptz[], OUT txns text[], OUT grown bigint
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  n      int := coalesce(cardinality(p_ops), 0);
  now_at timestamptz := queen.clock();
  at_    timestamptz;
  gone   text;
  tries  int;
BEGIN
  IF (n = ALL (ARRAY[cardinality(p_queues), cardinality(p_keys), cardinality(p_partitions), cardinality(p_delays),
                     cardinality(p_txns), cardinality(p_ids), cardinality(p_payloads), cardinality(p_zstd),
                     cardinality(p_encrypted), cardinality(p_sealed)])) IS NOT TRUE OR n > 4096 THEN
    RAISE EXCEPTION 'timers_apply: misaligned arrays' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  outcome := 0;
  grown := 0;
  SELECT array_agg(w.i::int) INTO sealing
    FROM unnest(p_ops, p_queues, p_sealed) WITH ORDINALITY AS w (op, queue, sealed, i)
   WHERE w.op = 0 AND NOT w.sealed
     AND EXISTS (SELECT FROM queen.queues q WHERE q.tenant_id = p_tenant AND q.name = w.queue AND q.encryption_enabled);
  IF sealing IS NOT NULL THEN
    outcome := 1;
    RETURN;
  END IF;
  statuses := array_fill(3, ARRAY[n]);
  due := array_fill(NULL::timestamptz, ARRAY[n]);
  txns := array_fill(NULL::text, ARRAY[n]);

  FOR i IN 1..n LOOP
    IF i > 1 AND (p_queues[i - 1] COLLATE "C", p_keys[i - 1] COLLATE "C")
                 >= (p_queues[i] COLLATE "C", p_keys[i] COLLATE "C") THEN
      RAISE EXCEPTION 'timers_apply: operation % is out of order', i USING ERRCODE = 'invalid_parameter_value';
    END IF;
    tries := 0;
    LOOP
      tries := tries + 1;
      IF tries > 100 THEN
        RAISE EXCEPTION 'timers_apply: a timer comes and goes' USING ERRCODE = 'serialization_failure';
      END IF;
      IF p_ops[i] = 0 THEN
        at_ := now_at + p_delays[i] * interval '1 millisecond';
        INSERT INTO queen.log_timers (tenant_id, queue, timer_key, partition, deliver_at, txn, message_id, payload,
                                      payload_zstd, encrypted, sealed, producer_sub, created_at, updated_at)
          VALUES (p_tenant, p_queues[i], p_keys[i], p_partitions[i], at_, p_txns[i], p_ids[i], p_payloads[i],
                  p_zstd[i], p_encrypted[i], p_sealed[i], p_sub, now_at, now_at)
          ON CONFLICT (tenant_id, queue, timer_key) DO NOTHING;
        IF FOUND THEN
          grown := grown + 1;
          IF grown > p_timers_left THEN
            outcome := 2;
            RETURN;
          END IF;
          statuses[i] := 0;
          due[i] := at_;
          EXIT;
        END IF;
        UPDATE queen.log_timers x
           SET partition = p_partitions[i], deliver_at = at_, txn = p_txns[i], message_id = p_ids[i],
               payload = p_payloads[i], payload_zstd = p_zstd[i], encrypted = p_encrypted[i], sealed = p_sealed[i],
               producer_sub = p_sub, attempts = 0, last_error = NULL, claimed_until = NULL, claim_token = NULL,
               updated_at = now_at
         WHERE x.tenant_id = p_tenant AND x.queue = p_queues[i] AND x.timer_key = p_keys[i]
           AND (x.claim_token IS NULL OR x.claimed_until <= now_at);
        IF FOUND THEN
          statuses[i] := 1;
          due[i] := at_;
          EXIT;
        END IF;
      ELSE
        DELETE FROM queen.log_timers x
         WHERE x.tenant_id = p_tenant AND x.queue = p_queues[i] AND x.timer_key = p_keys[i]
           AND (x.claim_token IS NULL OR x.claimed_until <= now_at)
        RETURNING x.txn INTO gone;
        IF FOUND THEN
          grown := grown - 1;
          statuses[i] := 2;
          txns[i] := gone;
          EXIT;
        END IF;
      END IF;
      -- Held, or gone meanwhile. Not locked for that: whoever fires it would have to wait for the end of our transaction.
      PERFORM FROM queen.log_timers x
        WHERE x.tenant_id = p_tenant AND x.queue = p_queues[i] AND x.timer_key = p_keys[i]
          AND x.claim_token IS NOT NULL AND x.claimed_until > now_at;
      IF FOUND THEN
        statuses[i] := 4;
        EXIT;
      END IF;
      -- A cancellation that finds nothing has its answer; a schedule tries again.
      EXIT WHEN p_ops[i] = 1 AND NOT EXISTS (
        SELECT FROM queen.log_timers x
         WHERE x.tenant_id = p_tenant AND x.queue = p_queues[i] AND x.timer_key = p_keys[i]);
    END LOOP;
  END LOOP;
END $$;

-- Claims up to p_limit due timers, of up to p_bytes of payload (the first is always taken), for p_lease_ms; each gets a
-- token of its own. Tenants take turns; of one tenant always the earliest, so that two timers of a partition do not
-- overtake each other. Nobody is waited for.
--
-- Each shard shows its first few. When one shows as many as it may, it may have more of the same age behind them, so nothing
-- that is due later than its last one is taken: order comes before turns, and a backlog of one tenant holds up what is due
-- later than it by the time that it takes to fire it.
--
-- Rejected: a claim and its fire in one transaction. It would hold the rows' locks while frames are packed, and a broker
-- that stands still in the middle would make every cancellation wait for it instead of telling `too late`.
--
-- enabled: false when firing is switched off; nothing is done then. more: due ones are left, or were held by somebody
-- (`passed_by` of them). wait_ms: without `more`, until the next is due; NULL when there is none at all.
CREATE OR REPLACE FUNCTION queen.timers_claim(
  p_limit int, p_bytes bigint, p_lease_ms bigint,
  OUT enabled boolean, OUT more boolean, OUT passed_by int, OUT wait_ms bigint,
  OUT tenants uuid[], OUT queues text[], OUT keys text[], OUT tokens uuid[], OUT partitions text[], OUT due timestamptz[],
  OUT txns text[], OUT ids bytea[], OUT payloads bytea[], OUT zstd boolean[], OUT encrypted boolean[],
  OUT sealed boolean[], OUT subs text[], OUT attempts int[]
) LANGUAGE plpgsql VOLATILE
-- Nested loops over the indexes, in their order: a plan is cached for the session, and one made while the table was small
-- must not read all of it, or all that is due, when that has grown.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_memoize = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  now_at  timestamptz := queen.clock();
  a_shard int := greatest(8, p_limit / 16);
BEGIN
  enabled := coalesce((SELECT (s.value ->> 'enabled')::boolean FROM queen.system_state s
                        WHERE s.key = 'timers_fire_enabled'), true);
  more := false;
  passed_by := 0;
  IF NOT enabled THEN
    RETURN;
  END IF;
  WITH shown AS MATERIALIZED (
    SELECT d.tenant_id, d.queue, d.timer_key, d.visible_at,
           row_number() OVER (PARTITION BY s.shard ORDER BY d.visible_at) AS place
      FROM generate_series(0, 63) AS s (shard)
     CROSS JOIN LATERAL (
       SELECT x.tenant_id, x.queue, x.timer_key, x.visible_at FROM queen.log_timers x
        WHERE x.shard = s.shard AND x.visible_at <= now_at
        ORDER BY x.visible_at LIMIT a_shard) d
  ), ranked AS MATERIALIZED (
    SELECT w.tenant_id, w.queue, w.timer_key, w.visible_at,
           row_number() OVER (PARTITION BY w.tenant_id ORDER BY w.visible_at, w.queue, w.timer_key) AS turn
      FROM shown w
     WHERE w.visible_at <= coalesce((SELECT min(f.visible_at) FROM shown f WHERE f.place = a_shard), now_at)
  ), locked AS MATERIALIZED (
    SELECT x.ctid AS tid, r.turn, r.visible_at, octet_length(x.payload) AS bytes
      FROM ranked r
      JOIN queen.log_timers x ON x.tenant_id = r.tenant_id AND x.queue = r.queue AND x.timer_key = r.timer_key
     WHERE x.visible_at <= now_at
     ORDER BY r.turn, r.visible_at
     LIMIT p_limit
       FOR UPDATE OF x SKIP LOCKED
  ), taken AS (
    UPDATE queen.log_timers x
       SET claim_token = gen_random_uuid(), claimed_until = now_at + p_lease_ms * interval '1 millisecond'
      FROM (SELECT l.tid, sum(l.bytes) OVER (ORDER BY l.turn, l.visible_at, l.tid) - l.bytes AS before FROM locked l) t
     WHERE x.ctid = t.tid AND (t.before < p_bytes)
    RETURNING x.*
  )
  SELECT array_agg(t.tenant_id), array_agg(t.queue), array_agg(t.timer_key), array_agg(t.claim_token),
         array_agg(t.partition), array_agg(t.deliver_at), array_agg(t.txn), array_agg(uuid_send(t.message_id)),
         array_agg(t.payload), array_agg(t.payload_zstd), array_agg(t.encrypted), array_agg(t.sealed),
         array_agg(t.producer_sub), array_agg(t.attempts),
         -- A shard that shows as many as it may can hide more.
         (SELECT count(*) FROM shown) > count(*) OR (SELECT coalesce(max(w.place), 0) >= a_shard FROM shown w),
         CASE WHEN (SELECT count(*) FROM locked) < p_limit
              THEN (SELECT count(*) FROM ranked) - (SELECT count(*) FROM locked) ELSE 0 END
    INTO tenants, queues, keys, tokens, partitions, due, txns, ids, payloads, zstd, encrypted, sealed, subs, attempts,
         more, passed_by
    FROM taken t;
  IF NOT more THEN
    -- NULL and not 0 when there is none: greatest() passes NULLs by, and the sweeper would never sleep.
    SELECT CASE WHEN count(m.visible_at) > 0
                THEN greatest(0, ceil(extract(epoch FROM min(m.visible_at) - now_at) * 1000))::bigint END INTO wait_ms
      FROM generate_series(0, 63) AS s (shard)
     CROSS JOIN LATERAL (SELECT x.visible_at FROM queen.log_timers x WHERE x.shard = s.shard
                          ORDER BY x.visible_at LIMIT 1) m;
  END IF;
END $$;

-- Of rows by key and token, those that the token's claim still holds, locked: their indexes (from 1), where they are, and
-- whether they are due (a clock may have been set back since the claim). What somebody else has locked is left out.
CREATE OR REPLACE FUNCTION queen.timers_held(
  p_tenants uuid[], p_queues text[], p_keys text[], p_tokens uuid[], p_now timestamptz,
  OUT rows_ int[], OUT tids tid[], OUT due boolean[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  SELECT array_agg(r.n::int), array_agg(l.tid), array_agg(l.due) INTO rows_, tids, due
    FROM unnest(p_tenants, p_queues, p_keys, p_tokens) WITH ORDINALITY AS r (tenant, queue, key, token, n)
   CROSS JOIN LATERAL (
     SELECT x.ctid AS tid, x.deliver_at <= p_now AS due FROM queen.log_timers x
      WHERE x.tenant_id = r.tenant AND x.queue = r.queue AND x.timer_key = r.key
        AND x.claim_token = r.token AND x.claimed_until > p_now
        FOR UPDATE SKIP LOCKED) l;
END $$;

-- Fires claimed timers: appends their segments and deletes their rows, in this one statement, or neither.
--
-- Parallel arrays of rows, each with the segment (from 1) that its frame is in:
--   r_tenants, r_queues, r_keys, r_tokens, r_segments
-- and of segments, as log_push takes them, each partition once:
--   p_partitions, p_counts, p_hashes, p_blobs, p_sealed (all payloads in it are encrypted)
-- A segment is appended if all its rows are held by their tokens, due, and not locked by somebody. The window of the
-- destination is not probed: its watermark is the partition's own, read under the lock.
-- outcomes, of the rows: 0 fired; 1 somebody else's by now; 2 given back, since it is not due (any more, by a clock that was
-- set back); 3 kept, since its segment was not appended; 4 kept, and locked by somebody: another sweeper that wanted to claim
-- it and found it claimed, or a transaction that wanted to change it, keeps the lock to its end.
-- verdicts and what follows, of the segments: as log_push answers them; NULL: not appended, 2: no such partition (any more).
CREATE OR REPLACE FUNCTION queen.timers_fire(
  r_tenants uuid[], r_queues text[], r_keys text[], r_tokens uuid[], r_segments int[],
  p_partitions bigint[], p_counts int[], p_hashes bytea[], p_blobs bytea[], p_sealed boolean[],
  OUT outcomes int[], OUT verdicts int[], OUT bases bigint[], OUT created timestamptz[], OUT windows int[],
  OUT encrypts boolean[]
) LANGUAGE plpgsql VOLATILE
-- As log_push has it, which is planned from within.
SET enable_seqscan = off SET enable_memoize = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  n      int := coalesce(cardinality(r_tenants), 0);
  m      int := coalesce(cardinality(p_partitions), 0);
  now_at timestamptz := queen.clock();
  held   int[];
  tids   tid[];
  due    boolean[];
  ready  int[];
  live   int[];
  marks  bigint[];
  fired  tid[];
  early  tid[];
  a      record;
  k      int;
BEGIN
  IF (n = ALL (ARRAY[cardinality(r_queues), cardinality(r_keys), cardinality(r_tokens), cardinality(r_segments)]))
     IS NOT TRUE
     OR (m = ALL (ARRAY[cardinality(p_counts), cardinality(p_hashes), cardinality(p_blobs), cardinality(p_sealed)]))
     IS NOT TRUE
     OR EXISTS (SELECT FROM generate_series(1, m) AS s (k)
                 WHERE p_counts[s.k] <> (SELECT count(*) FROM unnest(r_segments) AS g (k) WHERE g.k = s.k)) THEN
    RAISE EXCEPTION 'timers_fire: misaligned arrays' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  outcomes := array_fill(1, ARRAY[n]);
  verdicts := array_fill(NULL::int, ARRAY[m]);
  windows := verdicts;
  bases := array_fill(NULL::bigint, ARRAY[m]);
  created := array_fill(NULL::timestamptz, ARRAY[m]);
  encrypts := array_fill(NULL::boolean, ARRAY[m]);

  SELECT h.rows_, h.tids, h.due INTO held, tids, due
    FROM queen.timers_held(r_tenants, r_queues, r_keys, r_tokens, now_at) h;
  SELECT array_agg(s.k) INTO ready
    FROM (SELECT r_segments[h.n] AS k, count(*) AS rows FROM unnest(held, due) AS h (n, due) WHERE h.due GROUP BY 1) s
   WHERE s.rows = p_counts[s.k];
  SELECT array_agg(l.k), array_agg(l.last_offset) INTO live, marks
    FROM (SELECT s.k, p.last_offset FROM unnest(ready) AS s (k)
            JOIN queen.log_partitions p ON p.id = p_partitions[s.k]
           ORDER BY p.id
             FOR UPDATE OF p) l;
  FOR j IN 1..coalesce(cardinality(ready), 0) LOOP
    verdicts[ready[j]] := 2;
  END LOOP;
  IF live IS NOT NULL THEN
    SELECT r.* INTO a
      FROM queen.log_push(ARRAY(SELECT p_partitions[s.k] FROM unnest(live) WITH ORDINALITY AS s (k, j) ORDER BY s.j),
                          ARRAY(SELECT p_counts[s.k] FROM unnest(live) WITH ORDINALITY AS s (k, j) ORDER BY s.j),
                          marks, array_fill(NULL::int, ARRAY[cardinality(live)]),
                          ARRAY(SELECT p_hashes[s.k] FROM unnest(live) WITH ORDINALITY AS s (k, j) ORDER BY s.j),
                          ARRAY(SELECT p_blobs[s.k] FROM unnest(live) WITH ORDINALITY AS s (k, j) ORDER BY s.j),
                          ARRAY(SELECT p_sealed[s.k] FROM unnest(live) WITH ORDINALITY AS s (k, j) ORDER BY s.j)) r;
    FOR j IN 1..coalesce(cardinality(a.segments), 0) LOOP
      k := live[a.segments[j]];
      verdicts[k] := a.verdicts[j];
      bases[k] := a.bases[j];
      created[k] := a.created[j];
      windows[k] := a.windows[j];
      encrypts[k] := a.encrypts[j];
      IF a.verdicts[j] NOT IN (0, 3) THEN
        RAISE EXCEPTION 'timers_fire: verdict %', a.verdicts[j] USING ERRCODE = 'internal_error';
      END IF;
    END LOOP;
  END IF;

  FOR j IN 1..coalesce(cardinality(held), 0) LOOP
    IF verdicts[r_segments[held[j]]] = 0 THEN
      outcomes[held[j]] := 0;
      fired := fired || tids[j];
    ELSIF NOT due[j] THEN
      outcomes[held[j]] := 2;
      early := early || tids[j];
    ELSE
      outcomes[held[j]] := 3;
    END IF;
  END LOOP;
  DELETE FROM queen.log_timers x WHERE x.ctid = ANY (fired);
  UPDATE queen.log_timers x SET claim_token = NULL, claimed_until = NULL WHERE x.ctid = ANY (early);
  IF coalesce(cardinality(held), 0) < n THEN
    FOR k IN
      SELECT r.n::int FROM unnest(r_tenants, r_queues, r_keys, r_tokens, outcomes) WITH ORDINALITY
                        AS r (tenant, queue, key, token, outcome, n)
       CROSS JOIN LATERAL (SELECT FROM queen.log_timers x
                            WHERE x.tenant_id = r.tenant AND x.queue = r.queue AND x.timer_key = r.key
                              AND x.claim_token = r.token AND x.claimed_until > now_at OFFSET 0) l
       WHERE r.outcome = 1
    LOOP
      outcomes[k] := 4;
    END LOOP;
  END IF;
END $$;

-- Gives claimed timers back: they can be changed, and claimed after a while. A failure that is the timer's own
-- (p_failed) is counted, and its pause is four times as long after each, an hour at most. Answers how many there were.
CREATE OR REPLACE FUNCTION queen.timers_release(
  p_tenants uuid[], p_queues text[], p_keys text[], p_tokens uuid[], p_pause_ms bigint, p_failed boolean, p_error text
) RETURNS int
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  now_at timestamptz := queen.clock();
  mine   tid[];
  given  int;
BEGIN
  SELECT h.tids INTO mine FROM queen.timers_held(p_tenants, p_queues, p_keys, p_tokens, now_at) h;
  UPDATE queen.log_timers x
     SET claim_token = NULL,
         claimed_until = CASE WHEN p_pause_ms > 0
                              THEN now_at + least(p_pause_ms * CASE WHEN p_failed THEN 4 ^ least(x.attempts, 10) ELSE 1 END,
                                                  3600000) * interval '1 millisecond' END,
         attempts = x.attempts + CASE WHEN p_failed THEN 1 ELSE 0 END,
         last_error = coalesce(p_error, x.last_error)
   WHERE x.ctid = ANY (mine);
  GET DIAGNOSTICS given = ROW_COUNT;
  RETURN given;
END $$;

-- A claimed timer that cannot be fired becomes a dead letter of its destination, and its row goes, or neither. Its message
-- was never in a log, so its offset is -1. p_payload: as a message would have it; NULL: it cannot be told.
-- 0 done, 1 somebody else's by now, 2 no such partition (any more).
CREATE OR REPLACE FUNCTION queen.timers_bury(
  p_tenant uuid, p_queue text, p_key text, p_token uuid, p_partition bigint, p_payload bytea, p_error text
) RETURNS int
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  now_at timestamptz := queen.clock();
  mine   tid[];
BEGIN
  SELECT h.tids INTO mine FROM queen.timers_held(ARRAY[p_tenant], ARRAY[p_queue], ARRAY[p_key], ARRAY[p_token], now_at) h;
  IF mine IS NULL THEN
    RETURN 1;
  END IF;
  -- Keeps the partition: a cleanup spares one with dead letters, and the deletion of its queue takes them along.
  PERFORM FROM queen.log_partitions p WHERE p.id = p_partition FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN 2;
  END IF;
  INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", message_id, transaction_id, payload, error,
                             retry_count, failed_at)
    SELECT p_partition, '__timer__', -1, x.message_id, x.txn, p_payload, p_error, x.attempts + 1, now_at
      FROM queen.log_timers x WHERE x.ctid = ANY (mine);
  DELETE FROM queen.log_timers x WHERE x.ctid = ANY (mine);
  RETURN 0;
END $$;

-- How much is due and waits for its fire, counted up to a bound: capped, when there may be more.
CREATE OR REPLACE FUNCTION queen.timers_backlog(OUT due bigint, OUT capped boolean, OUT late_ms bigint)
LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
  SELECT count(d.deliver_at), coalesce(max(d.place), 0) >= 160,
         coalesce(extract(epoch FROM now_at.now_at - min(d.deliver_at)) * 1000, 0)::bigint
    FROM (SELECT queen.clock() AS now_at) now_at
    LEFT JOIN LATERAL (
      SELECT x.deliver_at, x.place FROM generate_series(0, 63) AS s (shard)
       CROSS JOIN LATERAL (
         SELECT t.deliver_at, row_number() OVER (ORDER BY t.visible_at) AS place FROM (
           SELECT y.deliver_at, y.visible_at FROM queen.log_timers y
            WHERE y.shard = s.shard AND y.visible_at <= now_at.now_at
            ORDER BY y.visible_at LIMIT 160) t) x) d ON true
   GROUP BY now_at.now_at
$$;

-- Counts what every tenant has pending. Above p_exact_max rows (by the planner's estimate) an eighth of the shards stands
-- for the whole. Beside queen.kv_count_usage, in the same statement: one time of counting covers both.
CREATE OR REPLACE FUNCTION queen.timers_count_usage(p_exact_max bigint) RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  now_at timestamptz := queen.clock();
  sample boolean := coalesce((SELECT c.reltuples > p_exact_max FROM pg_class c
                               WHERE c.oid = 'queen.log_timers'::regclass), false);
  counted int;
BEGIN
  INSERT INTO queen.kv_usage AS u (tenant_id, computed_at, timer_rows, timer_bytes, timer_oldest)
    SELECT t.tenant_id, now_at, coalesce(c.rows, 0), coalesce(c.bytes, 0), c.oldest
      FROM (SELECT x.tenant_id, count(*) * CASE WHEN sample THEN 8 ELSE 1 END AS rows,
                   sum(octet_length(x.payload)) * CASE WHEN sample THEN 8 ELSE 1 END AS bytes,
                   min(x.deliver_at) AS oldest
              FROM queen.log_timers x WHERE NOT sample OR x.shard < 8
             GROUP BY x.tenant_id) c
      FULL JOIN (SELECT tenant_id FROM queen.kv_usage UNION SELECT tenant_id FROM queen.kv_quota) o
             ON o.tenant_id = c.tenant_id
     CROSS JOIN LATERAL (SELECT coalesce(c.tenant_id, o.tenant_id) AS tenant_id) t
     ORDER BY t.tenant_id
    ON CONFLICT (tenant_id) DO UPDATE
      SET computed_at = excluded.computed_at, timer_rows = excluded.timer_rows, timer_bytes = excluded.timer_bytes,
          timer_oldest = excluded.timer_oldest;
  GET DIAGNOSTICS counted = ROW_COUNT;
  RETURN counted;
END $$;
