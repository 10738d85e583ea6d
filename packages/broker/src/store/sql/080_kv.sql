-- KV: JSON values under (tenant, namespace, key), in the same database as the log so that they can commit with it.
--
-- The invariant: for each key the applied writes are a chain. A conditional write applies to the version it named, of
-- any number of simultaneous putIfAbsent exactly one applies, and a version is never used twice.
--
-- The argument: every write locks its row first (an insert holds the key's place in the unique index instead), decides
-- on what it then sees, and keeps the lock until its transaction ends. Every statement of a VOLATILE function takes a new
-- snapshot, so what runs after the locking statement sees whatever the previous holder committed. Rows are locked in
-- (namespace, key) byte order and kv rows come first in the order of the whole system, so a call can wait but not
-- deadlock. Versions come from a sequence and are never handed out again, also after a rollback, so a value that changed
-- and changed back does not pass for unchanged.
--
-- What is absent has no row to lock. When something else depends on the absence (other writes of the call, or the rest of
-- a transaction), its place in the index is taken by a row that is deleted at once: whoever wants to create the key
-- waits for the end of our transaction, and afterwards finds nothing. Without that, two transactions that each
-- require a key to be absent and create the other's would both commit.
--
-- Reads take no locks, except of a key that the same call writes. A key is live while expires_at is NULL or later than the one instant of the call.

-- Each session draws a thousand at a time: versions are unique, not monotone.
CREATE SEQUENCE IF NOT EXISTS queen.kv_version CACHE 1000;

-- Byte order ("C") is the order of prefix scans and of locks. json and not jsonb: a value comes back as it was sent,
-- also one with digits, escapes (\u0000) or repeated keys that jsonb changes or refuses.
-- vacuum_truncate off: a read inside a transaction must never meet an ACCESS EXCLUSIVE lock.
-- The 64 shards are in stored rows: their number can never change.
CREATE TABLE IF NOT EXISTS queen.kv (
  tenant_id  uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000001',
  namespace  text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  value      json NOT NULL,
  version    bigint NOT NULL DEFAULT nextval('queen.kv_version'),
  expires_at timestamptz,
  shard      smallint GENERATED ALWAYS AS ((hashtext(key) & 63)::smallint) STORED,
  created_at timestamptz NOT NULL DEFAULT queen.clock(),
  updated_at timestamptz NOT NULL DEFAULT queen.clock(),
  PRIMARY KEY (tenant_id, namespace, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
CREATE INDEX IF NOT EXISTS idx_kv_shard_expires ON queen.kv (shard, expires_at) WHERE expires_at IS NOT NULL;

-- What a tenant may use. NULL: unlimited.
CREATE TABLE IF NOT EXISTS queen.kv_quota (
  tenant_id           uuid PRIMARY KEY,
  enabled             boolean NOT NULL DEFAULT TRUE,
  max_rows            bigint,
  max_bytes           bigint,
  max_timers          bigint,
  max_timer_horizon_s bigint,
  max_reads_per_sec   int,
  max_writes_per_sec  int
);

-- What it used when it was last counted.
CREATE TABLE IF NOT EXISTS queen.kv_usage (
  tenant_id    uuid PRIMARY KEY,
  computed_at  timestamptz NOT NULL DEFAULT queen.clock(),
  kv_rows      bigint NOT NULL DEFAULT 0,
  kv_bytes     bigint NOT NULL DEFAULT 0,
  timer_rows   bigint NOT NULL DEFAULT 0,
  timer_bytes  bigint NOT NULL DEFAULT 0,
  timer_oldest timestamptz
);

-- A number that can be counted with: its text is bounded, so that a sum is too.
CREATE OR REPLACE FUNCTION queen.kv_countable(p_value json) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT json_typeof(p_value) = 'number'
     AND btrim(p_value::text, E' \t\r\n') ~ '^-?[0-9]{1,255}(\.[0-9]{1,255})?([eE][+-]?[0-9]{1,2})?$'
$$;

-- A page of a namespace in byte order: keys that begin with p_prefix, below p_upper (NULL: no bound), after p_after
-- (NULL: from the start). Ends when p_limit rows are there or their values exceed p_bytes; the row that does so is still
-- given. `more`: on the last row only, something was left out.
CREATE OR REPLACE FUNCTION queen.kv_scan(
  p_tenant uuid, p_namespace text, p_prefix text, p_upper text, p_after text, p_limit int, p_keys_only boolean,
  p_expired boolean, p_now timestamptz, p_bytes bigint
) RETURNS TABLE (key text, value text, version bigint, expires_at timestamptz, updated_at timestamptz, expired boolean,
                 more boolean)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  r      record;
  given  int := 0;
  budget bigint := p_bytes;
  held   boolean := false;
BEGIN
  more := false;
  FOR r IN
    SELECT k.key AS name, k.value AS val, k.version AS ver, k.expires_at AS until, k.updated_at AS at,
           k.expires_at <= p_now AS dead
      FROM queen.kv k
     WHERE k.tenant_id = p_tenant AND k.namespace = p_namespace
       AND k.key >= p_prefix AND (p_upper IS NULL OR k.key < p_upper) AND k.key ^@ p_prefix
       AND (p_after IS NULL OR k.key > p_after)
       AND (p_expired OR k.expires_at IS NULL OR k.expires_at > p_now)
     ORDER BY k.key LIMIT p_limit + 1
  LOOP
    -- One row behind, so that the last one knows whether another follows.
    IF held THEN
      more := given = p_limit OR budget < 0;
      RETURN NEXT;
      EXIT WHEN more;
    END IF;
    key := r.name;
    version := r.ver;
    expires_at := r.until;
    updated_at := r.at;
    expired := coalesce(r.dead, false);
    value := CASE WHEN p_keys_only THEN NULL ELSE r.val::text END;
    budget := budget - coalesce(octet_length(value), 0);
    given := given + 1;
    held := true;
    more := false;
  END LOOP;
  IF held AND NOT more THEN
    RETURN NEXT;
  END IF;
END $$;

-- Applies one call, whole, at one instant. Runs alone or inside a larger transaction; no business outcome raises.
--
-- One element an operation. The single-key ones (0 to 3) come first, ascending by (namespace, key) in byte order, those
-- on one key in the order of the request; then the others.
--   p_ops         0 get, 1 put, 2 delete, 3 incr, 4 getMany, 5 getPrefix
--   p_namespaces
--   p_keys        key, or prefix
--   p_values      put: the JSON text; incr: the delta; getPrefix: the exclusive cursor or NULL
--   p_ttls        put, incr: seconds to live, NULL: for ever
--   p_expects     put, delete: NULL: no condition, 0: nothing lives there, else the version
--   p_required    a lost condition ends the call; of a get: the call writes the key too, so it is locked at once
--   p_mins, p_maxs  incr: bounds of the result; getPrefix: p_maxs is the upper bound of its range
--   p_limits      getPrefix: rows
--   p_keys_only   getPrefix
-- p_many_ops, p_many_keys  the keys of the getMany operations (index from 1)
-- p_read_bytes  of values that the reads of several keys may give together
-- p_rows_left, p_bytes_left  what the tenant may grow by; NULL: unlimited, and growth is not measured
-- p_guard       something else depends on what is found absent: hold its place
-- p_durable     the commit must reach the disk whatever the database's default is
--
-- failed: index of the operation that ended the call (the caller must roll back if it may have written), with
-- failure 'kv_precondition' or 'kv_quota_exceeded'. Else NULL.
-- Of the single-key operations by index: done (found or applied), reasons, versions (0: nothing lives), vals (what was read,
-- deleted, counted, or stood in the way), expires, updated.
-- Rows of the others in arrays of their own; a row without a version is a key that is there and did not fit. cut: of the
-- operations whose rows are not all there.
CREATE OR REPLACE FUNCTION queen.kv_apply(
  p_tenant uuid, p_ops int[], p_namespaces text[], p_keys text[], p_values text[], p_ttls bigint[],
  p_expects bigint[], p_required boolean[], p_mins text[], p_maxs text[], p_limits int[], p_keys_only boolean[],
  p_many_ops int[], p_many_keys text[], p_read_bytes bigint, p_rows_left bigint, p_bytes_left bigint, p_guard boolean,
  p_durable boolean,
  OUT failed int, OUT failure text, OUT done boolean[], OUT reasons text[], OUT versions bigint[], OUT vals text[],
  OUT expires bigint[], OUT updated bigint[],
  OUT row_ops int[], OUT row_keys text[], OUT row_vals text[], OUT row_versions bigint[], OUT row_expires bigint[],
  OUT row_updated bigint[], OUT cut int[], OUT grown_rows bigint, OUT grown_bytes bigint
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  n       int := coalesce(cardinality(p_ops), 0);
  now_at  timestamptz := queen.clock();
  measure boolean := p_rows_left IS NOT NULL OR p_bytes_left IS NOT NULL;
  budget  bigint := p_read_bytes;
  r       record;
  ns text; k text; op int; expect bigint; val json; until timestamptz; ver bigint; why text; sum_ numeric;
  have boolean; live boolean; fresh boolean; tries int; more_rows bigint; more_bytes bigint;
BEGIN
  IF (n = ALL (ARRAY[cardinality(p_namespaces), cardinality(p_keys), cardinality(p_values), cardinality(p_ttls),
                     cardinality(p_expects), cardinality(p_required), cardinality(p_mins), cardinality(p_maxs),
                     cardinality(p_limits), cardinality(p_keys_only)])) IS NOT TRUE
     OR cardinality(p_many_ops) IS DISTINCT FROM cardinality(p_many_keys) OR n > 4096 THEN
    RAISE EXCEPTION 'kv_apply: misaligned arrays' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF p_durable AND current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  grown_rows := 0;
  grown_bytes := 0;
  done := array_fill(false, ARRAY[n]);
  reasons := array_fill(NULL::text, ARRAY[n]);
  vals := reasons;
  versions := array_fill(NULL::bigint, ARRAY[n]);
  expires := versions;
  updated := versions;

  FOR i IN 1..n LOOP
    op := p_ops[i];
    IF op < 4 AND i > 1 AND (p_ops[i - 1] > 3 OR (p_namespaces[i - 1] COLLATE "C", p_keys[i - 1] COLLATE "C")
                                                 > (p_namespaces[i] COLLATE "C", p_keys[i] COLLATE "C")) THEN
      RAISE EXCEPTION 'kv_apply: operation % is out of order', i USING ERRCODE = 'invalid_parameter_value';
    END IF;
    ns := p_namespaces[i];
    k := p_keys[i];
    why := NULL;

    IF op = 0 THEN
      tries := 0;
      LOOP
        tries := tries + 1;
        IF tries > 100 THEN
          RAISE EXCEPTION 'kv_apply: a key comes and goes' USING ERRCODE = 'serialization_failure';
        END IF;
        IF p_required[i] THEN
          SELECT x.value, x.version, x.expires_at, x.updated_at INTO r
            FROM queen.kv x WHERE x.tenant_id = p_tenant AND x.namespace = ns AND x.key = k
             FOR UPDATE;
        ELSE
          SELECT x.value, x.version, x.expires_at, x.updated_at INTO r
            FROM queen.kv x WHERE x.tenant_id = p_tenant AND x.namespace = ns AND x.key = k;
        END IF;
        have := FOUND;
        EXIT WHEN have OR NOT p_required[i];
        INSERT INTO queen.kv (tenant_id, namespace, key, value, expires_at, created_at, updated_at)
          VALUES (p_tenant, ns, k, 'null', now_at, now_at, now_at)
          ON CONFLICT DO NOTHING;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM queen.kv x WHERE x.tenant_id = p_tenant AND x.namespace = ns AND x.key = k;
        EXIT;
      END LOOP;
      IF have AND (r.expires_at IS NULL OR r.expires_at > now_at) THEN
        done[i] := true;
        vals[i] := r.value::text;
        versions[i] := r.version;
        expires[i] := queen.micros(r.expires_at);
        updated[i] := queen.micros(r.updated_at);
        budget := budget - octet_length(vals[i]);
      END IF;

    ELSIF op < 4 THEN
      expect := p_expects[i];
      until := now_at + p_ttls[i] * interval '1 second';
      more_rows := 0;
      more_bytes := 0;

      -- A plain put and a putIfAbsent need no look before: one statement does it.
      IF op = 1 AND coalesce(expect, 0) = 0 AND NOT measure THEN
        INSERT INTO queen.kv AS x (tenant_id, namespace, key, value, expires_at, created_at, updated_at)
          VALUES (p_tenant, ns, k, p_values[i]::json, until, now_at, now_at)
          ON CONFLICT (tenant_id, namespace, key) DO UPDATE
            SET value = excluded.value, version = excluded.version, expires_at = excluded.expires_at,
                updated_at = now_at,
                created_at = CASE WHEN x.expires_at <= now_at THEN now_at ELSE x.created_at END
            WHERE expect IS NULL OR x.expires_at <= now_at
          RETURNING x.version INTO ver;
        IF FOUND THEN
          done[i] := true;
          versions[i] := ver;
          CONTINUE;
        END IF;
        -- A conflicting row is locked also when it is left as it is, so the next look finds it.
      END IF;

      tries := 0;
      LOOP
        tries := tries + 1;
        IF tries > 100 THEN
          RAISE EXCEPTION 'kv_apply: a key comes and goes' USING ERRCODE = 'serialization_failure';
        END IF;
        SELECT x.value, x.version, x.expires_at, x.created_at INTO r
          FROM queen.kv x
         WHERE x.tenant_id = p_tenant AND x.namespace = ns AND x.key = k
           FOR UPDATE;
        have := FOUND;
        live := have AND (r.expires_at IS NULL OR r.expires_at > now_at);
        why := NULL;
        val := NULL;

        IF expect = 0 THEN
          IF live THEN
            why := 'exists';
          END IF;
        ELSIF NOT live AND (expect > 0 OR op = 2) THEN
          why := 'absent';
        ELSIF expect > 0 AND r.version <> expect THEN
          why := 'version';
        END IF;
        IF op = 1 THEN
          val := p_values[i]::json;
        ELSIF op = 3 THEN
          IF live AND NOT queen.kv_countable(r.value) THEN
            why := 'type';
          ELSE
            sum_ := CASE WHEN live THEN r.value::text::numeric ELSE 0 END + p_values[i]::numeric;
            IF sum_ < p_mins[i]::numeric OR sum_ > p_maxs[i]::numeric THEN
              why := 'limit';
            END IF;
            val := sum_::text::json;
            -- A sum that outgrew what can be counted with would be stuck there.
            IF why IS NULL AND NOT queen.kv_countable(val) THEN
              why := 'limit';
            END IF;
            -- Only the creation states a life.
            IF live THEN
              until := r.expires_at;
            END IF;
          END IF;
        END IF;

        IF why IS NULL AND op <> 2 THEN
          IF measure THEN
            more_rows := CASE WHEN have THEN 0 ELSE 1 END;
            more_bytes := octet_length(val::text) - CASE WHEN have THEN octet_length(r.value::text) ELSE 0 END;
            IF (more_rows > 0 AND grown_rows + more_rows > p_rows_left)
               OR (more_bytes > 0 AND grown_bytes + more_bytes > p_bytes_left) THEN
              failed := i;
              failure := 'kv_quota_exceeded';
              RETURN;
            END IF;
          END IF;
          IF have THEN
            fresh := NOT live;
            UPDATE queen.kv x
               SET value = val, version = nextval('queen.kv_version'), expires_at = until, updated_at = now_at,
                   created_at = CASE WHEN fresh THEN now_at ELSE x.created_at END
             WHERE x.tenant_id = p_tenant AND x.namespace = ns AND x.key = k
            RETURNING x.version INTO ver;
          ELSE
            INSERT INTO queen.kv AS x (tenant_id, namespace, key, value, expires_at, created_at, updated_at)
              VALUES (p_tenant, ns, k, val, until, now_at, now_at)
              ON CONFLICT DO NOTHING
            RETURNING x.version INTO ver;
            -- Somebody was faster, and has committed.
            CONTINUE WHEN NOT FOUND;
          END IF;
          versions[i] := ver;
          IF op = 3 THEN
            vals[i] := val::text;
          END IF;
        ELSE
          IF live THEN
            versions[i] := r.version;
            vals[i] := r.value::text;
          ELSE
            versions[i] := 0;
          END IF;
          IF have AND op = 2 AND (why IS NULL OR NOT live) THEN
            DELETE FROM queen.kv x WHERE x.tenant_id = p_tenant AND x.namespace = ns AND x.key = k;
            IF measure THEN
              more_rows := -1;
              more_bytes := -octet_length(r.value::text);
            END IF;
          ELSIF NOT have AND p_guard THEN
            INSERT INTO queen.kv (tenant_id, namespace, key, value, expires_at, created_at, updated_at)
              VALUES (p_tenant, ns, k, 'null', now_at, now_at, now_at)
              ON CONFLICT DO NOTHING;
            CONTINUE WHEN NOT FOUND;
            DELETE FROM queen.kv x WHERE x.tenant_id = p_tenant AND x.namespace = ns AND x.key = k;
          END IF;
        END IF;
        EXIT;
      END LOOP;

      grown_rows := grown_rows + more_rows;
      grown_bytes := grown_bytes + more_bytes;
      done[i] := why IS NULL;
      reasons[i] := why;
      IF why IS NOT NULL AND p_required[i] THEN
        failed := i;
        failure := 'kv_precondition';
        RETURN;
      END IF;

    ELSIF op = 4 THEN
      more_rows := 0;
      FOR r IN
        SELECT x.key, x.value, x.version, x.expires_at, x.updated_at
          FROM queen.kv x
         WHERE x.tenant_id = p_tenant AND x.namespace = ns
           AND x.key = ANY (ARRAY(SELECT m.key FROM unnest(p_many_ops, p_many_keys) AS m (op, key) WHERE m.op = i))
           AND (x.expires_at IS NULL OR x.expires_at > now_at)
         ORDER BY x.key
      LOOP
        row_ops := row_ops || i;
        row_keys := row_keys || r.key;
        IF budget < 0 AND more_rows > 0 THEN
          IF cut IS NULL OR cut[cardinality(cut)] <> i THEN
            cut := cut || i;
          END IF;
          row_vals := row_vals || NULL::text;
          row_versions := row_versions || NULL::bigint;
          row_expires := row_expires || NULL::bigint;
          row_updated := row_updated || NULL::bigint;
        ELSE
          more_rows := more_rows + 1;
          row_vals := row_vals || r.value::text;
          row_versions := row_versions || r.version;
          row_expires := row_expires || queen.micros(r.expires_at);
          row_updated := row_updated || queen.micros(r.updated_at);
          budget := budget - octet_length(row_vals[cardinality(row_vals)]);
        END IF;
      END LOOP;

    ELSE
      FOR r IN
        SELECT * FROM queen.kv_scan(p_tenant, ns, k, p_maxs[i], p_values[i], p_limits[i], p_keys_only[i], false, now_at,
                                    greatest(budget, 0))
      LOOP
        row_ops := row_ops || i;
        row_keys := row_keys || r.key;
        row_vals := row_vals || r.value;
        row_versions := row_versions || r.version;
        row_expires := row_expires || queen.micros(r.expires_at);
        row_updated := row_updated || queen.micros(r.updated_at);
        budget := budget - coalesce(octet_length(r.value), 0);
        IF r.more THEN
          cut := cut || i;
        END IF;
      END LOOP;
    END IF;
  END LOOP;
END $$;

-- Deletes expired rows, at most p_limit. Rows that somebody holds are left to the next pass: nothing waits here. wait_ms:
-- until the next row expires, NULL when none ever will. left_over: the limit was reached; lag_ms: how late the latest was.
CREATE OR REPLACE FUNCTION queen.kv_expire(
  p_limit int, OUT deleted int, OUT left_over boolean, OUT lag_ms bigint, OUT wait_ms bigint
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  now_at timestamptz := queen.clock();
BEGIN
  WITH dead AS MATERIALIZED (
    SELECT d.tenant_id, d.namespace, d.key, d.expires_at
      FROM generate_series(0, 63) AS s (shard)
     CROSS JOIN LATERAL (
       SELECT x.tenant_id, x.namespace, x.key, x.expires_at FROM queen.kv x
        WHERE x.shard = s.shard AND x.expires_at <= now_at
        ORDER BY x.expires_at LIMIT p_limit
          FOR UPDATE SKIP LOCKED) d
     LIMIT p_limit
  ), gone AS (
    DELETE FROM queen.kv x USING dead d
     WHERE x.tenant_id = d.tenant_id AND x.namespace = d.namespace AND x.key = d.key AND x.expires_at <= now_at
    RETURNING x.expires_at
  )
  SELECT count(*), coalesce(extract(epoch FROM now_at - min(g.expires_at)) * 1000, 0)::bigint
    INTO deleted, lag_ms FROM gone g;
  left_over := deleted >= p_limit;
  SELECT CASE WHEN min(m.at) IS NOT NULL
              THEN greatest(0, extract(epoch FROM min(m.at) - now_at) * 1000)::bigint END INTO wait_ms
    FROM generate_series(0, 63) AS s (shard)
   CROSS JOIN LATERAL (SELECT min(x.expires_at) AS at FROM queen.kv x
                        WHERE x.shard = s.shard AND x.expires_at IS NOT NULL) m;
END $$;

-- Counts what every tenant stores. Above p_exact_max rows (by the planner's estimate) an eighth of the shards stands for
-- the whole. Answers the number of tenants.
CREATE OR REPLACE FUNCTION queen.kv_count_usage(p_exact_max bigint) RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  now_at timestamptz := queen.clock();
  sample boolean := coalesce((SELECT c.reltuples > p_exact_max FROM pg_class c WHERE c.oid = 'queen.kv'::regclass),
                             false);
  counted int;
BEGIN
  INSERT INTO queen.kv_usage AS u (tenant_id, computed_at, kv_rows, kv_bytes)
    SELECT t.tenant_id, now_at, coalesce(c.rows, 0), coalesce(c.bytes, 0)
      FROM (SELECT x.tenant_id, count(*) * CASE WHEN sample THEN 8 ELSE 1 END AS rows,
                   sum(octet_length(x.value::text)) * CASE WHEN sample THEN 8 ELSE 1 END AS bytes
              FROM queen.kv x WHERE NOT sample OR x.shard < 8
             GROUP BY x.tenant_id) c
      -- Who stores nothing (any more) is counted with zero: brokers wait for a count to forget what they added.
      FULL JOIN (SELECT tenant_id FROM queen.kv_usage UNION SELECT tenant_id FROM queen.kv_quota) o
             ON o.tenant_id = c.tenant_id
     CROSS JOIN LATERAL (SELECT coalesce(c.tenant_id, o.tenant_id) AS tenant_id) t
     ORDER BY t.tenant_id
    ON CONFLICT (tenant_id) DO UPDATE
      SET computed_at = excluded.computed_at, kv_rows = excluded.kv_rows, kv_bytes = excluded.kv_bytes;
  GET DIAGNOSTICS counted = ROW_COUNT;
  RETURN counted;
END $$;
