-- Lengthens all live leases of one lease id, never shortens one and never brings an expired one back.
--
-- A lease id belongs to one pop, which may have claimed many partitions. There is no index on worker_id: it would make
-- every claim and every ack a non-HOT update. A broker that remembers which rows the pop claimed names them
-- (p_partitions, p_groups) and costs one look-up a row; without them (NULL) the consumer rows are scanned.
CREATE OR REPLACE FUNCTION queen.log_lease_extend(
  p_tenant uuid, p_lease text, p_seconds int, p_partitions bigint[], p_groups text[],
  OUT renewed int, OUT expires_at bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  parts   bigint[];
  grps    text[];
  at_     timestamptz;
  expiry_ timestamptz;
  least_  timestamptz;
BEGIN
  renewed := 0;
  IF p_partitions IS NULL THEN
    SELECT array_agg(f.partition_id), array_agg(f.consumer_group) INTO parts, grps
      FROM (SELECT k.partition_id, k.consumer_group
              FROM queen.log_consumers k
              JOIN queen.log_partitions p ON p.id = k.partition_id
              JOIN queen.queues q ON q.id = p.queue_id AND q.tenant_id = p_tenant
             WHERE k.worker_id = p_lease
             ORDER BY k.partition_id, k.consumer_group) f;
  ELSE
    SELECT array_agg(f.part), array_agg(f.grp) INTO parts, grps
      FROM (SELECT u.part, u.grp
              FROM unnest(p_partitions, p_groups) AS u (part, grp)
              JOIN queen.log_partitions p ON p.id = u.part
              JOIN queen.queues q ON q.id = p.queue_id AND q.tenant_id = p_tenant
             ORDER BY u.part, u.grp) f;
  END IF;
  FOR i IN 1..coalesce(cardinality(parts), 0) LOOP
    -- The row may have changed since the look-up; what counts is what it holds once it is locked.
    SELECT k.lease_expires_at INTO expiry_ FROM queen.log_consumers k
     WHERE k.partition_id = parts[i] AND k.consumer_group = grps[i]
       AND k.worker_id = p_lease AND k.batch_end IS NOT NULL
       FOR UPDATE;
    CONTINUE WHEN NOT FOUND;
    at_ := queen.clock();
    CONTINUE WHEN expiry_ IS NULL OR expiry_ <= at_;
    IF at_ + make_interval(secs => p_seconds) > expiry_ THEN
      expiry_ := at_ + make_interval(secs => p_seconds);
      UPDATE queen.log_consumers k SET lease_expires_at = expiry_
       WHERE k.partition_id = parts[i] AND k.consumer_group = grps[i];
    END IF;
    renewed := renewed + 1;
    least_ := least(least_, expiry_);
  END LOOP;
  expires_at := queen.micros(least_);
END $$;
