-- Dead letters: reading, removing, replaying. They get in by the hand-off of an ack (030) and, for timers that cannot
-- be fired, by their sweeper. No retention touches them; they go by one of the ways here or with their queue.
--
-- A dead letter belongs to whoever owns the queue of its partition. There is no other tenant column, and a partition
-- with dead letters is never cleaned up.
--
-- Lock order: a dead letter is a leaf, so its lock is the last that a path takes. Whoever takes several takes them by
-- ascending id, and holds KEY SHARE on the queue row first: the deletion of a queue removes its dead letters in no
-- order, and must be over, or not have begun.

-- The newest first, whatever they belong to.
CREATE INDEX IF NOT EXISTS idx_log_dlq_failed_at ON queen.log_dlq (failed_at, id);
-- The status of a message asks by offset.
CREATE INDEX IF NOT EXISTS idx_log_dlq_partition_offset ON queen.log_dlq (partition_id, "offset");
-- By message. Over a hash, since a transactionId may be longer than an index row.
CREATE INDEX IF NOT EXISTS idx_log_dlq_partition_txn
  ON queen.log_dlq (partition_id, hashtextextended(transaction_id, 0));

-- What a list may show of a dead letter, for all that a filter lets through; NULL: everything. One SELECT, so that it
-- is inlined where it is used and the payload is only read for the rows of the page.
CREATE OR REPLACE FUNCTION queen.dlq_rows(
  p_tenant uuid, p_queue text, p_partition text, p_group text, p_from timestamptz, p_to timestamptz
) RETURNS TABLE (id uuid, partition_id bigint, queue text, partition text, consumer_group text, "position" bigint,
                 message_id uuid, transaction_id text, payload bytea, error text, retry_count int, failed_at timestamptz)
LANGUAGE sql STABLE AS $$
  SELECT d.id, d.partition_id, q.name::text, p.name::text, d.consumer_group::text, d."offset", d.message_id,
         d.transaction_id, d.payload, d.error, d.retry_count, d.failed_at
    FROM queen.log_dlq d
    JOIN queen.log_partitions p ON p.id = d.partition_id
    JOIN queen.queues q ON q.id = p.queue_id
   WHERE q.tenant_id = p_tenant
     AND (p_queue IS NULL OR q.name = p_queue)
     AND (p_partition IS NULL OR p.name = p_partition)
     AND (p_group IS NULL OR d.consumer_group = p_group)
     AND (p_from IS NULL OR d.failed_at >= p_from)
     AND (p_to IS NULL OR d.failed_at <= p_to)
$$;

