-- Reading a partition's deduplication window into a broker's cache.
--
-- Both functions are single statements of a STABLE function, so all they answer is of one snapshot: no row at or
-- below the `last_offset` that comes with it can be missing, which is what a cache needs to be able to say "not there".
--
-- The window is measured back from the partition's newest created_at, not from the clock: a later probe measures from
-- the same value or a later one (the allocator never stamps an earlier time), whatever the server's clock does in
-- between. Five seconds of slack on top only make the answer larger.

-- The rows of one partition with a base above p_after and an end at or below p_last, ascending: as many as fit into
-- p_page_bytes of hashes (at least one), p_page_rows at most.
CREATE OR REPLACE FUNCTION queen.dedup_window_next(p_partition bigint, p_after bigint, p_last bigint, p_page_rows int, p_page_bytes int)
RETURNS TABLE (base_offset bigint, end_offset bigint, created_at timestamptz, hashes bytea)
LANGUAGE sql STABLE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
  SELECT n.base_offset, n.end_offset, n.created_at, n.hashes
    FROM (SELECT t.base_offset, t.end_offset, t.created_at, t.hashes,
                 sum(octet_length(t.hashes)) OVER (ORDER BY t.base_offset) - octet_length(t.hashes) AS bytes_before
            FROM (SELECT x.base_offset, x.end_offset, x.created_at, x.hashes FROM queen.log_txns x
                   WHERE x.partition_id = p_partition AND x.base_offset > p_after AND x.end_offset <= p_last
                   ORDER BY x.base_offset LIMIT p_page_rows) t) n
   WHERE n.bytes_before < p_page_bytes
   ORDER BY n.base_offset
$$;

-- For each requested partition that exists one row, or as many as the first page of its window has:
--   seq           position of the request, from 1
--   last_offset   the allocator at this snapshot
--   total         hashes in the whole window
--   base_offset…  a row of the sidecar, NULL for an empty window; ascending; rows up to p_page_bytes of hashes
CREATE OR REPLACE FUNCTION queen.dedup_window_open(p_partitions bigint[], p_windows int[], p_page_rows int, p_page_bytes int)
RETURNS TABLE (seq int, last_offset bigint, total bigint, base_offset bigint, end_offset bigint, created bigint, hashes bytea)
LANGUAGE sql STABLE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
  SELECT w.seq::int, p.last_offset, s.total, r.base_offset, r.end_offset, queen.micros(r.created_at), r.hashes
    FROM unnest(p_partitions, p_windows) WITH ORDINALITY AS w (id, window_seconds, seq)
    JOIN queen.log_partitions p ON p.id = w.id
   -- created_at never decreases with the offset: the newest row before the window is found by walking back.
   CROSS JOIN LATERAL (
     SELECT coalesce((SELECT t.base_offset FROM queen.log_txns t
                       WHERE t.partition_id = p.id
                         AND t.created_at < p.last_created_at - make_interval(secs => w.window_seconds + 5)
                       ORDER BY t.base_offset DESC LIMIT 1), -1) AS before) b
   CROSS JOIN LATERAL (
     SELECT coalesce(sum(octet_length(t.hashes)), 0) / 16 AS total FROM queen.log_txns t
      WHERE t.partition_id = p.id AND t.base_offset > b.before) s
    LEFT JOIN LATERAL queen.dedup_window_next(p.id, b.before, p.last_offset, p_page_rows, p_page_bytes) r ON true
   ORDER BY w.seq, r.base_offset
$$;
