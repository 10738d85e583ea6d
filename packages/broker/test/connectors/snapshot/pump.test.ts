import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConnectorFault } from '../../../src/connectors/postgres/fault.ts';
import type { Relation } from '../../../src/connectors/postgres/replication/pgoutput.ts';
import type { SqlResult, SqlSession } from '../../../src/connectors/postgres/session/types.ts';
import type { CatalogTable } from '../../../src/connectors/postgres/source/catalog.ts';
import { Snapshot, type SnapshotDeps } from '../../../src/connectors/postgres/source/snapshot/snapshot.ts';
import { baseOf, firstState } from '../../../src/connectors/postgres/source/snapshot/state.ts';
import { silentLog } from '../../../src/store/log.ts';
import { rowOf } from '../row_of.ts';

const TABLE: CatalogTable = {
  oid: 16_400,
  schema: 'public',
  name: 't',
  kind: 'r',
  identity: 'd',
  columns: [
    {
      name: 'id',
      attnum: 1,
      type: { oid: 23, kind: 'b', element: null, delimiter: ',' },
      formatType: 'integer',
      collation: null,
      generated: false,
    },
  ],
  key: ['id'],
  source: { schema: 'public', table: 't', queue: 'q', partitionBy: 'key' },
};
const RELATION: Relation = {
  kind: 'relation',
  oid: 16_400,
  schema: 'public',
  name: 't',
  identity: 'd',
  columns: [{ name: 'id', key: true, typeOid: 23, typeModifier: -1 }],
};

/** A server with a table of so many rows. */
class Scene {
  shape = '1 id';
  seen = '100:100:';
  rows = 1_000;
  /** Thrown by the next query of rows. */
  fault: ConnectorFault | null = null;
  nowMs = 0;
  readonly marks: string[] = [];
  readonly limits: number[] = [];
  readonly details: (string | null)[] = [];
  readonly snapshot: Snapshot;
  #left = 0;
  #at = 0;

  constructor(deps: Partial<SnapshotDeps> = {}) {
    this.snapshot = new Snapshot({
      state: firstState(['public.t'], baseOf('100:100:')),
      tables: [TABLE],
      settings: { snapshotChunkRows: 400, maxBundleBytes: 65_536 },
      epoch: 'e',
      session: async () => this.#session(),
      clock: {
        now: () => this.nowMs,
        after: (ms, work) => {
          this.nowMs += ms;
          setImmediate(work);
          return { cancel() {} };
        },
      },
      log: silentLog,
      detail: (text) => this.details.push(text),
      ...deps,
    });
  }

  /** The mark that was written last comes by. */
  bring(n = -1): ReturnType<Snapshot['marker']> {
    return this.snapshot.marker(this.marks.at(n)!, 7n);
  }

  insert(id: number): void {
    const after = rowOf([String(id)]);
    this.snapshot.changed(TABLE, RELATION, 200, { kind: 'insert', relation: 16_400, after });
  }

