/** A server that has no slot left, and a role that may do nothing but read. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { Upstream } from '../../../../../test/kit/upstream.ts';
import { faultOf, SourceRig, streaming, tableOf, until } from './rig.ts';

suite('a source', () => {
  test('of a server with no slot left waits for one', async (t) => {
    const server = await Upstream.start({ major: 17, settings: { max_replication_slots: '1' } }, t);
    const upstream = await server.database(t);
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY)');
    await upstream.sql("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')");
    const rig = await SourceRig.open(t, upstream);
    const unit = rig.start(rig.document('s', { tables: [tableOf('t')], snapshot: 'initial' }));
    const fault = await faultOf(unit);
    assert.deepEqual([fault.code, fault.retry], ['postgres', 'later']);
    assert.match(fault.message, /all replication slots are in use.*max_replication_slots/);
    // Nobody begins to count on what could not be begun.
    assert.equal(await rig.pointer('s'), null);
    await upstream.sql("INSERT INTO t VALUES (1); SELECT pg_drop_replication_slot('theirs')");
    await until('it goes on by itself', () => unit.status.phase === 'streaming', 40_000);
    assert.equal((await rig.arrived(1))[0]!.event.op, 'r');
  });

  test('works without heartbeats when its role may not write them', async (t) => {
    const server = await Upstream.start({ major: 18 }, t);
    const upstream = await server.database(t);
    const role = `reader_${upstream.name}`;
    await upstream.sql(`
      CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int); CREATE PUBLICATION theirs FOR TABLE t;
      REVOKE EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text, boolean) FROM PUBLIC;
      CREATE ROLE ${role} LOGIN REPLICATION; GRANT SELECT ON t TO ${role}`);
    const rig = await SourceRig.open(t, upstream);
    const warned: string[] = [];
    const document = rig.document(
      's',
      { tables: [tableOf('t')], managePublication: false, publication: 'theirs' },
      { connection: rig.connection({ user: role }) },
    );
    const unit = rig.start(document, { warn: (text) => warned.push(text) });
    await streaming(unit);
    await until('it says so', () => warned.some((text) => /may not write heartbeats/.test(text)));
    const confirmed = async () => String((await rig.slot(document.source.slot))!.confirmed_flush_lsn);
    const [{ at }] = (await upstream.sql(
      'INSERT INTO other VALUES (1); SELECT pg_current_wal_lsn()::text AS at',
    )) as [{ at: string }];
    await until('the slot moves with what others write', async () => {
      const [row] = await upstream.sql(`SELECT '${await confirmed()}'::pg_lsn >= '${at}'::pg_lsn AS past`);
      return row!.past === true;
    });
    await upstream.sql('INSERT INTO t VALUES (1)');
    await rig.arrived(1);
    assert.equal(unit.status.faults.length, 0);
    assert.equal(warned.length, 1, 'it says it once');
  });
});
