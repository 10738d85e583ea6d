-- Notes that consumers attach to messages, found again by the message's address or by a name. Independent of the
-- message, whose existence nobody checks: no foreign key into the log, and nothing removes them.

CREATE TABLE IF NOT EXISTS queen.message_traces (
  id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  tenant_id      uuid NOT NULL,
  partition_id   bigint NOT NULL,
  transaction_id text NOT NULL,
  consumer_group varchar(255) NOT NULL,
  event_type     text NOT NULL,
  -- json, not jsonb: it must take every legal text, \u0000 and numbers of any length too, and give it back as it came.
  data           json NOT NULL,
  worker_id      text NOT NULL,
  created_at     timestamptz NOT NULL DEFAULT queen.clock()
);
-- Over a hash, since a transactionId may be longer than an index row.
CREATE INDEX IF NOT EXISTS idx_message_traces_message
  ON queen.message_traces (partition_id, hashtextextended(transaction_id, 0));

CREATE TABLE IF NOT EXISTS queen.message_trace_names (
  trace_id   uuid NOT NULL REFERENCES queen.message_traces (id) ON DELETE CASCADE,
  trace_name varchar(255) NOT NULL,
  tenant_id  uuid NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (trace_id, trace_name)
);
CREATE INDEX IF NOT EXISTS idx_message_trace_names_name
  ON queen.message_trace_names (tenant_id, trace_name, created_at);

-- Records a trace; NULL: p_owned was asked for and the partition is not the tenant's.
CREATE OR REPLACE FUNCTION queen.trace_write(
  p_tenant uuid, p_partition bigint, p_transaction_id text, p_group text, p_event_type text, p_data json,
  p_worker text, p_names text[], p_owned boolean
) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_id  uuid;
  v_now timestamptz := queen.clock();
BEGIN
  IF p_owned AND NOT EXISTS (SELECT FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id
                              WHERE p.id = p_partition AND q.tenant_id = p_tenant) THEN
    RETURN NULL;
  END IF;
  INSERT INTO queen.message_traces
    (tenant_id, partition_id, transaction_id, consumer_group, event_type, data, worker_id, created_at)
    VALUES (p_tenant, p_partition, p_transaction_id, p_group, p_event_type, p_data, p_worker, v_now)
    RETURNING id INTO v_id;
  INSERT INTO queen.message_trace_names (trace_id, trace_name, tenant_id, created_at)
    SELECT v_id, n.name, p_tenant, v_now FROM (SELECT DISTINCT u.name FROM unnest(p_names) AS u (name)) AS n
     ORDER BY n.name;
  RETURN v_id;
END $$;

-- These traces, in this order. What somebody wrote into a trace may be as large as a body, and there may be any number of
-- them, so once data and names come to more than p_bytes, the rest comes without (`omitted`); the first one is always
-- whole. A loop and no window: what is left out is not even fetched.
CREATE OR REPLACE FUNCTION queen.trace_rows(p_ids uuid[], p_bytes bigint)
RETURNS TABLE (id uuid, event_type text, data json, omitted boolean, consumer_group text, worker_id text,
               created_at timestamptz, names text[], transaction_id text, partition_id bigint)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  t     record;
  left_ bigint := p_bytes;
BEGIN
  FOR t IN
    SELECT m.* FROM unnest(p_ids) WITH ORDINALITY AS u (id, n) JOIN queen.message_traces m ON m.id = u.id ORDER BY u.n
  LOOP
    omitted := left_ < 0;
    data := NULL;
    names := '{}';
    IF NOT omitted THEN
      data := t.data;
      names := ARRAY(SELECT n.trace_name::text FROM queen.message_trace_names n
                      WHERE n.trace_id = t.id ORDER BY n.trace_name);
      left_ := left_ - octet_length(t.data::text) - octet_length(array_to_string(names, ''));
    END IF;
    id := t.id;
    event_type := t.event_type;
    consumer_group := t.consumer_group;
    worker_id := t.worker_id;
    created_at := t.created_at;
    transaction_id := t.transaction_id;
    partition_id := t.partition_id;
    RETURN NEXT;
  END LOOP;
