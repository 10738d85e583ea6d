-- What the brokers' in-memory ready indexes are rebuilt from. Everything here only reads: the index is a hint, the
-- claim decides.

-- One page of a queue's partitions by name, `p_limit` of them looked at. Lists those that are pending for the
-- group: last_offset, the position (everything at or below is done or gone), and for how long they are leased
-- (0: not). next_name NULL: that was the last page.
CREATE OR REPLACE FUNCTION queen.log_hotlist_page(
  p_queue bigint, p_group text, p_after text, p_limit int,
  OUT next_name text, OUT ids bigint[], OUT lasts bigint[], OUT positions bigint[], OUT leased_us bigint[],
  OUT leased_to bigint[]
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now timestamptz := queen.clock();
BEGIN
  WITH page AS MATERIALIZED (
    SELECT p.id, p.name, p.last_offset, p.log_start FROM queen.log_partitions p
     WHERE p.queue_id = p_queue AND p.name > p_after
     ORDER BY p.name LIMIT p_limit
  ), pending AS (
    SELECT g.id, g.last_offset, GREATEST(c.committed, g.log_start - 1) AS pos,
           CASE WHEN c.worker_id IS NOT NULL AND c.batch_end IS NOT NULL AND c.lease_expires_at > v_now
                THEN queen.micros(c.lease_expires_at) - queen.micros(v_now) ELSE 0 END AS leased,
           COALESCE(c.batch_end, -1) AS upto
      FROM page g
      LEFT JOIN queen.log_consumers c ON c.partition_id = g.id AND c.consumer_group = p_group
     WHERE g.last_offset > COALESCE(c.committed, -1)
  )
  SELECT (SELECT CASE WHEN count(*) = p_limit THEN max(g.name) END FROM page g),
         array_agg(n.id), array_agg(n.last_offset), array_agg(n.pos), array_agg(n.leased), array_agg(n.upto)
    INTO next_name, ids, lasts, positions, leased_us, leased_to
    FROM pending n;
END $$;

-- The same for many (queue, group) at once, over the partitions written at or after `p_since` (microseconds): an
-- index range each. Rows only for rings with something pending; `truncated`: more than p_limit were written, read
-- the queue in full.
CREATE OR REPLACE FUNCTION queen.log_hotlist_recent(p_queues bigint[], p_groups text[], p_since bigint, p_limit int)
RETURNS TABLE (ring int, truncated boolean, ids bigint[], lasts bigint[], positions bigint[], leased_us bigint[],
               leased_to bigint[])
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now   timestamptz := queen.clock();
  v_since timestamptz := queen.from_micros(p_since);
BEGIN
  RETURN QUERY
    SELECT w.seq::int - 1, n.seen >= p_limit, n.ids, n.lasts, n.pos, n.leased, n.upto
      FROM unnest(p_queues, p_groups) WITH ORDINALITY AS w (queue_id, consumer_group, seq)
     CROSS JOIN LATERAL (
       SELECT count(*) AS seen,
              array_agg(g.id) FILTER (WHERE g.pending) AS ids,
              array_agg(g.last_offset) FILTER (WHERE g.pending) AS lasts,
              array_agg(g.pos) FILTER (WHERE g.pending) AS pos,
              array_agg(g.leased) FILTER (WHERE g.pending) AS leased,
              array_agg(g.upto) FILTER (WHERE g.pending) AS upto
         FROM (SELECT p.id, p.last_offset, p.last_offset > COALESCE(c.committed, -1) AS pending,
                      GREATEST(c.committed, p.log_start - 1) AS pos, COALESCE(c.batch_end, -1) AS upto,
                      CASE WHEN c.worker_id IS NOT NULL AND c.batch_end IS NOT NULL AND c.lease_expires_at > v_now
                           THEN queen.micros(c.lease_expires_at) - queen.micros(v_now) ELSE 0 END AS leased
                 FROM (SELECT x.id, x.last_offset, x.log_start FROM queen.log_partitions x
                        WHERE x.queue_id = w.queue_id AND x.last_write_at >= v_since
                        ORDER BY x.last_write_at DESC LIMIT p_limit) p
                 LEFT JOIN queen.log_consumers c ON c.partition_id = p.id AND c.consumer_group = w.consumer_group) g) n
     WHERE n.ids IS NOT NULL OR n.seen >= p_limit;
END $$;

-- The repairs that seeks and deletions of groups have published, with the partition's id where one is named.
CREATE OR REPLACE FUNCTION queen.log_hotlist_repairs()
RETURNS TABLE (tenant uuid, queue text, consumer_group text, partition_name text, partition_id bigint, repair_at bigint)
LANGUAGE sql STABLE AS $$
  SELECT r.tenant_id, r.queue_name::text, r.consumer_group::text, r.partition_name::text, p.id, queen.micros(r.repair_at)
    FROM queen.hotlist_repairs r
    LEFT JOIN queen.queues q ON q.tenant_id = r.tenant_id AND q.name = r.queue_name
    LEFT JOIN queen.log_partitions p ON p.queue_id = q.id AND p.name = r.partition_name
$$;
