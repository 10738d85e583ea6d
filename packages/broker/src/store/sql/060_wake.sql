-- Waking parked pops when notifications are lost, and sending them.

-- The one statement that a broker with parked pops runs, at most once a second, however many they are: what was
-- written to the queues that somebody waits for. last_write_at moves at most once a second and is set before the
-- commit, so callers look three seconds further back than their previous look; a partition shows up in a few looks
-- in a row, and the index ignores what it knows.
--   p_tenants, p_queues   the queues by name, p_known the ids that the broker has for them (0: none),
--   p_since               where to start, microseconds each; negative: so far back from now
--   p_scope_*             discovery scopes ('' = any), p_scope_since where to start for their queues
-- The first row (tenant NULL) tells the time. Others: a queue with recent writes, or whose id is another than the
-- known one. `truncated`: more than p_limit partitions were written, read the queue in full.
CREATE OR REPLACE FUNCTION queen.log_wake_scan(
  p_tenants uuid[], p_queues text[], p_known bigint[], p_since bigint[],
  p_scope_tenants uuid[], p_scope_namespaces text[], p_scope_tasks text[], p_scope_since bigint, p_limit int
) RETURNS TABLE (
  tenant uuid, queue text, queue_id bigint, now_at bigint, created_at bigint, truncated boolean,
  ids bigint[], lasts bigint[]
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now bigint := queen.micros(queen.clock());
BEGIN
  now_at := v_now;
  RETURN NEXT;
  RETURN QUERY
    WITH wanted AS (
      SELECT q.id, q.tenant_id, q.name, q.created_at, w.known, w.since
        FROM unnest(p_tenants, p_queues, p_known, p_since) AS w (tenant_id, name, known, since)
        JOIN queen.queues q ON q.tenant_id = w.tenant_id AND q.name = w.name
      UNION ALL
      SELECT DISTINCT ON (q.id) q.id, q.tenant_id, q.name, q.created_at, q.id, p_scope_since
        FROM unnest(p_scope_tenants, p_scope_namespaces, p_scope_tasks) AS s (tenant_id, namespace, task)
        JOIN queen.queues q ON q.tenant_id = s.tenant_id
                           AND s.namespace IN ('', q.namespace) AND s.task IN ('', q.task)
       WHERE NOT EXISTS (SELECT FROM unnest(p_tenants, p_queues) AS w (tenant_id, name)
                          WHERE w.tenant_id = q.tenant_id AND w.name = q.name)
    )
    SELECT w.tenant_id, w.name::text, w.id, v_now, queen.micros(w.created_at), n.seen >= p_limit,
           n.ids, n.lasts
      FROM wanted w
     CROSS JOIN LATERAL (
       SELECT count(*) AS seen, array_agg(r.id) AS ids, array_agg(r.last_offset) AS lasts
         FROM (SELECT p.id, p.last_offset FROM queen.log_partitions p
                WHERE p.queue_id = w.id AND p.last_write_at >= queen.from_micros(CASE WHEN w.since < 0 THEN v_now + w.since ELSE w.since END) AND p.last_offset >= 0
                ORDER BY p.last_write_at DESC LIMIT p_limit) r) n
     WHERE n.seen > 0 OR w.known <> w.id;
END $$;

-- Sends payloads (each below 8000 bytes) to every broker that listens. Never called inside a transaction that
-- writes: NOTIFY takes a lock of the whole cluster at commit.
CREATE OR REPLACE FUNCTION queen.log_wake_notify(p_payloads text[]) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_notify('queen_wake', p) FROM unnest(p_payloads) AS p;
  RETURN cardinality(p_payloads);
END $$;
