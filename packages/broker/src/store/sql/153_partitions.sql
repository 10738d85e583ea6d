-- Partitions of a queue for a person who looks: pages of them, live, and one with all who consume it.

-- The counters of these partitions of one queue, in the order given. Only they are counted; which cursors count depends
-- on whether the queue has a named group, which one partition may not tell.
CREATE OR REPLACE FUNCTION queen.partition_figures(p_queue_id bigint, p_ids bigint[])
RETURNS TABLE (id bigint, name text, total bigint, pending bigint, processing bigint, dead bigint, consumed bigint,
               last_write_at timestamptz, oldest_at timestamptz, newest_at timestamptz)
LANGUAGE sql STABLE AS $$
  WITH named AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM queen.log_partitions p JOIN queen.log_consumers c ON c.partition_id = p.id
                    WHERE p.queue_id = p_queue_id AND c.consumer_group <> '__QUEUE_MODE__') AS yes
  )
  SELECT p.id, p.name::text, p.last_offset - p.log_start + 1, p.last_offset - coalesce(f.done, p.log_start - 1),
         least(coalesce(f.leased, 0), p.last_offset - coalesce(f.done, p.log_start - 1)),
         (SELECT count(*) FROM queen.log_dlq d WHERE d.partition_id = p.id), coalesce(f.consumed, 0), p.last_write_at,
         p.oldest_live_at, CASE WHEN p.log_start <= p.last_offset THEN p.last_created_at END
    FROM unnest(p_ids) WITH ORDINALITY AS w (id, seq)
    JOIN queen.log_partitions p ON p.id = w.id AND p.queue_id = p_queue_id
    LEFT JOIN LATERAL (
      SELECT min(greatest(c.committed, p.log_start - 1)) FILTER (WHERE c.counts) AS done, sum(c.total_consumed)::bigint AS consumed,
             max(CASE WHEN c.live THEN greatest(c.batch_end - greatest(c.committed, p.log_start - 1), 0) END)
               FILTER (WHERE c.counts) AS leased
        FROM (SELECT l.committed, l.batch_end, l.total_consumed,
                     l.worker_id IS NOT NULL AND l.lease_expires_at > t.now AS live,
                     l.consumer_group <> '__QUEUE_MODE__' OR NOT (SELECT n.yes FROM named n) AS counts
                FROM (SELECT queen.clock() AS now) AS t, queen.log_consumers l WHERE l.partition_id = p.id) AS c
    ) AS f ON true
   ORDER BY w.seq
$$;

-- One page of the partitions whose name holds p_search (NULL: all), in whatever case; by 'name', 'lastActivity' or
-- 'pending'. The first two are read in the order of an index; the third one counts every partition, like queue_totals.
CREATE OR REPLACE FUNCTION queen.queue_page(p_tenant uuid, p_queue_id bigint, p_search text, p_sort text,
                                            p_descending boolean, p_limit int, p_skip bigint)
RETURNS TABLE (id bigint, name text, total bigint, pending bigint, processing bigint, dead bigint, consumed bigint,
               last_write_at timestamptz, oldest_at timestamptz, newest_at timestamptz)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  v_ids  bigint[];
  v_way  text := CASE WHEN p_descending THEN 'DESC' ELSE 'ASC' END;
  v_from text := 'queen.log_partitions p';
  v_by   text := 'p.name ' || v_way;
BEGIN
  IF p_sort = 'pending' THEN
    v_from := 'queen.partition_counts($1, $2, NULL) c JOIN queen.log_partitions p ON p.id = c.partition_id';
    v_by := 'c.pending ' || v_way || ', p.name';
  ELSIF p_sort = 'lastActivity' THEN
    v_by := 'p.last_write_at ' || v_way || ', p.id ' || v_way;
  END IF;
  EXECUTE format(
    'SELECT ARRAY(SELECT p.id FROM %s
       WHERE p.queue_id = $2 AND ($3 IS NULL OR position(lower($3) IN lower(p.name)) > 0)
       ORDER BY %s LIMIT $4 OFFSET $5)', v_from, v_by)
    INTO v_ids USING p_tenant, p_queue_id, p_search, p_limit, p_skip;
  RETURN QUERY SELECT f.* FROM queen.partition_figures(p_queue_id, v_ids) f;
END $$;

