/**
 * Applications at work on an upstream: transactions of every kind on several tables, whatever happens to the server. Each
 * row carries its version and a seal of its values, and each transaction leaves a row in a journal that says how many
 * changes it made, so that the upstream itself is the record of what was done.
 */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { until } from '../kit/until.ts';
import type { UpstreamDatabase } from '../kit/upstream.ts';
import type { Row } from './change_events.ts';
import type { TableState } from './check_changes.ts';
import type { Chance } from './seed.ts';

export const JOURNAL = { table: 'public.journal', column: 'changes' };

/** Columns that have a value of their own, with the expression that gives it as events write it. */
const VALUES: Readonly<Record<string, string>> = {
  v: 'v::text',
  n: 'n::text',
  note: 'note',
  doc: 'doc::text',
  big: 'big',
  bigsum: 'bigsum',
  moment: `replace(moment::text, ' ', 'T') || ':00'`,
  nums: 'array_to_json(nums)::text',
  bytes: 'bytes::text',
  ratio: 'ratio::text',
  yes: 'yes::text',
  sum: 'sum',
};
/** What goes into the seal, after the key. */
const SEALED = ['v', 'n', 'note', 'doc', 'bigsum'];

const COLUMNS_SQL = `v int NOT NULL, n numeric, note text, doc jsonb, big text, bigsum text,
  moment timestamptz NOT NULL DEFAULT now(), nums int[], bytes bytea, ratio float8, yes boolean, sum text NOT NULL`;

export interface LoadTable {
  name: string;
  queue: string;
  key: readonly string[];
  partitionBy: 'key' | 'single' | readonly string[];
}

/** Tables of all kinds of keys and partitions; two of them share a queue. */
export function loadTables(count: number, allSingle = false): LoadTable[] {
  return Array.from({ length: count }, (_, i) => {
    const queue = i === 1 && !allSingle ? 'q.t0' : `q.t${i}`;
    const kind = allSingle ? 2 : i % 4;
    const key = kind === 1 || kind === 3 ? ['a', 'b'] : ['id'];
    return { name: `t${i}`, queue, key, partitionBy: kind === 2 ? 'single' : kind === 3 ? ['a'] : 'key' };
  });
}

/** An upstream that is killed comes back; what was under way is rolled back or not, as its journal says. */
export class UpstreamLoad {
  readonly tables: readonly LoadTable[];
  committed = 0;
  /** Transactions that failed, by their SQLSTATE or the kind of their error. */
  readonly failed = new Map<string, number>();
  readonly #database: UpstreamDatabase;
  readonly #chance: Chance;
  readonly #rows: number;
  #running: Promise<unknown> = Promise.resolve();
  #stop = false;

  /** `rows`: how many keys a table's rows have to share. */
  constructor(database: UpstreamDatabase, tables: readonly LoadTable[], rows: number, chance: Chance) {
    this.#database = database;
    this.tables = tables;
    this.#rows = rows;
    this.#chance = chance;
  }

  /** Tables with half of their keys taken, before there is a source. */
  async prepare(): Promise<void> {
    const sql = (text: string) => this.#database.sql(text);
    await sql(
      'CREATE TABLE journal (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, changes int NOT NULL)',
    );
    for (const table of this.tables) {
      await sql(tableSql(table));
      const values = `round((random() * 1e6)::numeric, 3), 'row ' || g, jsonb_build_object('g', g, 'l', ARRAY[g, null])`;
      await sql(
        insertSql(
          table,
          `SELECT ${keyOfNumber(table, 'g')}, 1, ${values}, x.big, md5(x.big), ARRAY[g, 2], '\\x00ff', g / 3.0, g % 2 = 0
             FROM generate_series(1, ${this.#rows}, 2) g,
             LATERAL (SELECT CASE WHEN g % 16 = 1 THEN (SELECT string_agg(md5(g || '-' || i), '') FROM generate_series(1, 120) i) END AS big) x`,
        ),
      );
    }
  }

  start(t: Cleanup, writers: number, pauseMs: [number, number]): void {
    atEnd(t, () => this.stop());
    this.#stop = false;
    this.#running = Promise.all(
      Array.from({ length: writers }, (_, i) => this.#write(this.#chance.fork(`writer ${i}`), pauseMs)),
    );
  }

  async stop(): Promise<void> {
    this.#stop = true;
    await this.#running;
  }

