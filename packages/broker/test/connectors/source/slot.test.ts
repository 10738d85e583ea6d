/** Slots and pointers that belong together, or do not; a new beginning, and the end. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { Cleanup } from '../../../../../test/kit/cleanup.ts';
import { Upstream, type UpstreamDatabase } from '../../../../../test/kit/upstream.ts';
import type { ReplicationConnection } from '../../../src/connectors/postgres/replication/connection.ts';
import { PgDialler } from '../../../src/connectors/postgres/session/dialler.ts';
import { renderPointer } from '../../../src/connectors/postgres/source/pointer.ts';
import { createSlot } from '../../../src/connectors/postgres/source/slot.ts';
import { pointerKey } from '../../../src/connectors/postgres/source/state.ts';
import { faultOf, inPhase, SourceRig, streaming, tableOf, until } from './rig.ts';

suite('the slot of a source', () => {
  let server: Upstream;
  before(async () => {
    server = await Upstream.start({
      major: 17,
      settings: { max_slot_wal_keep_size: '64MB', wal_keep_size: '0' },
    });
  });
  after(() => server.remove());

  async function open(t: Cleanup) {
    const upstream = await server.database(t);
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY, v text)');
    const rig = await SourceRig.open(t, upstream);
    const document = rig.document('s', { tables: [tableOf('t')] });
    return { rig, upstream, document, slot: document.source.slot };
  }

  const dropSlot = (upstream: UpstreamDatabase, slot: string) =>
    upstream.sql('SELECT pg_drop_replication_slot($1)', [slot]);

  test('is made as one that a standby keeps', async (t) => {
    const { rig, document, slot } = await open(t);
    await rig.stream(document);
    const row = await rig.slot(slot);
    assert.deepEqual(
      [row!.plugin, row!.failover, row!.two_phase, row!.temporary],
      ['pgoutput', true, false, false],
    );
  });

  test('waits until running transactions have ended, and can be told to stop meanwhile', async (t) => {
    const { rig, upstream, document, slot } = await open(t);
    const other = await upstream.connect();
    await other.query("BEGIN; INSERT INTO t VALUES (1, 'before')");
    const unit = rig.start(document);
    await until('it waits', () => String(unit.status.facts.detail).includes('transactions'));
    assert.equal(unit.status.phase, 'connecting');
    await unit.stop();
    const again = rig.start(document);
    await until('it waits', () => String(again.status.facts.detail).includes('transactions'));
    await other.query('COMMIT');
    await other.end();
    await streaming(again);
    assert.notEqual(await rig.slot(slot), null);
  });

  test('found without a pointer is taken over where it stands', async (t) => {
    const { rig, upstream, document, slot } = await open(t);
    await upstream.sql('CREATE PUBLICATION queen_s FOR TABLE ONLY t');
    await upstream.sql("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [slot]);
    await upstream.sql("INSERT INTO t VALUES (1, 'in between')");
    await rig.stream(document);
    await rig.arrived(1);
  });

  test('a snapshot of tables that are named no more is over, without a change to say so', async (t) => {
    const { rig, upstream, slot } = await open(t);
    await upstream.sql(
      'CREATE TABLE other (id int PRIMARY KEY); CREATE PUBLICATION queen_s FOR TABLE ONLY t',
    );
    await upstream.sql("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [slot]);
    // As long as this one runs, nothing is copied.
    const running = await upstream.connect();
    await running.query('BEGIN; SELECT pg_current_xact_id()');
    const unit = rig.start(rig.document('s', { tables: [tableOf('t')], snapshot: 'initial' }));
    await inPhase(unit, 'snapshot');
    await unit.stop();
    await rig.stream(rig.document('s', { tables: [tableOf('other')], snapshot: 'initial' }));
    assert.equal((await rig.pointer('s'))!.snapshot, null);
    await running.end();
  });

  test('lost: the pointer says that changes are missing, and a new beginning copies what is there', async (t) => {
    const { rig, upstream, document, slot } = await open(t);
    const unit = await rig.stream(document);
    await upstream.sql("INSERT INTO t VALUES (1, 'a')");
    await rig.arrived(1);
    const before = (await rig.pointer('s'))!;
    await unit.stop();
    await dropSlot(upstream, slot);
    await upstream.sql("INSERT INTO t VALUES (2, 'b')");
    const lost = rig.start(document);
    assert.equal((await faultOf(lost)).code, 'slot_lost');
    await lost.stop();
    const resyncRequestedAt = '2026-02-01T00:00:00.000001Z';
    const anew = await rig.stream({ ...document, resyncRequestedAt });
    const messages = await rig.arrived(3);
    const pointer = (await rig.pointer('s'))!;
    assert.notEqual(pointer.epoch, before.epoch);
    assert.equal(pointer.resyncedAt, resyncRequestedAt);
    assert.deepEqual(messages.map(({ partition, event }) => `${partition}${event.op}`).sort(), [
      '1c',
      '1r',
      '2r',
    ]);
    await anew.stop();
    // The request was answered: it is not answered again.
    await rig.stream({ ...document, resyncRequestedAt });
    assert.equal((await rig.pointer('s'))!.epoch, pointer.epoch);
  });

  test('invalidated by its size: said, and healed by a new beginning', async (t) => {
    const { rig, upstream, document, slot } = await open(t);
    const unit = await rig.stream(document);
    await unit.stop();
    await upstream.sql('CREATE TABLE filler (v text)');
    for (let i = 0; i < 20; i++) {
      if ((await rig.slot(slot))!.wal_status === 'lost') break;
      await upstream.sql("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 20000)");
      await upstream.sql('SELECT pg_switch_wal(); CHECKPOINT');
    }
    const broken = rig.start(document);
    assert.equal((await faultOf(broken)).code, 'slot_invalidated');
    await broken.stop();
    await rig.stream({ ...document, resyncRequestedAt: '2026-02-01T00:00:00.000001Z' });
    await upstream.sql("INSERT INTO t VALUES (1, 'a')");
    await rig.arrived(1);
  });

  test('consumed by somebody else', async (t) => {
    const { rig, upstream, document, slot } = await open(t);
    const unit = await rig.stream(document);
    await unit.stop();
    await upstream.sql("INSERT INTO t VALUES (1, 'a')");
    await upstream.sql('SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())', [slot]);
    const robbed = rig.start(document);
    assert.equal((await faultOf(robbed)).code, 'slot_ahead');
  });

  test('of another kind, another name, another database', async (t) => {
    const { rig, upstream, document, slot } = await open(t);
    const unit = await rig.stream(document);
    await unit.stop();
    const renamed = rig.start({ ...document, source: { ...document.source, slot: `${slot}_new` } });
    assert.equal((await faultOf(renamed)).code, 'slot_changed');
    await renamed.stop();
    await dropSlot(upstream, slot);
    await upstream.sql('SELECT pg_create_physical_replication_slot($1)', [slot]);
    const physical = rig.start(document);
    assert.equal((await faultOf(physical)).code, 'slot_mismatch');
    await physical.stop();
    await dropSlot(upstream, slot);
    await upstream.sql("SELECT pg_create_logical_replication_slot($1, 'pgoutput', false, true)", [slot]);
    const prepared = rig.start(document);
    assert.equal((await faultOf(prepared)).code, 'slot_mismatch');
  });

  test('held by somebody else: it waits, and goes on by itself', async (t) => {
    const { rig, upstream, document, slot } = await open(t);
    const first = await rig.stream(document);
    await first.stop();
    const dialler = new PgDialler({ connection: rig.connection(), password: () => '', allowPrivate: true });
    const other = await dialler.replication('somebody else');
    const pointer = (await rig.pointer('s'))!;
    await other.start(
      { slot, publication: document.source.publication, from: pointer.lsn },
      { data() {}, keepalive() {} },
    );
    const unit = rig.start(document);
    await inPhase(unit, 'waiting_for_slot');
    const [sender] = await upstream.sql('SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1', [
      slot,
    ]);
    assert.equal(unit.status.facts.activePid, sender!.active_pid);
    await other.stop();
    await other.close();
    await streaming(unit);
  });

  test('a pointer that is none: said; a new beginning replaces it', async (t) => {
    const { rig, document } = await open(t);
    const unit = await rig.stream(document);
    await unit.stop();
    const entry = (await rig.state.read(pointerKey('s')))!;
    await rig.state.put(pointerKey('s'), entry.value.replace('"v":1', '"v":9'), entry.version, null);
    const broken = rig.start(document);
    assert.equal((await faultOf(broken)).code, 'pointer_corrupt');
    await broken.stop();
    await rig.stream({ ...document, resyncRequestedAt: '2026-02-01T00:00:00.000001Z' });
  });

  test('another database behind the address, or one that was set back', async (t) => {
    const { rig, document } = await open(t);
    const unit = await rig.stream(document);
    await unit.stop();
    const key = pointerKey('s');
    const pointer = (await rig.pointer('s'))!;
    for (const change of [{ systemId: '1' }, { timeline: 9 }, { lsn: pointer.lsn + 0x1000000000n }]) {
      const { version } = (await rig.state.read(key))!;
      await rig.state.put(key, renderPointer({ ...pointer, ...change }), version, null);
      const changed = rig.start(document);
      assert.equal((await faultOf(changed)).code, 'system_changed', JSON.stringify(Object.keys(change)));
      await changed.stop();
    }
  });

  test('torn down: slot, publication, pointer and lease are gone, whatever was gone before', async (t) => {
    const { rig, upstream, document, slot } = await open(t);
    const unit = await rig.stream(document);
    await unit.stop();
    const doomed = {
      ...document,
      enabled: false,
      deleting: { dropSlot: true, requestedAt: '2026-02-01T00:00:00.000001Z' },
    };
    for (let round = 1; round <= 2; round++) {
      const last = rig.start(doomed);
      await last.ended;
      assert.equal(last.status.phase, 'torn_down');
      assert.equal(rig.removed.length, round);
      assert.equal(await rig.slot(slot), null);
      assert.deepEqual(await upstream.sql('SELECT * FROM pg_publication'), []);
      assert.equal(await rig.pointer('s'), null);
      assert.equal(await rig.lease('s'), null);
    }
  });

  test('torn down: a slot of somebody else stays', async (t) => {
    const { rig, upstream, document, slot } = await open(t);
    for (const [plugin, twoPhase] of [
      ['test_decoding', false],
      ['pgoutput', true],
    ]) {
      await upstream.sql('SELECT pg_create_logical_replication_slot($1, $2, false, $3)', [
        slot,
        plugin,
        twoPhase,
      ]);
      const refused = rig.start(document);
      assert.equal((await faultOf(refused)).code, 'slot_mismatch');
      await refused.stop();
      const deleting = { dropSlot: true, requestedAt: '2026-02-01T00:00:00.000001Z' };
      const last = rig.start({ ...document, enabled: false, deleting });
      await last.ended;
      assert.equal(last.status.phase, 'torn_down');
      assert.equal((await rig.slot(slot))!.plugin, plugin);
      await dropSlot(upstream, slot);
    }
  });

  test('what it sees when it is made is what was done by then', async (t) => {
    const { rig, upstream } = await open(t);
    const dialler = new PgDialler({ connection: rig.connection(), password: () => '', allowPrivate: true });
    const connection: ReplicationConnection = await dialler.replication('maker');
    await upstream.sql("INSERT INTO t VALUES (1, 'done')");
    const [row] = await upstream.sql('SELECT xmin::text FROM t');
    const made = await createSlot(connection, `made_${upstream.name}`);
    await connection.close();
    const [, xmax] = made.base.sees.split(':');
    assert.ok(Number(row!.xmin) < Number(xmax));
    assert.ok(made.lsn > 0n);
  });
});
