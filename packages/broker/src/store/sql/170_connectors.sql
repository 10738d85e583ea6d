-- What connectors were asked for: one document each, replaced as a whole and only if nobody else did so meanwhile. Not
-- in the KV store, whose entries a client may write: a document names a host and holds a sealed password.

-- Versions are never given out twice, so that a connector that was deleted and made anew is not taken for the old one.
CREATE SEQUENCE IF NOT EXISTS queen.connector_versions;

CREATE TABLE IF NOT EXISTS queen.connectors (
  tenant_id uuid   NOT NULL,
  name      text   NOT NULL,
  -- json, not jsonb: an operator who looks finds it as it was written.
  document  json   NOT NULL,
  version   bigint NOT NULL,
  PRIMARY KEY (tenant_id, name)
);

-- All of them, without what they hold: what a broker looks at every few seconds.
CREATE OR REPLACE FUNCTION queen.connector_list(OUT tenant_id uuid, OUT name text, OUT version bigint) RETURNS SETOF record
LANGUAGE sql STABLE AS $$
  SELECT c.tenant_id, c.name, c.version FROM queen.connectors c ORDER BY c.tenant_id, c.name COLLATE "C"
$$;

-- One tenant's, or one of them, with where a source stands: its pointer and its lease, which live in the KV store.
CREATE OR REPLACE FUNCTION queen.connector_read(
  p_tenant uuid, p_name text,
  OUT name text, OUT document json, OUT version bigint, OUT pointer json, OUT lease json
) RETURNS SETOF record LANGUAGE sql STABLE AS $$
  SELECT c.name, c.document, c.version, p.value, l.value
    FROM queen.connectors c
    LEFT JOIN queen.kv p ON p.tenant_id = c.tenant_id AND p.namespace = 'queen-pg'
                        AND p.key = 'src:' || c.name || ':pointer' AND (p.expires_at IS NULL OR p.expires_at > queen.clock())
    LEFT JOIN queen.kv l ON l.tenant_id = c.tenant_id AND l.namespace = 'queen-pg'
                        AND l.key = 'src:' || c.name || ':lease' AND (l.expires_at IS NULL OR l.expires_at > queen.clock())
   WHERE c.tenant_id = p_tenant AND (p_name IS NULL OR c.name = p_name)
   ORDER BY c.name COLLATE "C"
$$;

-- Another source of the tenant that names the same slot of the same database; NULL: there is none.
CREATE OR REPLACE FUNCTION queen.connector_of_slot(
  p_tenant uuid, p_name text, p_host text, p_port int, p_database text, p_slot text
) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT c.name FROM queen.connectors c
   WHERE c.tenant_id = p_tenant AND c.name <> p_name
     AND c.document #>> '{source,slot}' = p_slot
     AND c.document #>> '{connection,host}' = p_host
     AND c.document #>> '{connection,port}' = p_port::text
     AND c.document #>> '{connection,database}' = p_database
   ORDER BY c.name COLLATE "C" LIMIT 1
$$;

-- The new version; NULL: another write won. An expected version of 0 means that there is none yet.
CREATE OR REPLACE FUNCTION queen.connector_put(p_tenant uuid, p_name text, p_document json, p_expect bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_version bigint;
BEGIN
  IF p_expect = 0 THEN
    INSERT INTO queen.connectors (tenant_id, name, document, version)
      VALUES (p_tenant, p_name, p_document, nextval('queen.connector_versions'))
      ON CONFLICT (tenant_id, name) DO NOTHING RETURNING version INTO v_version;
  ELSE
    UPDATE queen.connectors c SET document = p_document, version = nextval('queen.connector_versions')
     WHERE c.tenant_id = p_tenant AND c.name = p_name AND c.version = p_expect
     RETURNING c.version INTO v_version;
  END IF;
  RETURN v_version;
END $$;

-- FALSE: it is gone, or another write won. With p_state its pointer and lease go in the same commit; its row is locked
-- before theirs, and nobody who holds KV rows ever asks for it.
CREATE OR REPLACE FUNCTION queen.connector_remove(p_tenant uuid, p_name text, p_expect bigint, p_state boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  DELETE FROM queen.connectors c WHERE c.tenant_id = p_tenant AND c.name = p_name AND c.version = p_expect;
  IF NOT FOUND THEN
    RETURN FALSE;
  END IF;
  IF p_state THEN
    DELETE FROM queen.kv k
     WHERE k.tenant_id = p_tenant AND k.namespace = 'queen-pg'
       AND k.key IN ('src:' || p_name || ':lease', 'src:' || p_name || ':pointer');
  END IF;
  RETURN TRUE;
END $$;

-- Where a sink stands on one partition: the time up to which it has stored everything, or the highest offset that it has
-- stored. No row, or two NULLs, means that nobody can tell (no such sink, or none that has met the partition), and
-- then retention holds everything for as long as the queue allows. A sink that is a connector stands where its group does.
CREATE OR REPLACE FUNCTION queen.retention_sink_point(p_tenant uuid, p_sink text, p_partition bigint)
RETURNS TABLE (committed_at timestamptz, committed_offset bigint)
LANGUAGE sql STABLE AS $$
  SELECT NULL::timestamptz, g.committed
    FROM queen.connectors c
    JOIN queen.log_consumers g ON g.partition_id = p_partition
                              AND g.consumer_group = coalesce(c.document #>> '{sink,consumerGroup}', 'pg-' || c.name)
   WHERE c.tenant_id = p_tenant AND c.name = p_sink AND c.document ->> 'kind' = 'sink'
$$;