-- How many partitions have a name that holds p_search.
CREATE OR REPLACE FUNCTION queen.queue_matches(p_queue_id bigint, p_search text) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT count(*) FROM queen.log_partitions p
   WHERE p.queue_id = p_queue_id AND position(lower(p_search) IN lower(p.name)) > 0
$$;

-- One partition with its bounds; no row when there is none. `next_offset` is what the next message gets.
CREATE OR REPLACE FUNCTION queen.partition_read(p_tenant uuid, p_queue text, p_partition text)
RETURNS TABLE (log_start bigint, next_offset bigint, created_at timestamptz, id bigint, name text, total bigint, pending bigint,
               processing bigint, dead bigint, consumed bigint, last_write_at timestamptz, oldest_at timestamptz,
               newest_at timestamptz)
LANGUAGE sql STABLE AS $$
  SELECT p.log_start, p.last_offset + 1, p.created_at, f.*
    FROM queen.queues q
    JOIN queen.log_partitions p ON p.queue_id = q.id AND p.name = p_partition
   CROSS JOIN LATERAL queen.partition_figures(q.id, ARRAY[p.id]) f
   WHERE q.tenant_id = p_tenant AND q.name = p_queue
$$;

-- Everybody who consumes a partition, and where they are in it. `behind` counts what is retained above the cursor.
CREATE OR REPLACE FUNCTION queen.partition_cursors(p_partition bigint)
RETURNS TABLE (consumer_group text, next_offset bigint, behind bigint, consumed bigint, lease_upto bigint,
               lease_expires_at timestamptz, worker_id text)
LANGUAGE sql STABLE AS $$
  SELECT c.consumer_group::text, greatest(c.committed + 1, p.log_start),
         p.last_offset - greatest(c.committed, p.log_start - 1), c.total_consumed,
         CASE WHEN live.is THEN c.batch_end END, CASE WHEN live.is THEN c.lease_expires_at END,
         CASE WHEN live.is THEN c.worker_id END
    FROM (SELECT queen.clock() AS now) t
   CROSS JOIN queen.log_partitions p
    JOIN queen.log_consumers c ON c.partition_id = p.id
   CROSS JOIN LATERAL (SELECT c.worker_id IS NOT NULL AND c.batch_end IS NOT NULL AND c.lease_expires_at > t.now AS is) live
   WHERE p.id = p_partition
   ORDER BY c.consumer_group
$$;

-- Where a transactionId (by its hash) is stored, over the partitions of a tenant or of one of its queues, the newest first;
-- and where dead letters keep it. The bytes of a sidecar row are searched before it is taken apart, see message_locate.
CREATE OR REPLACE FUNCTION queen.message_find(p_tenant uuid, p_queue text, p_hash bytea, p_transaction_id text, p_limit int)
RETURNS TABLE (queue text, partition text, partition_id bigint, at_offset bigint, at timestamptz, dead boolean)
LANGUAGE sql STABLE AS $$
  WITH parts AS (
    SELECT q.name::text AS queue, p.name::text AS name, p.id
      FROM queen.queues q JOIN queen.log_partitions p ON p.queue_id = q.id
     WHERE q.tenant_id = p_tenant AND (p_queue IS NULL OR q.name = p_queue)
  ), stored AS (
    SELECT x.queue, x.name, x.id, t.base_offset + u.idx AS at_offset, t.created_at AS at
      FROM parts x
      JOIN queen.log_txns t ON t.partition_id = x.id AND position(p_hash IN t.hashes) > 0
     CROSS JOIN LATERAL queen.log_unnest_hashes(t.hashes) u
     WHERE u.h = p_hash
  ), dead AS (
    SELECT x.queue, x.name, x.id, d."offset" AS at_offset, max(d.failed_at) AS at
      FROM parts x
      JOIN queen.log_dlq d ON d.partition_id = x.id
       AND hashtextextended(d.transaction_id, 0) = hashtextextended(p_transaction_id, 0)
       AND d.transaction_id = p_transaction_id
     GROUP BY x.queue, x.name, x.id, d."offset"
  )
  SELECT coalesce(s.queue, d.queue), coalesce(s.name, d.name), coalesce(s.id, d.id), coalesce(s.at_offset, d.at_offset),
         coalesce(s.at, d.at), d.id IS NOT NULL
    FROM stored s FULL JOIN dead d ON d.id = s.id AND d.at_offset = s.at_offset
   ORDER BY 5 DESC, 3, 4 DESC LIMIT p_limit
$$;
