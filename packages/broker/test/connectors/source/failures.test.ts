/** Owners that come and go, upstreams and stores that stop: nothing is lost, nothing is there twice, nobody is held up. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { Cleanup } from '../../../../../test/kit/cleanup.ts';
import { Upstream } from '../../../../../test/kit/upstream.ts';
import { parseLsn } from '../../../src/connectors/postgres/replication/lsn.ts';
import { EngineError } from '../../../src/engine/errors.ts';
import type { BrokerFace } from '../../../src/engine/types.ts';
import { inPhase, type Message, SourceRig, streaming, tableOf, until } from './rig.ts';

function assertOnce(messages: readonly Message[]): void {
  assert.equal(new Set(messages.map(({ id }) => id)).size, messages.length);
}

/** A face whose bundles meet what `before` and `after` throw. */
function troubled(
  face: BrokerFace,
  trouble: { before?: () => void; after?: () => void; kv?: () => void },
): BrokerFace {
  return {
    ...face,
    kv: (request) => {
      trouble.kv?.();
      return face.kv(request);
    },
    async transaction(request) {
      trouble.before?.();
      const answer = await face.transaction(request);
      trouble.after?.();
      return answer;
    },
  };
}

const inDoubt = () => new EngineError('in_doubt', 'connection', 'the connection was lost');
const away = () => new EngineError('unavailable', 'pool', 'no database connection');