END $$;

-- The traces of one message, the oldest first, at most p_limit. The partition need not exist any more.
CREATE OR REPLACE FUNCTION queen.trace_of_message(
  p_tenant uuid, p_partition bigint, p_transaction_id text, p_limit int, p_bytes bigint
) RETURNS TABLE (id uuid, event_type text, data json, omitted boolean, consumer_group text, worker_id text,
                 created_at timestamptz, names text[])
LANGUAGE sql STABLE AS $$
  SELECT r.id, r.event_type, r.data, r.omitted, r.consumer_group, r.worker_id, r.created_at, r.names
    FROM queen.trace_rows(ARRAY(
           SELECT t.id FROM queen.message_traces t
            WHERE t.partition_id = p_partition
              AND hashtextextended(t.transaction_id, 0) = hashtextextended(p_transaction_id, 0)
              AND t.transaction_id = p_transaction_id AND t.tenant_id = p_tenant
            ORDER BY t.created_at, t.id LIMIT p_limit), p_bytes) r
$$;

-- A page of the traces that bear a name, the oldest first, and in every row how many there are. Those of a deleted
-- queue are only found by their address.
CREATE OR REPLACE FUNCTION queen.trace_by_name(
  p_tenant uuid, p_name text, p_limit int, p_skip bigint, p_bytes bigint
) RETURNS TABLE (id uuid, event_type text, data json, omitted boolean, consumer_group text, worker_id text,
                 created_at timestamptz, names text[], transaction_id text, partition_id bigint, queue text,
                 partition text, total bigint)
LANGUAGE sql STABLE AS $$
  WITH matching AS MATERIALIZED (
    SELECT t.id, t.created_at, q.name::text AS queue, p.name::text AS partition
      FROM queen.message_trace_names m
      JOIN queen.message_traces t ON t.id = m.trace_id
      JOIN queen.log_partitions p ON p.id = t.partition_id
      JOIN queen.queues q ON q.id = p.queue_id AND q.tenant_id = p_tenant
     WHERE m.tenant_id = p_tenant AND m.trace_name = p_name
  ), page AS MATERIALIZED (
    SELECT x.* FROM matching x ORDER BY x.created_at, x.id LIMIT p_limit OFFSET p_skip
  )
  SELECT r.id, r.event_type, r.data, r.omitted, r.consumer_group, r.worker_id, r.created_at, r.names,
         r.transaction_id, r.partition_id, g.queue, g.partition, (SELECT count(*) FROM matching)
    FROM queen.trace_rows(ARRAY(SELECT x.id FROM page x ORDER BY x.created_at, x.id), p_bytes) r
    JOIN page g ON g.id = r.id
   ORDER BY r.created_at, r.id
$$;

-- A page of the names in use, the most recently seen first, and in every row how many names there are.
CREATE OR REPLACE FUNCTION queen.trace_names(p_tenant uuid, p_limit int, p_skip bigint)
RETURNS TABLE (trace_name text, traces bigint, messages bigint, last_seen timestamptz, total bigint)
LANGUAGE sql STABLE AS $$
  SELECT n.trace_name::text, count(*), count(DISTINCT t.transaction_id), max(n.created_at), count(*) OVER ()
    FROM queen.message_trace_names n
    JOIN queen.message_traces t ON t.id = n.trace_id
    JOIN queen.log_partitions p ON p.id = t.partition_id
    JOIN queen.queues q ON q.id = p.queue_id AND q.tenant_id = p_tenant
   WHERE n.tenant_id = p_tenant
   GROUP BY n.trace_name
   ORDER BY max(n.created_at) DESC, n.trace_name
   LIMIT p_limit OFFSET p_skip
$$;
