/** The state of the whole cluster (sql/160_system_state.sql): switches, the name of the database, and its clock. */
import { boolArray, textArray } from './arrays.ts';
import { type Queryable, statement } from './database.ts';
import { invariant } from './invariant.ts';

const READ = statement('system_switches', 'SELECT keys, enabled FROM queen.system_switches()');
const SET = statement(
  'system_switches_set',
  'SELECT queen.system_switches_set($1::text[], $2::boolean[]) AS done',
);
const NOW = statement('system_now', 'SELECT queen.micros(queen.clock()) AS now');
const ID = statement('system_database_id', 'SELECT queen.database_id() AS id');

/** The switches that were ever set, by key. */
export async function readSwitches(db: Queryable): Promise<Map<string, boolean>> {
  const [row] = await db.query<{ keys: string[]; enabled: (boolean | null)[] }>(READ, [], { readOnly: true });
  invariant(row !== undefined, 'one_row');
  // A value that somebody wrote by hand may be null: as good as absent.
  return new Map(
    row.keys.flatMap((key, i) => (row.enabled[i] == null ? [] : [[key, row.enabled[i]] as const])),
  );
}

/** Sets these and tells every broker, all in one. */
export async function setSwitches(db: Queryable, switches: ReadonlyMap<string, boolean>): Promise<void> {
  await db.query(SET, [textArray([...switches.keys()]), boolArray([...switches.values()])]);
}

/** What all brokers call now, in microseconds since 1970. */
export async function databaseNow(db: Queryable): Promise<number> {
  const [row] = await db.query<{ now: number }>(NOW, [], { readOnly: true });
  invariant(row !== undefined, 'one_row');
  return row.now;
}

/** UUID text; the same for every broker of this database, and on its standbys. */
export async function databaseId(db: Queryable): Promise<string> {
  const [row] = await db.query<{ id: string }>(ID);
  invariant(row !== undefined && row.id !== null, 'database_id');
  return row.id;
}
