-- The second half of dead-lettering. log_ack decided that the message at `p_offset` goes to the dead letters and kept
-- the lease, so that nobody could claim the head while the broker read and decoded the message. Here the row and
-- the cursor move together.
--
-- Exactly once: the consumer row is locked, and the hand-off applies only while the row still looks as the decision left
-- it (the same holder, a batch that covers the offset, a cursor below it). A second call finds one of the three gone. If
-- the broker dies between the halves, the lease expires, the message comes again with its budget spent as it was,
-- and whoever gets it decides anew.
--
--   p_holder    the holder that the decision saw (also for a lease-less ack: another worker may have claimed since)
--   p_fenced    the ack named a lease: it must be live still
--   p_payload   as stored (an encrypted one stays encrypted); NULL when retention has taken the message
-- outcome: 0 done, 3 the lease is not the live one, 4 no such consumer (or not this tenant's), 8 at or below the cursor
CREATE OR REPLACE FUNCTION queen.log_ack_hand_off(
  p_tenant uuid, p_partition bigint, p_group text, p_holder text, p_fenced boolean, p_offset bigint,
  p_message_id uuid, p_transaction_id text, p_payload bytea, p_error text,
  OUT outcome int, OUT backlog boolean, OUT conflated bigint
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  r queen.log_consumers;
BEGIN
  backlog := false;
  SELECT k.* INTO r
    FROM queen.log_consumers k
    JOIN queen.log_partitions p ON p.id = k.partition_id
    JOIN queen.queues q ON q.id = p.queue_id AND q.tenant_id = p_tenant
   WHERE k.partition_id = p_partition AND k.consumer_group = p_group
     FOR UPDATE OF k;
  IF NOT FOUND THEN
    outcome := 4;
  ELSIF NOT p_fenced AND p_offset <= r.committed THEN
    outcome := 8;
  ELSIF r.batch_end IS NULL OR r.worker_id IS DISTINCT FROM p_holder OR p_offset > r.batch_end
        OR (p_fenced AND (r.lease_expires_at IS NULL OR r.lease_expires_at <= queen.clock())) THEN
    outcome := 3;
  ELSIF p_offset <= r.committed THEN
    outcome := 8;
  ELSE
    outcome := 0;
    UPDATE queen.log_consumers k
       SET committed = p_offset, total_consumed = k.total_consumed + 1,
           batch_retry_count = 0, attempt_offset = NULL, attempt_count = 0,
           batch_end = NULL, worker_id = NULL, lease_expires_at = NULL, lease_acquired_at = NULL,
           lease_conflated = false
     WHERE k.partition_id = p_partition AND k.consumer_group = p_group;
    INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", message_id, transaction_id, payload, error,
                               retry_count)
    VALUES (p_partition, p_group, p_offset, p_message_id, p_transaction_id, p_payload, p_error, r.batch_retry_count);
    SELECT p.last_offset > p_offset,
           CASE WHEN r.lease_conflated THEN greatest(0, p_offset - greatest(r.committed, p.log_start - 1) - 1) END
      INTO backlog, conflated
      FROM queen.log_partitions p WHERE p.id = p_partition;
  END IF;
END $$;
