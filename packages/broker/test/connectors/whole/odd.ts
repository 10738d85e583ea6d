/** Databases and tables that a source cannot read as they are, and says so. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Consumer, type SourceRig } from './rig.ts';

/** Registers its tests; the rig is there when they run. */
export function odd(rigOf: () => SourceRig, major: 17 | 18): void {
  test('bytes of no encoding, met by the snapshot and by the stream', async () => {
    const database = await rigOf().upstream.database(
      undefined,
      "TEMPLATE template0 ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C'",
    );
    await database.sql('CREATE TABLE t (id int PRIMARY KEY, v text)');
    await rigOf().put('ascii', database, { tables: [{ table: 't', queue: 'ascii' }] });
    await rigOf().streaming('ascii');
    await database.sql("INSERT INTO t VALUES (1, 'fine'), (2, convert_from('\\xc3a9', 'SQL_ASCII'))");
    const consumer = new Consumer(rigOf(), 'ascii');
    const [, accent] = await consumer.take(2);
    assert.match(accent!.text, /"v":"é"/);
    await database.sql("INSERT INTO t VALUES (3, convert_from('\\xff61', 'SQL_ASCII'))");
    const status = await rigOf().reached('ascii', ({ error }) => error?.code === 'encoding');
    assert.match(status.error!.message, /not UTF-8/);
    await rigOf().put('ascii-read', database, { tables: [{ table: 't', queue: 'ascii2' }] });
    const read = await rigOf().reached('ascii-read', ({ error }) => error?.code === 'encoding');
    assert.match(read.error!.message, /public\.t/);
    await rigOf().remove('ascii');
    await rigOf().remove('ascii-read');
    await database.drop();
  });

  test('a policy that hides rows', async () => {
    const database = await rigOf().upstream.database();
    await database.sql(`CREATE ROLE limited_${major} LOGIN REPLICATION; CREATE TABLE t (id int PRIMARY KEY);
        INSERT INTO t VALUES (1), (2); GRANT SELECT ON t TO limited_${major}; CREATE PUBLICATION p FOR TABLE t;
        ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY one ON t USING (id = 1)`);
    await rigOf().put(
      'hidden',
      database,
      { tables: [{ table: 't', queue: 'hidden' }], publication: 'p', managePublication: false },
      { user: `limited_${major}` },
    );
    const status = await rigOf().reached('hidden', ({ error }) => error?.code === 'privilege');
    assert.match(status.error!.message, /policy/);
    await database.sql(`ALTER TABLE t DISABLE ROW LEVEL SECURITY`);
    // Looked at again after half a minute, or when the document is written.
    await rigOf().put(
      'hidden',
      database,
      { tables: [{ table: 't', queue: 'hidden' }], publication: 'p', managePublication: false },
      { user: `limited_${major}` },
    );
    await new Consumer(rigOf(), 'hidden').take(2);
    await rigOf().remove('hidden');
    await database.sql('DROP PUBLICATION p');
    await database.drop();
  });
}