-- One page, the newest failure first, and in every row how many there are in all. `payload` is NULL and `omitted` true
-- once the payloads before it come to more than p_bytes: the first one is always there, unless p_bytes is below 0. Without
-- a row nothing matches, or the page lies behind the end. Planned anew each time: which filters are given makes all the difference.
CREATE OR REPLACE FUNCTION queen.dlq_list(
  p_tenant uuid, p_queue text, p_partition text, p_group text, p_from timestamptz, p_to timestamptz,
  p_limit int, p_skip bigint, p_bytes bigint
) RETURNS TABLE (id uuid, partition_id bigint, queue text, partition text, consumer_group text, transaction_id text,
                 payload bytea, omitted boolean, error text, retry_count int, failed_at timestamptz, total bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
  v_total bigint;
BEGIN
  SELECT count(*) INTO v_total FROM queen.dlq_rows(p_tenant, p_queue, p_partition, p_group, p_from, p_to) r;
  RETURN QUERY
    WITH page AS MATERIALIZED (
      SELECT r.id, r.failed_at FROM queen.dlq_rows(p_tenant, p_queue, p_partition, p_group, p_from, p_to) r
       ORDER BY r.failed_at DESC, r.id DESC LIMIT p_limit OFFSET p_skip
    ), sized AS (
      SELECT g.id, sum(coalesce(octet_length(d.payload), 0)) OVER w - coalesce(octet_length(d.payload), 0) AS before
        FROM page g JOIN queen.log_dlq d ON d.id = g.id
      WINDOW w AS (ORDER BY g.failed_at DESC, g.id DESC)
    )
    SELECT d.id, d.partition_id, q.name::text, p.name::text, d.consumer_group::text, d.transaction_id,
           CASE WHEN s.before <= p_bytes THEN d.payload END, s.before > p_bytes AND d.payload IS NOT NULL,
           d.error, d.retry_count, d.failed_at, v_total
      FROM sized s
      JOIN queen.log_dlq d ON d.id = s.id
      JOIN queen.log_partitions p ON p.id = d.partition_id
      JOIN queen.queues q ON q.id = p.queue_id
     ORDER BY d.failed_at DESC, d.id DESC;
END $$;

-- The dead letter that a message's address means: its newest. A timer that could not be fired (group `__timer__`) was
-- never in a log, so it only stands for the address when there is nothing else.
CREATE OR REPLACE FUNCTION queen.dlq_find(p_tenant uuid, p_partition bigint, p_transaction_id text) RETURNS uuid
LANGUAGE sql STABLE AS $$
  SELECT d.id
    FROM queen.log_dlq d
    JOIN queen.log_partitions p ON p.id = d.partition_id
    JOIN queen.queues q ON q.id = p.queue_id
   WHERE d.partition_id = p_partition AND q.tenant_id = p_tenant
     AND hashtextextended(d.transaction_id, 0) = hashtextextended(p_transaction_id, 0)
     AND d.transaction_id = p_transaction_id
   ORDER BY d.consumer_group = '__timer__', d.failed_at DESC, d.id DESC
   LIMIT 1
$$;

-- One dead letter with where it came from; no row: there is none, or it is somebody else's.
CREATE OR REPLACE FUNCTION queen.dlq_get(p_tenant uuid, p_id uuid)
RETURNS TABLE (queue text, partition text, encrypts boolean, consumer_group text, transaction_id text, payload bytea)
LANGUAGE sql STABLE AS $$
  SELECT q.name::text, p.name::text, q.encryption_enabled, d.consumer_group::text, d.transaction_id, d.payload
    FROM queen.log_dlq d
    JOIN queen.log_partitions p ON p.id = d.partition_id
    JOIN queen.queues q ON q.id = p.queue_id
   WHERE d.id = p_id AND q.tenant_id = p_tenant
$$;

-- Removes the dead letters of a message, those of all groups. Returns how many there were.
CREATE OR REPLACE FUNCTION queen.dlq_delete_message(p_tenant uuid, p_partition bigint, p_transaction_id text)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_deleted bigint;
BEGIN
  PERFORM FROM queen.queues q
    WHERE q.id = (SELECT p.queue_id FROM queen.log_partitions p WHERE p.id = p_partition) AND q.tenant_id = p_tenant
      FOR KEY SHARE;
  IF NOT FOUND THEN RETURN 0; END IF;
  WITH doomed AS MATERIALIZED (
    SELECT d.id FROM queen.log_dlq d
     WHERE d.partition_id = p_partition
       AND hashtextextended(d.transaction_id, 0) = hashtextextended(p_transaction_id, 0)
       AND d.transaction_id = p_transaction_id
     ORDER BY d.id FOR UPDATE
  )
  DELETE FROM queen.log_dlq d USING doomed x WHERE d.id = x.id;
  GET DIAGNOSTICS v_deleted = ROW_COUNT;
  RETURN v_deleted;
END $$;

-- Removes all dead letters of a queue, or one group's. Returns how many there were.
CREATE OR REPLACE FUNCTION queen.dlq_purge(p_tenant uuid, p_queue text, p_group text)
RETURNS bigint LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_queue   bigint;
  v_deleted bigint;
BEGIN
  SELECT q.id INTO v_queue FROM queen.queues q WHERE q.tenant_id = p_tenant AND q.name = p_queue FOR KEY SHARE;
  IF NOT FOUND THEN RETURN 0; END IF;
  WITH doomed AS MATERIALIZED (
    SELECT d.id FROM queen.log_dlq d
     WHERE d.partition_id IN (SELECT p.id FROM queen.log_partitions p WHERE p.queue_id = v_queue)
       AND (p_group IS NULL OR d.consumer_group = p_group)
     ORDER BY d.id FOR UPDATE
  )
  DELETE FROM queen.log_dlq d USING doomed x WHERE d.id = x.id;
  GET DIAGNOSTICS v_deleted = ROW_COUNT;
  RETURN v_deleted;
END $$;

-- The replay: a dead letter moves to the tail of a partition, as the message with transactionId `dlq:<its id>`.
--
-- The invariant: the message is there and the row is gone, or neither. Of any number of concurrent replays of a row,
-- one moves it.
--
-- The argument: both happen in the one transaction that this call is. The allocator locks the destination, and that may
-- be a different one for each caller, so it is the DELETE that decides between them: the second waits for the first
-- one's commit, finds nothing to delete, and takes its own append back by raising. Two callers with the same destination
-- meet at the allocator already; there the second finds the first one's message in the window and looks whether the row
-- is still there, since an id that is stored while the row exists was pushed by somebody who guessed it.
--
-- Nothing vouches for the destination (p_verified -1), and its own window decides.
--
--   p_partition  the destination, of the caller's tenant
--   p_encrypts   what the frame was packed for
-- outcome: 0 moved, 1 the destination's window holds that id (at base_offset) and the row is kept,
--          2 no such destination (any more). By SQLSTATE, everything rolled back: QD004 no such row (any more),
--          QD005 the destination wants its payloads otherwise than they were packed.
CREATE OR REPLACE FUNCTION queen.dlq_replay(
  p_id uuid, p_partition bigint, p_encrypts boolean, p_hashes bytea, p_blob bytea,
  OUT outcome int, OUT base_offset bigint, OUT created timestamptz, OUT window_seconds int
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  a record;
BEGIN
  SELECT l.* INTO a FROM queen.log_append(p_partition, 1, -1, NULL, p_hashes, p_blob) l;
  outcome := a.verdict;
  base_offset := a.base_offset;
  created := a.created;
  window_seconds := a.window_seconds;
  IF outcome = 1 THEN
    IF NOT EXISTS (SELECT FROM queen.log_dlq d WHERE d.id = p_id) THEN
      RAISE EXCEPTION 'the dead letter % is gone', p_id USING ERRCODE = 'QD004';
    END IF;
    base_offset := a.dup_offsets[1];
  ELSIF outcome = 0 THEN
    IF a.encrypts IS DISTINCT FROM p_encrypts THEN
      RAISE EXCEPTION 'the encryption of the destination has changed' USING ERRCODE = 'QD005';
    END IF;
    DELETE FROM queen.log_dlq d WHERE d.id = p_id;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'the dead letter % is gone', p_id USING ERRCODE = 'QD004';
    END IF;
  ELSIF outcome <> 2 THEN
    RAISE EXCEPTION 'dlq_replay: verdict %', outcome USING ERRCODE = 'internal_error';
  END IF;
END $$;
