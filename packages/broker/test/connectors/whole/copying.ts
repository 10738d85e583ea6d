/** A snapshot beside a stream that does not stand still: what comes out of the queue is the table. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Consumer, fold, type SourceRig } from './rig.ts';

/** Registers its tests; the rig is there when they run. */
export function copying(rigOf: () => SourceRig, rowCount: number): void {
  test(`${rowCount} rows under a writer`, async () => {
    const database = await rigOf().upstream.database();
    await database.sql(`CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, large text NOT NULL);
        ALTER TABLE t ALTER large SET STORAGE EXTERNAL;
        INSERT INTO t SELECT g * 2, 0, repeat(md5(g::text), CASE WHEN g % 40 = 0 THEN 80 ELSE 1 END) FROM generate_series(1, ${rowCount}) g`);
    await rigOf().put('busy', database, {
      tables: [{ table: 't', queue: 'busy', partitionBy: 'single' }],
      snapshotChunkRows: 1_000,
      maxBundleMessages: 5_000,
    });
    const writer = await database.connect();
    let writing = true;
    let round = 0;
    const written = (async () => {
      while (writing) {
        round++;
        // Rows all over the table, half of them with their large column unchanged.
        const at = (n: number) => 80 * (1 + ((round * 7919 + n * 104_729) % (rowCount / 40)));
        await writer.query(`BEGIN;
            UPDATE t SET v = ${round} WHERE id IN (${at(1)}, ${at(2)}, ${at(3)}, ${at(4) + 2});
            UPDATE t SET v = ${round}, large = repeat('${round}', 3000) WHERE id = ${at(5)};
            DELETE FROM t WHERE id = ${at(6) + 4};
            INSERT INTO t VALUES (${at(7) + 1}, ${round}, repeat('n', 4000)) ON CONFLICT (id) DO UPDATE SET v = ${round};
            UPDATE t SET id = id + 1, v = ${round} WHERE id = ${at(8)} AND NOT EXISTS (SELECT FROM t WHERE id = ${at(8) + 1});
            COMMIT`);
      }
    })();
    await rigOf().streaming('busy');
    writing = false;
    await written;
    await writer.end();
    await database.sql("INSERT INTO t VALUES (0, -1, 'last')");
    const consumer = new Consumer(rigOf(), 'busy');
    await consumer.until(
      () => consumer.messages.some(({ text }) => text.includes('"after":{"id":0,"v":-1')),
      'the last row',
    );
    const rows = fold(consumer.messages);
    const table = await database.sql('SELECT id, v, md5(large) AS large FROM t');
    const { createHash } = await import('node:crypto');
    const copy = [...rows.values()].map(({ id, v, large }) => ({
      id,
      v,
      large: createHash('md5').update(String(large)).digest('hex'),
    }));
    const byId = (a: { id?: unknown }, b: { id?: unknown }) => Number(a.id) - Number(b.id);
    assert.deepEqual(copy.sort(byId), table.sort(byId));
    const kinds = new Map<string, number>();
    for (const { transactionId } of consumer.messages) {
      const kind = /:s:[^:]*:f/.test(transactionId) ? 'fill' : /:s:/.test(transactionId) ? 'row' : 'change';
      kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    }
    assert.ok(
      round > 3 && kinds.get('row')! > rowCount / 2,
      `${round} rounds, ${JSON.stringify([...kinds])}`,
    );
    // No version of a row is told before an older one of it.
    const newest = new Map<number, number>();
    for (const { op, key, after: row } of consumer.events) {
      if (op === 'd' || row?.v === undefined) continue;
      const id = key.id as number;
      const v = row.v as number;
      if (op === 'r') assert.ok(v >= (newest.get(id) ?? 0), `row ${id}`);
      newest.set(id, Math.max(v, newest.get(id) ?? 0));
    }
    await rigOf().remove('busy');
    await database.drop();
  });

  test('large columns that updates leave alone, moves among them, and a fill', async () => {
    const database = await rigOf().upstream.database();
    await database.sql(`CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, large text NOT NULL);
        ALTER TABLE t ALTER large SET STORAGE EXTERNAL;
        INSERT INTO t SELECT g, 0, repeat(g::text, 5000) FROM generate_series(1, 300) g`);
    // A slot that is found is copied from when all has ended that ran then: until this one does, nothing is read.
    await database.sql('CREATE PUBLICATION queen_large FOR TABLE ONLY t');
    const slot = `large_${database.name}`;
    await database.sql("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [slot]);
    const running = await database.connect();
    await running.query('BEGIN; SELECT pg_current_xact_id()');
    await rigOf().put('large', database, {
      tables: [{ table: 't', queue: 'large' }],
      slot,
      snapshotChunkRows: 100,
    });
    await rigOf().reached('large', ({ detail }) => String(detail).startsWith('the snapshot waits'));
    // The first chunk has its first marker in the log, and waits here for all that follows.
    const holder = await database.connect();
    await holder.query('BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE');
    await running.query('COMMIT');
    const reader = `SELECT FROM pg_locks WHERE relation = 't'::regclass AND mode = 'AccessShareLock' AND NOT granted`;
    const end = performance.now() + 20_000;
    while ((await database.sql(reader)).length === 0) {
      assert.ok(performance.now() < end, 'nobody waits for the table');
    }
    await holder.query(`UPDATE t SET v = v + 1 WHERE id <= 100;
        UPDATE t SET id = id + 1000 WHERE id <= 50;
        UPDATE t SET id = id + 1000, v = v + 1 WHERE id > 1000;
        DELETE FROM t WHERE id BETWEEN 2001 AND 2010;
        COMMIT`);
    await rigOf().streaming('large');
    await database.sql("INSERT INTO t VALUES (0, -1, 'last')");
    const consumer = new Consumer(rigOf(), 'large');
    await consumer.until(
      () => consumer.messages.some(({ text }) => text.includes('"after":{"id":0,"v":-1')),
      'the last row',
    );
    const table = await database.sql('SELECT id, v, large FROM t ORDER BY id');
    const copy = [...fold(consumer.messages).values()].sort((a, b) => Number(a.id) - Number(b.id));
    assert.deepEqual(copy, table);
    // Rows that kept their key are in the queue without their large column until the chunk brings it.
    const fills = consumer.messages.filter(({ transactionId }) => /:s:[^:]*:f/.test(transactionId));
    assert.equal(fills.length, 50);
    await Promise.all([running.end(), holder.end()]);
    await rigOf().remove('large');
    await database.drop();
  });
}