  #session(): SqlSession {
    return {
      processId: 1,
      serverVersion: 180_000,
      query: async (text, params) =>
        ({ columns: [], rows: this.#answer(text, params ?? []), count: 0 }) as SqlResult,
      bytes: async (text) => {
        const wanted = Math.min(this.#left, Number(/FORWARD (\d+)/.exec(text)![1]));
        this.#left -= wanted;
        return Array.from({ length: wanted }, () => [Buffer.from(String(++this.#at))]);
      },
      prepare: async () => 0,
      onClose: () => {},
      close: async () => {},
    };
  }

  #answer(text: string, params: readonly unknown[]): (string | null)[][] {
    if (text.includes('pg_logical_emit_message')) this.marks.push(String(params[1]));
    if (text.includes('pg_current_snapshot')) return [[this.seen, '1700000000000000']];
    if (text.includes('pg_current_xact_id')) return [['150']];
    if (text.includes('pg_stat_activity')) return [['4711']];
    if (text.includes('pg_attribute')) return [[this.shape, null]];
    if (!text.startsWith('DECLARE')) return [];
    const { fault } = this;
    this.fault = null;
    if (fault !== null) throw fault;
    const limit = Number(/LIMIT (\d+)$/.exec(text)![1]);
    this.limits.push(limit);
    this.#at = Number(/CAST\(E'(\d+)'/.exec(text)?.[1] ?? 0);
    this.#left = Math.min(limit, this.rows - this.#at);
    return [];
  }
}

test('chunk after chunk, and the state of each part', async () => {
  const scene = new Scene();
  const ids: number[] = [];
  for (let chunk = 0; chunk < 3; chunk++) {
    await scene.snapshot.pump();
    // Nothing more is read while one is on its way.
    await scene.snapshot.pump();
    assert.equal(scene.marks.length, 2 * chunk + 2);
    assert.equal(scene.bring(-2), null);
    assert.equal(scene.snapshot.marker('hb', 7n), null);
    const { rows, end } = scene.bring()!;
    for (const { payload, stateAfter, idSuffix, partition } of rows) {
      const id = JSON.parse(payload.toString()).key.id as number;
      ids.push(id);
      assert.equal(partition, String(id));
      assert.equal(idSuffix, `s:0000000000000007:${(id - 1) % 400}`);
      assert.deepEqual(stateAfter?.after ?? null, id === 1_000 ? null : [String(id)]);
    }
    assert.deepEqual(end, scene.snapshot.state);
    // It comes by once.
    assert.equal(scene.bring(), null);
  }
  assert.deepEqual(
    ids,
    Array.from({ length: 1_000 }, (_, i) => i + 1),
  );
  assert.ok(scene.snapshot.done);
  assert.equal(scene.snapshot.state, null);
});

test('an altered table is looked up again, once a second, and after some time it is an error', async () => {
  let looks = 0;
  const scene: Scene = new Scene({
    reread: async (table) => {
      if (++looks === 3) scene.shape = '1 id';
      return table;
    },
  });
  scene.shape = '1 id\n2 more';
  for (let i = 0; looks < 3; i++, scene.nowMs += 500) {
    assert.ok(i < 20);
    await scene.snapshot.pump();
  }
  assert.ok(scene.nowMs >= 1_000, `${scene.nowMs} ms`);
  scene.nowMs += 1_000;
  await scene.snapshot.pump();
  scene.bring(-2);
  assert.ok(scene.bring());

  const lost = new Scene({ reread: async (table) => table });
  lost.shape = '1 id\n2 more';
  const forever = async () => {
    for (let i = 0; i < 20; i++, lost.nowMs += 1_000) await lost.snapshot.pump();
  };
  await assert.rejects(forever(), { code: 'relation_changed', retry: 'backoff' });
});

test('what passes by itself is waited for, what does not is said', async () => {
  const scene = new Scene();
  scene.fault = new ConnectorFault('postgres', 'cancelled', { sqlState: '57014' });
  await scene.snapshot.pump();
  assert.equal(scene.marks.length, 1);
  await scene.snapshot.pump();
  assert.equal(scene.marks.length, 1);
  scene.nowMs += 1_000;
  await scene.snapshot.pump();
  assert.equal(scene.marks.length, 3);
  // The first mark of the chunk that failed means nothing.
  assert.equal(scene.bring(0), null);
  assert.equal(scene.bring(1), null);
  assert.ok(scene.bring(2));

  scene.fault = new ConnectorFault('postgres', 'disk full', { sqlState: '53100' });
  await assert.rejects(scene.snapshot.pump(), { sqlState: '53100' });
  scene.fault = new ConnectorFault('postgres', 'bytes', { sqlState: '22021' });
  await assert.rejects(scene.snapshot.pump(), /table public\.t .* not UTF-8/);
});

test('a chunk with more changes between its marks than can be kept is thrown away, and the next one is smaller', async () => {
  const scene = new Scene({ keysMax: 2 });
  const around = async (changes: number) => {
    await scene.snapshot.pump();
    scene.bring(-2);
    for (let i = 0; i < changes; i++) scene.insert(i);
    return scene.bring();
  };
  assert.equal(await around(3), null);
  assert.equal(await around(3), null);
  assert.equal(await around(3), null);
  assert.deepEqual(scene.limits, [400, 200, 100]);
  // Not seen by the chunk, and nobody knows any more which rows they were.
  assert.equal(await around(0), null);
  scene.seen = '300:300:';
  assert.ok(await around(0));
  assert.ok(await around(0));
  assert.deepEqual(scene.limits.slice(3), [100, 100, 200]);
});

test('a slot that was found: all that ran when it was taken over has to end first, and the status says what is waited for', async () => {
  const scene = new Scene({ state: firstState(['public.t'], null) });
  scene.seen = '120:140:120';
  await scene.snapshot.pump();
  assert.equal(scene.marks.length, 0);
  assert.match(scene.details.at(-1)!, /oldest is 120.*4711/);
  assert.equal(scene.snapshot.state!.base, null);
  scene.insert(1);
  scene.seen = '151:210:200';
  await scene.snapshot.pump();
  assert.equal(scene.marks.length, 2);
  assert.equal(scene.details.at(-1), null);
  assert.deepEqual(scene.snapshot.state!.base, { sees: '151:151:', delivered: ['200'] });
});
