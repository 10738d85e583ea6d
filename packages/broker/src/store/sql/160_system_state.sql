-- What is true for the whole cluster and survives every restart: switches, and which database this is.

-- The switches that somebody has set; whoever reads them knows what an absent one means.
CREATE OR REPLACE FUNCTION queen.system_switches(OUT keys text[], OUT enabled boolean[])
LANGUAGE sql STABLE AS $$
  SELECT coalesce(array_agg(s.key ORDER BY s.key), '{}'),
         coalesce(array_agg((s.value ->> 'enabled')::boolean ORDER BY s.key), '{}')
    FROM queen.system_state s
   WHERE s.value ? 'enabled'
$$;

-- Sets the switches that are named, all of them or none. Ordered by key, the order in which every caller locks.
CREATE OR REPLACE FUNCTION queen.system_switches_set(p_keys text[], p_enabled boolean[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO queen.system_state AS s (key, value, updated_at)
    SELECT w.key, jsonb_build_object('enabled', w.enabled), queen.clock()
      FROM unnest(p_keys, p_enabled) AS w (key, enabled)
     ORDER BY w.key COLLATE "C"
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at;
  RETURN TRUE;
END $$;

-- The brokers hear of a change by a notification of the very transaction that makes it, be it by hand: such changes are
-- rare, so the lock that NOTIFY takes at commit is no price for news that cannot be lost on the sender's side.
CREATE OR REPLACE FUNCTION queen.system_state_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('queen_wake', '{"b":"","s":1}');
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER system_state_changed AFTER INSERT OR UPDATE OR DELETE ON queen.system_state
  FOR EACH STATEMENT EXECUTE FUNCTION queen.system_state_changed();

-- A name for this database that goes with its data, to a standby as well as into a backup: files that a broker keeps for
-- one database must not end up in another one. Drawn by the first broker that asks.
CREATE OR REPLACE FUNCTION queen.database_id() RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  known uuid;
BEGIN
  SELECT (s.value ->> 'id')::uuid INTO known FROM queen.system_state s WHERE s.key = 'database_id';
  IF known IS NULL THEN
    INSERT INTO queen.system_state (key, value) VALUES ('database_id', jsonb_build_object('id', gen_random_uuid()))
      ON CONFLICT (key) DO NOTHING;
    SELECT (s.value ->> 'id')::uuid INTO known FROM queen.system_state s WHERE s.key = 'database_id';
  END IF;
  RETURN known;
END $$;