suite('a source goes on', () => {
  let server: Upstream;
  before(async () => {
    server = await Upstream.start({ major: 18, settings: { wal_sender_timeout: '2s' } });
  });
  after(() => server.remove());

  async function open(t: Cleanup) {
    const upstream = await server.database(t);
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE busy (v text)');
    const rig = await SourceRig.open(t, upstream);
    return { rig, upstream, document: rig.document('s', { tables: [tableOf('t')] }) };
  }

  test('when answers of commits are lost, applied or not', async (t) => {
    const { rig, upstream, document } = await open(t);
    let n = 0;
    const face = troubled(rig.broker, {
      before: () => {
        if (++n % 5 === 1) throw inDoubt();
        if (n % 5 === 2) throw away();
      },
      after: () => {
        if (n % 5 === 3) throw inDoubt();
      },
    });
    const unit = await rig.stream(document, { face });
    for (let i = 0; i < 10; i++) {
      await upstream.sql(`INSERT INTO t SELECT g, 'x' FROM generate_series(${i * 10}, ${i * 10 + 9}) g`);
      await rig.arrived((i + 1) * 10);
    }
    assertOnce(await rig.messages());
    assert.deepEqual(unit.status.faults, []);
    assert.ok(n > 10);
  });

  test('on another node when it is handed over, and when its owner is gone', async (t) => {
    const { rig, upstream, document } = await open(t);
    const one = await rig.stream(document, { node: 'one' });
    const two = rig.start(document, { node: 'two' });
    await inPhase(two, 'standby');
    assert.equal(two.status.facts.owner, 'one');
    await upstream.sql("INSERT INTO t VALUES (1, 'one')");
    await rig.arrived(1);
    await one.stop();
    await streaming(two);
    await upstream.sql("INSERT INTO t VALUES (2, 'two')");
    await rig.arrived(2);
    assert.deepEqual([one.status.owned, two.status.owned], [false, true]);
    assert.equal((await rig.lease('s'))?.node, 'two');
    // Somebody else has its lease while it works, and does not live long.
    const { version } = (await rig.state.read('src:s:lease'))!;
    await rig.state.put('src:s:lease', '{"node":"three","incarnation":"x"}', version, 6);
    await inPhase(two, 'standby');
    assert.equal(two.status.facts.owner, 'three');
    await upstream.sql("INSERT INTO t VALUES (3, 'three')");
    assertOnce(await rig.arrived(3));
    await streaming(two);
  });

  test('fenced when another owner has moved the pointer, with none of its messages stored', async (t) => {
    const { rig, upstream, document } = await open(t);
    let frozen: Promise<void> | null = null;
    let stuck = 0;
    const slow: BrokerFace = {
      ...rig.broker,
      async transaction(request) {
        if (frozen !== null) stuck++;
        await frozen;
        return rig.broker.transaction(request);
      },
    };
    const one = await rig.stream(document, { node: 'one', face: slow });
    let thaw = (): void => {};
    frozen = new Promise<void>((resolve) => {
      thaw = resolve;
    });
    await upstream.sql("INSERT INTO t VALUES (1, 'x')");
    await until('its bundle is stuck', () => stuck > 0);
    // As when a process stands still: the lease runs out, and the server ends its sender.
    const { version } = (await rig.state.read('src:s:lease'))!;
    await rig.state.remove('src:s:lease', version);
    const two = rig.start(document, { node: 'two', ttlMs: 60_000 });
    await until('it has the lease', async () => (await rig.lease('s'))?.node === 'two');
    await upstream.sql(
      'SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database()',
    );
    await streaming(two);
    await rig.arrived(1);
    thaw();
    await until('it stands by', () => one.status.phase === 'standby');
    await upstream.sql("INSERT INTO t VALUES (2, 'x')");
    assertOnce(await rig.arrived(2));
    assert.ok(two.status.owned);
  });

  test('when the upstream is restarted, which it does not hold up', async (t) => {
    const own = await Upstream.start({ major: 17 }, t);
    const upstream = await own.database();
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE busy (v text)');
    const rig = await SourceRig.open(t, upstream);
    const document = rig.document('s', { tables: [tableOf('t')], heartbeatSeconds: 3_600 });
    const unit = await rig.stream(document);
    await upstream.sql('INSERT INTO t VALUES (1)');
    await rig.arrived(1);
    // Whatever others write is nothing to us, and the server waits until we have said so.
    for (let i = 0; i < 5; i++)
      await upstream.sql("INSERT INTO busy SELECT repeat('x', 500) FROM generate_series(1, 2000)");
    const began = performance.now();
    await own.down(90_000);
    const tookMs = performance.now() - began;
    assert.ok(tookMs < 40_000, `the stop took ${tookMs} ms`);
    await until('it has noticed', () => unit.status.phase === 'error');
    await own.up();
    await until('it streams again', () => unit.status.phase === 'streaming', 30_000);
    await upstream.sql('INSERT INTO t VALUES (2)');
    assertOnce(await rig.arrived(2));
    await unit.stop();
  });

  test('with a store that stands still for longer than the server waits for a word', async (t) => {
    const { rig, upstream, document } = await open(t);
    let gone = false;
    const face = troubled(rig.broker, {
      before: () => {
        if (gone) throw away();
      },
      kv: () => {
        if (gone) throw away();
      },
    });
    const unit = await rig.stream(document, { face });
    gone = true;
    await upstream.sql("INSERT INTO t VALUES (1, 'x')");
    const [since] = await upstream.sql(
      'SELECT active_pid AS pid, clock_timestamp()::text AS at FROM pg_replication_slots WHERE slot_name = $1',
      [document.source.slot],
    );
    await until('the same sender has heard from us for longer than it waits', async () => {
      const [sender] = await upstream.sql(
        `SELECT reply_time > $2::timestamptz + 2 * current_setting('wal_sender_timeout')::interval AS heard
           FROM pg_stat_replication WHERE pid = $1`,
        [since!.pid, since!.at],
      );
      assert.ok(sender !== undefined, 'the server has cut the connection');
      return sender.heard === true;
    });
    gone = false;
    await rig.arrived(1);
    assert.deepEqual(unit.status.faults, []);
  });

  test('on another node when its own cannot reach the upstream', async (t) => {
    const { rig, upstream, document } = await open(t);
    const nowhere = { ...document, connection: rig.connection({ port: 1 }) };
    const one = rig.start(nowhere, { node: 'one' });
    await until('it has the lease', async () => (await rig.lease('s'))?.node === 'one');
    const two = await rig.stream(document, { node: 'two' });
    assert.deepEqual(
      one.status.faults.slice(0, 3).map(({ code }) => code),
      ['io', 'io', 'io'],
    );
    await upstream.sql("INSERT INTO t VALUES (1, 'x')");
    await rig.arrived(1);
    await until('it stands by', () => one.status.phase === 'standby');
    await two.stop();
  });

  test('with bounded memory: bundles that wait hold up the reading, and all come in the end', async (t) => {
    const { rig, upstream } = await open(t);
    const document = rig.document('s', {
      tables: [tableOf('t', { partitionBy: 'single' })],
      maxBundleMessages: 50,
    });
    let slow = true;
    const face: BrokerFace = {
      ...rig.broker,
      async transaction(request) {
        if (slow) await new Promise((resolve) => setTimeout(resolve, 20));
        return rig.broker.transaction(request);
      },
    };
    await rig.stream(document, { face });
    await upstream.sql("INSERT INTO t SELECT g, repeat('x', 4000) FROM generate_series(1, 5000) g");
    await rig.upstream.sql('INSERT INTO t VALUES (0, NULL)');
    await until('some are there', async () => (await rig.messages()).length > 500);
    const [sender] = await upstream.sql(
      'SELECT sent_lsn < pg_current_wal_lsn() AS behind FROM pg_stat_replication WHERE application_name = $1',
      ['queen-pg/test s'],
    );
    assert.equal(sender!.behind, true);
    slow = false;
    const messages = await rig.arrived(5_001);
    assertOnce(messages);
  });

  test('and the slot keeps up with foreign traffic, never ahead of the pointer', async (t) => {
    const { rig, upstream, document } = await open(t);
    await rig.stream(document);
    await upstream.sql("INSERT INTO busy SELECT repeat('x', 500) FROM generate_series(1, 20000)");
    const [row] = await upstream.sql('SELECT pg_current_wal_lsn()::text AS lsn');
    const end = parseLsn(String(row!.lsn))!;
    await until('the slot has followed', async () => {
      const slot = await rig.slot(document.source.slot);
      const confirmed = parseLsn(String(slot!.confirmed_flush_lsn))!;
      assert.ok(confirmed <= (await rig.pointer('s'))!.lsn);
      return confirmed >= end;
    });
  });
});