  /** One more row in the journal; everything before it is in the log in front of it. Answers where the log was. */
  async mark(): Promise<string> {
    let place = '';
    await until('the upstream is back', async () => {
      const [row] = await this.#database.sql('SELECT pg_current_wal_insert_lsn()::text AS lsn');
      await this.#database.sql('INSERT INTO journal (changes) VALUES (0)');
      place = String(row!.lsn);
      return true;
    });
    return place;
  }

  /** The tables as they are, and the journal. */
  async read(database: UpstreamDatabase = this.#database): Promise<TableState[]> {
    const states: TableState[] = [];
    await database.sql("SET TIME ZONE 'UTC'");
    for (const { name, queue, key, partitionBy } of this.tables) {
      const columns = [...key, ...Object.keys(VALUES)];
      const list = columns.map((column) => `${VALUES[column] ?? `${column}::text`} AS ${column}`).join(', ');
      const rows = await database.sql(`SELECT ${list} FROM ${name}`);
      states.push({ queue, table: `public.${name}`, key, partitionBy, columns, rows: rows.map(asRow) });
    }
    return states;
  }

  async readJournal(): Promise<TableState> {
    const rows = await this.#database.sql('SELECT id::text AS id, changes::text AS changes FROM journal');
    const columns = ['id', 'changes'];
    const { table } = JOURNAL;
    return { queue: 'journal', table, key: ['id'], partitionBy: 'single', columns, rows: rows.map(asRow) };
  }

  async #write(chance: Chance, [from, to]: [number, number]): Promise<void> {
    let client: pg.Client | null = null;
    while (!this.#stop) {
      try {
        client ??= await this.#database.connect();
        await this.#transaction(client, chance);
        this.committed++;
      } catch (error) {
        const code = (error as { code?: string }).code ?? (error as Error).name;
        this.failed.set(code, (this.failed.get(code) ?? 0) + 1);
        const alive = await client?.query('ROLLBACK').then(
          () => true,
          () => false,
        );
        if (alive !== true) {
          client?.end().catch(() => {});
          client = null;
          await sleep(100);
        }
      }
      await sleep(chance.integer(from, to));
    }
    await client?.end().catch(() => {});
  }

  async #transaction(client: pg.Client, chance: Chance): Promise<void> {
    await client.query('BEGIN');
    let changes = 0;
    for (let statements = chance.integer(1, 4); statements > 0; statements--) {
      const [text, params] = this.#statement(chance.pick(this.tables), chance);
      if (chance.chance(0.05)) {
        // Never seen by anybody.
        await client.query('SAVEPOINT s');
        await client.query(text, params);
        await client.query('ROLLBACK TO s');
        continue;
      }
      changes += (await client.query(text, params)).rowCount ?? 0;
    }
    await client.query('INSERT INTO journal (changes) VALUES ($1)', [changes]);
    await client.query(chance.chance(0.03) ? 'ROLLBACK' : 'COMMIT');
  }

  #statement(table: LoadTable, chance: Chance): [string, unknown[]] {
    const first = chance.integer(1, this.#rows);
    const among = (width: number): string => {
      const keys = Array.from({ length: width }, (_, i) => keyOfNumber(table, String(first + i)));
      return `(${table.key.join(', ')}) IN (${keys.map((key) => `(${key})`).join(', ')})`;
    };
    const text = chance.pick(['plain', 'ü "q" \\ | ~', 'line\nbreak', '', '€']) + chance.integer(0, 999);
    const number = `${chance.integer(-999999999, 999999999)}${chance.integer(0, 999999999)}.${chance.integer(100, 999)}`;
    switch (chance.integer(0, 9)) {
      case 0:
      case 1:
        return [
          `${insertSql(
            table,
            `SELECT ${keyOfNumber(table, 'g')}, 1, $1::numeric, $2::text, jsonb_build_object('new', g), NULL, NULL, NULL, NULL, NULL, NULL
               FROM generate_series(${first}, ${first + chance.integer(0, 5)}) g`,
          )} ON CONFLICT DO NOTHING`,
          [number, text],
        ];
      case 2:
      case 3:
        return [
          update(table, { n: '$1::numeric', note: '$2::text' }, among(chance.integer(1, 6))),
          [number, text],
        ];
      case 4:
        // Nothing but the version: large values are not sent.
        return [update(table, {}, among(chance.integer(1, 4))), []];
      case 5:
        return [update(table, { big: '$1::text', bigsum: 'md5($1::text)' }, among(1)), [large(chance)]];
      case 6:
        return [
          update(
            table,
            {
              note: 'NULL::text',
              doc: `'{"a": [1, {"b": null}]}'::jsonb`,
              yes: 'NOT yes',
              ratio: '-ratio',
              bytes: `$1::bytea`,
            },
            among(2),
          ),
          [Buffer.from([0, 255, 92, first % 256])],
        ];
      case 7:
        return [`DELETE FROM ${table.name} WHERE ${among(chance.integer(1, 3))}`, []];
      default:
        return [this.#move(table, first, chance), []];
    }
  }

  /** The row goes to another key, if that is free. */
  #move(table: LoadTable, first: number, chance: Chance): string {
    const other = chance.integer(1, this.#rows);
    const here = `(${table.key.join(', ')}) = (${keyOfNumber(table, String(first))})`;
    const [a, b] = splitKey(keyOfNumber(table, String(other)));
    if (table.key.length === 1) {
      return `${update(table, { id: `${a}::bigint` }, here)} AND NOT EXISTS (SELECT FROM ${table.name} WHERE id = ${a})`;
    }
    const key: Record<string, string> = chance.chance(0.5)
      ? { b: `b || '${'|'}'` }
      : { a: `${a}::int`, b: `${b}::text` };
    const target = `(a, b) = (${key.a ?? 'x.a'}, ${(key.b ?? 'b').replace(/^b /, 'x.b ')})`;
    return `${update(table, key, here, 'x')} AND NOT EXISTS (SELECT FROM ${table.name} WHERE ${target})`;
  }
}

