import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { ConnectorFault } from '../../../src/connectors/postgres/fault.ts';
import type { SqlParam, SqlResult, SqlSession } from '../../../src/connectors/postgres/session/types.ts';
import { Application, type Entry } from '../../../src/connectors/postgres/sink/application.ts';
import type { Message } from '../../../src/connectors/postgres/sink/message.ts';
import { Prepared } from '../../../src/connectors/postgres/sink/prepared.ts';
import { StatementTexts } from '../../../src/connectors/postgres/sink/statements.ts';
import type { Target } from '../../../src/connectors/postgres/sink/target.ts';

/** One row of the model: which message wrote it. */
interface Model {
  readonly rows: number[];
  readonly savepoints: { name: string; rows: number }[];
  aborted: boolean;
  statements: number;
}

const DONE: SqlResult = { columns: [], rows: [], count: 0 };

/**
 * A server that knows savepoints, a failed transaction, and which rows it does not want: at once (`bad`), or when deferred
 * constraints are checked (`late`).
 */
function server(bad: ReadonlySet<number>, late: ReadonlySet<number>): { session: SqlSession; model: Model } {
  const model: Model = { rows: [], savepoints: [], aborted: false, statements: 0 };
  const refuse = (sqlState: string) => {
    model.aborted = true;
    return new ConnectorFault('postgres', `SQLSTATE ${sqlState}`, { sqlState });
  };
  const query = async (text: string, params: readonly SqlParam[] = []): Promise<SqlResult> => {
    model.statements++;
    const [verb] = text.split(' ');
    const name = text.split(' ').at(-1)!;
    if (verb === 'ROLLBACK') {
      const at = model.savepoints.findLastIndex((savepoint) => savepoint.name === name);
      assert.ok(at >= 0, `no savepoint ${name}`);
      model.rows.length = model.savepoints[at]!.rows;
      model.savepoints.length = at + 1;
      model.aborted = false;
      return DONE;
    }
    if (model.aborted) throw refuse('25P02');
    if (verb === 'SAVEPOINT') model.savepoints.push({ name, rows: model.rows.length });
    else if (verb === 'RELEASE') {
      const at = model.savepoints.findLastIndex((savepoint) => savepoint.name === name);
      assert.ok(at >= 0, `no savepoint ${name}`);
      model.savepoints.length = at;
    } else if (verb === 'SET') {
      if (model.rows.some((row) => late.has(row))) throw refuse('23503');
    } else {
      const ids = (JSON.parse(String(params[0])) as unknown[]).map((row) =>
        typeof row === 'number' ? row : (row as { id: number }).id,
      );
      if (ids.some((id) => bad.has(id))) throw refuse('23514');
      model.rows.push(...ids);
    }
    return DONE;
  };
  return { session: { query } as unknown as SqlSession, model };
}

const TARGET = {
  name: 't',
  columns: [
    {
      name: 'id',
      quoted: '"id"',
      type: 'int8',
      optional: false,
      always: false,
      identity: false,
      keepsText: false,
    },
  ],
  key: [],
  metadata: [],
} as unknown as Target;

function entry(id: number, partition: string, statement: boolean): Entry {
  const payload = Buffer.from(`{"id":${id}}`);
  const message: Message = {
    partition,
    partitionId: partition,
    offset: id,
    transactionId: '',
    createdAtMicros: 0,
    payload,
  };
  const shape = { id: '0', columns: [0], raw: [], metadata: [] };
  const planned = { shape: '0', keys: statement ? [] : [`${id}`], bytes: payload.length };
  return {
    message,
    operation: statement
      ? { kind: 'statement', ...planned, values: [`[${id}]`] }
      : { kind: 'append', ...planned, columnsOf: shape, records: [payload] },
  };
}

/** What is to come out: of each partition everything before its first bad message. */
function expected(entries: readonly Entry[], isBad: (id: number) => boolean) {
  const stopped = new Map<string, number>();
  const applied: number[] = [];
  for (const { message } of entries) {
    if (stopped.has(message.partitionId)) continue;
    if (isBad(message.offset)) stopped.set(message.partitionId, message.offset);
    else applied.push(message.offset);
  }
  return { applied, poisons: [...stopped.values()].sort((a, b) => a - b) };
}

async function check(entries: readonly Entry[], bad: ReadonlySet<number>, late: ReadonlySet<number>) {
  const { session, model } = server(bad, late);
  const statement = entries[0]?.operation.kind === 'statement';
  const writing = statement ? { statement: 'CALL' } : { texts: new StatementTexts(TARGET, 'json') };
  const poisons = await new Application(new Prepared(session, () => 0), writing).apply(entries, false);
  const wanted = expected(entries, (id) => bad.has(id) || late.has(id));
  assert.deepEqual(
    [...model.rows].sort((a, b) => a - b),
    [...wanted.applied].sort((a, b) => a - b),
  );
  assert.deepEqual(
    poisons.map(({ message }) => message.offset).sort((a, b) => a - b),
    wanted.poisons,
  );
  assert.equal(model.aborted, false);
  return model;
}

function batch(count: number, partitions: number, statement = false): Entry[] {
  return Array.from({ length: count }, (_, id) =>
    entry(id, `p${Math.floor((id * partitions) / count)}`, statement),
  );
}

suite('isolation of poison', () => {
  for (const statement of [false, true]) {
    const form = statement ? 'a statement a message' : 'a statement a run';
    test(`${form}: one at every place, and every pair`, async () => {
      for (const partitions of [1, 3, 9]) {
        const entries = batch(9, partitions, statement);
        for (let a = 0; a < 9; a++) {
          for (let b = a; b < 9; b++) {
            await check(entries, new Set([a, b]), new Set());
            await check(entries, new Set(), new Set([a, b]));
            await check(entries, new Set([a]), new Set([b]));
          }
        }
      }
    });

    test(`${form}: any number of them anywhere`, async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.integer({ min: 1, max: 40 }),
          fc.integer({ min: 1, max: 40 }),
          fc.array(fc.nat(39)),
          fc.array(fc.nat(39)),
          async (count, partitions, bad, late) => {
            await check(batch(count, Math.min(count, partitions), statement), new Set(bad), new Set(late));
          },
        ),
        { numRuns: 100 },
      );
    });
  }

  test('one poison among 512 costs a logarithm of statements', async () => {
    for (const at of [0, 255, 511]) {
      const { statements } = await check(batch(512, 512), new Set([at]), new Set());
      assert.ok(statements < 90, `${statements} statements`);
    }
  });

  test('what is not about the data is thrown as it is', async () => {
    const { session } = server(new Set(), new Set());
    const fault = new ConnectorFault('postgres', 'permission denied', { sqlState: '42501' });
    const query = session.query.bind(session);
    session.query = (text, ...rest) =>
      text.startsWith('INSERT') ? Promise.reject(fault) : query(text, ...rest);
    const application = new Application(new Prepared(session, () => 0), {
      texts: new StatementTexts(TARGET, 'json'),
    });
    await assert.rejects(application.apply(batch(4, 4), false), fault);
  });
});
