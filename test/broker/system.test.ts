/** Switches of the cluster over HTTP: set on one broker, followed by all, there after a restart. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StoreError } from '../../packages/broker/src/store/errors.ts';
import { until } from '../kit/until.ts';
import { failStatement, openLive, sql } from './live.ts';

const MAINTENANCE = '/api/v1/system/maintenance';
const POP = '/api/v1/system/maintenance/pop';
const KV_TIMERS = '/api/v1/system/kv-timers';

test('pop maintenance: every pop of every broker is answered at once, parked ones too', async (t) => {
  const one = await openLive(t, { alone: 'each broker is spoken to by itself' });
  const other = await openLive(t, { database: one.database });
  await one.client.push([{ queue: 'q', transactionId: 'a', payload: 1 }]);
  assert.deepEqual((await one.ask('GET', POP)).body, {
    popMaintenanceMode: false,
    message: 'Pop maintenance mode is OFF. Normal operation.',
  });
  const began = performance.now();
  const parked = [one, other].flatMap(({ client }) => [
    client.call('GET', '/api/v1/pop/queue/empty?wait=true&timeout=30000'),
    client.call('GET', '/api/v1/pop/queue/empty/partition/p?wait=true&timeout=30000'),
    client.call('GET', '/api/v1/pop?namespace=none&wait=true&timeout=30000'),
    client.call('GET', '/api/v1/pop/queue/latest?wait=true&timeout=30000&consumerGroup=g&conflation=true'),
  ]);
  await until('they are parked', async () =>
    [one, other].every(({ broker }) => broker.wake.parking.parked === 4),
  );
  assert.deepEqual((await one.ask('POST', POP, { enabled: true })).body, {
    popMaintenanceMode: true,
    message: 'Pop maintenance mode ENABLED. All POP operations will return empty arrays.',
  });
  const answers = await Promise.all(parked);
  assert.ok(performance.now() - began < 15_000);
  const conflated = { messages: [], paused: true, conflation: true };
  for (const half of [answers.slice(0, 4), answers.slice(4)]) {
    assert.deepEqual(
      half.map(({ status }) => status),
      [204, 204, 204, 200],
    );
    assert.deepEqual(half[3]!.body, conflated);
  }
  for (const { client, ask } of [one, other]) {
    const waited = performance.now();
    assert.equal((await client.call('GET', '/api/v1/pop/queue/q?wait=true&timeout=30000')).status, 204);
    assert.equal((await client.call('GET', '/api/v1/pop/queue/q')).status, 204);
    assert.ok(performance.now() - waited < 5_000);
    assert.equal((await ask('GET', POP)).body.popMaintenanceMode, true);
    assert.equal((await ask('GET', MAINTENANCE)).body.popMaintenanceMode, true);
    const shared = (await ask('GET', '/api/v1/system/shared-state')).body;
    assert.deepEqual(shared, {
      enabled: false,
      reason: 'single_node_segments_broker',
      maintenance_mode: false,
      pop_maintenance_mode: true,
    });
    // Pushes and acks go on.
    const [pushed] = await client.push([{ queue: 'q', transactionId: 'b', payload: 2 }]);
    assert.ok(['queued', 'duplicate'].includes(pushed!.status));
  }
  const off = (await other.ask('POST', POP, { enabled: false })).body;
  assert.equal(off.popMaintenanceMode, false);
  await until('the other one delivers again', async () => (await one.client.pop('q')).length > 0);
});

test('a switch holds for a broker that starts later, and for one that hears no notifications', async (t) => {
  const one = await openLive(t, { alone: 'each broker is spoken to by itself' });
  await one.ask('POST', POP, { enabled: true });
  await one.ask('POST', KV_TIMERS, { kv: false, timersFire: false });
  const deaf = await openLive(t, { database: one.database, engine: { notifications: false } });
  await deaf.broker.switches.refresh();
  const states = { kvEnabled: false, timersScheduleEnabled: true, timersFireEnabled: false };
  const { body } = await deaf.ask('GET', KV_TIMERS);
  assert.deepEqual(body, { ...states, quotaTenants: 0, quotaAgeMs: body.quotaAgeMs, quotaHot: 0 });
  assert.equal((await deaf.client.call('GET', '/api/v1/pop/queue/q?wait=true&timeout=30000')).status, 204);
  const kv = { operations: [{ op: 'get', ns: 'n', key: 'k' }] };
  const refused = await deaf.ask('POST', '/api/v1/kv', kv);
  assert.deepEqual([refused.status, refused.body.error], [503, 'kv_disabled']);

  const on = (await one.ask('POST', KV_TIMERS, { kv: true })).body;
  assert.deepEqual([on.kvEnabled, on.timersFireEnabled, on.mirrored], [true, false, true]);
  await one.client.push([{ queue: 'q', payload: 1 }]);
  await one.ask('POST', POP, { enabled: false });
  await until('it is seen without a word', async () => (await deaf.client.pop('q')).length === 1);
  await until('KV is back', async () => (await deaf.ask('POST', '/api/v1/kv', kv)).status === 200);
  // By hand, in the table itself: heard like any other.
  await sql(one.broker.db, `DELETE FROM queen.system_state WHERE key = 'timers_fire_enabled'`);
  await until('it is followed', async () => one.broker.switches.known().timers_fire_enabled);
});

test('what is asked must be said, and a change that the database does not take is none', async (t) => {
  const live = await openLive(t, { alone: 'the database fails one of them' });
  for (const path of [MAINTENANCE, POP]) {
    for (const body of [
      undefined,
      {},
      { enabled: 'true' },
      { enabled: null },
      { enabled: 1 },
      [],
      '{',
      'true',
    ]) {
      const answer = await live.ask('POST', path, body);
      assert.deepEqual(
        [answer.status, answer.body.error],
        [400, 'enabled (boolean) is required'],
        JSON.stringify(body),
      );
    }
  }
  for (const body of [
    undefined,
    {},
    { kv: 'off' },
    { other: true },
    { kv: null },
    { kv: true, timersFire: 1 },
  ]) {
    assert.equal((await live.ask('POST', KV_TIMERS, body)).status, 400, JSON.stringify(body));
  }
  for (const body of [undefined, {}, { queue: '' }, { queue: 7 }, { queue: 'a\u0000' }, { partition: 'p' }]) {
    const answer = await live.ask('POST', '/internal/api/notify', body);
    assert.equal(answer.status, 400, JSON.stringify(body));
    assert.match(String(answer.body.error), /queue/);
  }
  const heal = failStatement(live, 'system_switches_set', new StoreError('unavailable', 'pool', 'no'));
  const failed = await live.ask('POST', POP, { enabled: true });
  assert.deepEqual([failed.status, failed.body.error], [500, 'pool']);
  assert.equal((await live.ask('GET', POP)).body.popMaintenanceMode, false);
  // These hold here all the same, and the answer says that nobody else knows.
  const local = (await live.ask('POST', KV_TIMERS, { kv: false })).body;
  assert.deepEqual([local.kvEnabled, local.mirrored], [false, false]);
  const kv = { operations: [{ op: 'get', ns: 'n', key: 'k' }] };
  assert.equal((await live.ask('POST', '/api/v1/kv', kv)).status, 503);
  heal();
  assert.equal((await live.ask('POST', KV_TIMERS, { kv: true })).body.mirrored, true);
  const blind = failStatement(live, 'system_switches', new StoreError('unavailable', 'pool', 'no'));
  assert.equal((await live.ask('GET', MAINTENANCE)).status, 200, 'what was known last');
  blind();
});

test('a push that somebody else tells of wakes who waits', async (t) => {
  const live = await openLive(t, { alone: 'each broker is spoken to by itself' });
  const silent = await openLive(t, { database: live.database, engine: { notifications: false } });
  // Parked where nobody hears of the push, with the look for itself far away.
  const parked = silent.client.pop('q', { wait: true, timeout: 20_000 });
  await until('it is parked', async () => silent.broker.wake.parking.parked === 1);
  await live.client.push([{ queue: 'q', transactionId: 'a', payload: 1 }]);
  const told = await silent.ask('POST', '/internal/api/notify', { queue: 'q', partition: 'Default' });
  assert.deepEqual([told.status, told.body], [200, { status: 'ok' }]);
  assert.deepEqual(
    (await parked).map(({ transactionId }) => transactionId),
    ['a'],
  );
  for (const path of ['/internal/api/shared-state/stats', '/internal/api/inter-instance/stats']) {
    const heard = (await live.ask('GET', path)).body;
    assert.deepEqual([heard.enabled, heard.running, heard.transport], [true, true, 'pg-notify']);
    assert.ok(Number(heard.messages_sent) > 0);
    assert.deepEqual((await silent.ask('GET', path)).body, {
      enabled: false,
      reason: 'no_peers',
      maintenance_mode: false,
      pop_maintenance_mode: false,
    });
  }
});
