/** The connector procedures (sql/170_connectors.sql), one function each: parameters named, results decoded. */
import { type Queryable, statement } from './database.ts';

export interface ConnectorVersion {
  tenant: string;
  name: string;
  version: number;
}

export interface ConnectorRow {
  name: string;
  /** JSON text. */
  document: string;
  version: number;
  /** JSON text; null: there is none, as for a sink. */
  pointer: string | null;
  lease: string | null;
}

const LIST = statement(
  'connector_list',
  'SELECT tenant_id AS tenant, name, version FROM queen.connector_list()',
);
const READ = statement(
  'connector_read',
  'SELECT name, document, version, pointer, lease FROM queen.connector_read($1::uuid, $2::text)',
);
const OF_SLOT = statement(
  'connector_of_slot',
  'SELECT queen.connector_of_slot($1::uuid, $2::text, $3::text, $4::int, $5::text, $6::text) AS name',
);
const PUT = statement(
  'connector_put',
  'SELECT queen.connector_put($1::uuid, $2::text, $3::json, $4::bigint) AS version',
);
const REMOVE = statement(
  'connector_remove',
  'SELECT queen.connector_remove($1::uuid, $2::text, $3::bigint, $4::boolean) AS done',
);
const READ_ONLY = { readOnly: true } as const;

/** Every connector of every tenant. */
export function listConnectors(db: Queryable): Promise<ConnectorVersion[]> {
  return db.query<ConnectorVersion>(LIST, [], READ_ONLY);
}

/** One tenant's by name, or the one that is named. */
export function readConnectors(db: Queryable, tenant: string, name: string | null): Promise<ConnectorRow[]> {
  return db.query<ConnectorRow>(READ, [tenant, name], READ_ONLY);
}

/** The other source of the tenant with that slot of that database; null: there is none. */
export async function connectorOfSlot(
  db: Queryable,
  wanted: { tenant: string; name: string; host: string; port: number; database: string; slot: string },
): Promise<string | null> {
  const { tenant, name, host, port, database, slot } = wanted;
  const params = [tenant, name, host, port, database, slot];
  const [row] = await db.query<{ name: string | null }>(OF_SLOT, params, READ_ONLY);
  return row?.name ?? null;
}

/** The new version; null: another write won. `expect` 0: there is none yet. */
export async function putConnector(
  db: Queryable,
  row: { tenant: string; name: string; document: string; expect: number },
): Promise<number | null> {
  const { tenant, name, document, expect } = row;
  const [answer] = await db.query<{ version: number | null }>(PUT, [tenant, name, document, expect]);
  return answer?.version ?? null;
}

/** False: it is gone, or another write won. `state`: its pointer and its lease go with it. */
export async function removeConnector(
  db: Queryable,
  row: { tenant: string; name: string; expect: number; state: boolean },
): Promise<boolean> {
  const { tenant, name, expect, state } = row;
  const [answer] = await db.query<{ done: boolean }>(REMOVE, [tenant, name, expect, state]);
  return answer?.done ?? false;
}