/** What is wrong with a row of the load; see {@link SourceHistory}. */
export function judgeRow(table: string, row: Row, former: Row | null, ahead: boolean): string | null {
  if (table === JOURNAL.table) return null;
  const key = row.has('id') ? ['id'] : ['a', 'b'];
  const values = [...key, ...SEALED].flatMap((column) => row.get(column) ?? []);
  if (row.get('sum') !== md5(values.join('|'))) return 'its seal does not go with its values';
  const big = row.get('big') ?? null;
  if (!ahead && (big === null ? null : md5(big)) !== row.get('bigsum'))
    return 'its large value is another one';
  const grows = former === null || Number(row.get('v')) === Number(former.get('v')) + 1;
  return grows ? null : `version ${row.get('v')} comes after ${former.get('v')}`;
}

function md5(text: string): string {
  return createHash('md5').update(text).digest('hex');
}

/** So large, and so random, that it is kept apart from its row. */
function large(chance: Chance): string {
  return Array.from({ length: 100 }, () => md5(String(chance.integer(0, 2 ** 31)))).join('');
}

/** The table, here and where it is copied to. */
export function tableSql({ name, key }: LoadTable): string {
  const columns = key.length === 1 ? 'id bigint' : 'a int, b text';
  return `CREATE TABLE ${name} (${columns}, ${COLUMNS_SQL}, PRIMARY KEY (${key.join(', ')}))`;
}

/** Each number is a key, and some of the composite ones need escapes in a partition's name. */
function keyOfNumber({ key }: LoadTable, number: string): string {
  return key.length === 1 ? number : `${number} % 7, 'k|\\' || ${number}`;
}

function splitKey(key: string): [string, string] {
  const comma = key.indexOf(', ');
  return comma < 0 ? [key, ''] : [key.slice(0, comma), key.slice(comma + 2)];
}

function insertSql({ name, key }: LoadTable, select: string): string {
  const given = ['v', 'n', 'note', 'doc', 'big', 'bigsum', 'nums', 'bytes', 'ratio', 'yes'];
  const types: Record<string, string> = { nums: 'int[]', bytes: 'bytea', ratio: 'float8', yes: 'boolean' };
  const all = [...key, ...given];
  const values = all.map((column) => (column in types ? `${column}::${types[column]}` : column));
  return `INSERT INTO ${name} (${all}, sum) SELECT ${values}, ${sealSql(key, {})} FROM (${select}) AS new (${all})`;
}

function update(table: LoadTable, values: Record<string, string>, where: string, alias = ''): string {
  const set = { v: 'v + 1', ...values };
  const list = Object.entries(set).map(([column, value]) => `${column} = ${value}`);
  return `UPDATE ${table.name} ${alias} SET ${list.join(', ')}, sum = ${sealSql(table.key, set)} WHERE ${where}`;
}

function sealSql(key: readonly string[], set: Readonly<Record<string, string>>): string {
  const values = [...key, ...SEALED].map((column) => `(${set[column] ?? column})`);
  return `md5(concat_ws('|', ${values.join(', ')}))`;
}

function asRow(row: Record<string, unknown>): Row {
  return new Map(Object.entries(row) as [string, string | null][]);
}
