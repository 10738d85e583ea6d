/** Partitioned tables: their parts must name rows as they do, and a part cannot be captured beside its root. */
import { ConnectorFault } from '../fault.ts';
import type { SqlSession } from '../session/types.ts';
import type { CatalogTable } from './catalog.ts';
import { readKeys } from './tables.ts';

const PARTS = `
WITH RECURSIVE parts AS (
  SELECT i.inhparent AS root, i.inhrelid AS oid
    FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = ANY ($1::pg_catalog.oid[])
  UNION ALL
  SELECT p.root, i.inhrelid FROM parts AS p JOIN pg_catalog.pg_inherits AS i ON i.inhparent = p.oid
)
SELECT p.root, c.oid, n.nspname || '.' || c.relname, c.relkind, c.relreplident, c.relpersistence
  FROM parts AS p
  JOIN pg_catalog.pg_class AS c ON c.oid = p.oid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 ORDER BY c.oid`;

/** Throws ConnectorFault. */
export async function checkParts(session: SqlSession, tables: readonly CatalogTable[]): Promise<void> {
  const roots = new Map(tables.filter(({ kind }) => kind === 'p').map((table) => [table.oid, table]));
  if (roots.size === 0) return;
  const { rows } = await session.query(PARTS, [`{${[...roots.keys()].join(',')}}`]);
  const configured = new Set(tables.map(({ oid }) => oid));
  const leaves: { oid: number; name: string; identity: string; root: CatalogTable }[] = [];
  for (const [rootOid, oid, name, kind, identity, persistence] of rows) {
    const root = roots.get(Number(rootOid))!;
    const rootName = `${root.schema}.${root.name}`;
    if (configured.has(Number(oid))) {
      throw new ConnectorFault(
        'unsupported_table',
        `table ${name} is a partition of ${rootName}, which is configured too: keep one of them in source.tables`,
      );
    }
    if (persistence !== 'p') {
      throw new ConnectorFault(
        'unsupported_table',
        `partition ${name} of ${rootName} is not logged: its changes are not in the log`,
      );
    }
    if (kind === 'r') leaves.push({ oid: Number(oid), name: name!, identity: identity!, root });
  }
  if (leaves.length === 0) return;
  const keys = await readKeys(session, `{${leaves.map(({ oid }) => oid).join(',')}}`);
  for (const { oid, name, identity, root } of leaves) {
    const found = keys.get(oid);
    const key = identity === 'i' ? found?.replica : found?.primary;
    const usable = key !== null && key !== undefined && (identity === 'f' || key.immediate);
    // The parts decide what PostgreSQL logs, whatever their root says.
    if (identity !== root.identity || !usable || key.columns.join('\0') !== root.key.join('\0')) {
      throw new ConnectorFault(
        'replica_identity',
        `partition ${name} has another replica identity than its root ${root.schema}.${root.name}: set the same one with ALTER TABLE ${name} REPLICA IDENTITY`,
      );
    }
  }
}
