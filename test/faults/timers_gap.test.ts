/** The broker dies between the steps of a timer: each is one message or none, and what a caller is told stays true. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import type { FaultPoint } from '../../packages/broker/src/observability/buggify.ts';
import { Client } from '../broker/client.ts';
import { startBroker } from '../kit/broker.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';
import { startProxy } from '../kit/proxy.ts';
import { until } from '../kit/until.ts';

const HOOK = join(import.meta.dirname, 'fault_hook.ts');
/** So that the claims of the dead end soon. */
const LEASE = { QUEEN_SWEEPER_LEASE_MS: '1500' };

interface Result {
  status: string;
  timerKey: string;
  messageId: string;
}

function schedule(timerKey: string, delayMs: number) {
  const payload = Buffer.from(JSON.stringify(timerKey)).toString('base64');
  return { op: 'schedule', queue: 'q', timerKey, delayMs, txn: `t-${timerKey}`, payload };
}

async function apply(client: Client, operations: object[]): Promise<Result[]> {
  const { status, body } = await client.call<{ results: Result[] }>('POST', '/api/v1/timers', { operations });
  assert.equal(status, 200, JSON.stringify(body));
  return body.results;
}

async function stored(database: TestDatabase): Promise<string[]> {
  const db = await database.open({ poolSize: 1 });
  try {
    const { messages } = await assertLogInvariants(db);
    return [...messages.values()].flat().map(({ id }) => id);
  } finally {
    await db.close();
  }
}

/** Twenty timers over four partitions are due when the broker dies; another one comes up. */
async function dieAt(t: Cleanup, point: FaultPoint) {
  const database = await freshDatabase(t);
  const env = { ...LEASE, NODE_OPTIONS: `--import ${HOOK}`, QUEEN_TEST_FAULT: `${point}:kill:1` };
  const broker = await startBroker({ database, env }, t);
  const doomed = new Client(broker.url);
  const operations = Array.from({ length: 20 }, (_, n) => ({
    ...schedule(`k${n}`, 500),
    partition: `p${n % 4}`,
  }));
  const results = await apply(doomed, operations);
  const ended = await broker.ended;
  assert.equal(ended.signal, 'SIGKILL', ended.logs);
  assert.match(ended.logs, new RegExp(`fault: kill at ${point}`));
  const ids = results.map(({ messageId }) => messageId);
  return { database, ids, before: await stored(database) };
}

test('killed between claim and fire: nothing is in the log, and all of it fires once when the claims end', async (t) => {
  const { database, ids, before } = await dieAt(t, 'timers.claimed');
  assert.deepEqual(before, []);
  const heir = new Client((await startBroker({ database, env: LEASE }, t)).url);
  await until('all have fired', async () => (await stored(database)).length >= ids.length);
  assert.deepEqual((await stored(database)).sort(), ids.toSorted());
  assert.equal((await apply(heir, [{ op: 'cancel', queue: 'q', timerKey: 'k0' }]))[0]!.status, 'absent');
});

test('killed after the fire, before anybody was told: all of it is there, and consumers find it', async (t) => {
  const { database, ids, before } = await dieAt(t, 'timers.fired');
  assert.deepEqual(before.toSorted(), ids.toSorted());
  const heir = new Client((await startBroker({ database, env: LEASE }, t)).url);
  const popped: string[] = [];
  await until('they are consumed', async () => {
    const options = { consumerGroup: 'g', subscriptionMode: 'all', partitions: 0, autoAck: true };
    popped.push(...(await heir.pop('q', options)).map(({ id }) => id));
    return popped.length >= ids.length;
  });
  assert.deepEqual(popped.sort(), ids.toSorted());
  const { body } = await heir.call<{ rows: unknown[] }>('GET', '/api/v1/timers/q');
  assert.deepEqual(body.rows, []);
  assert.deepEqual((await stored(database)).sort(), ids.toSorted());
});

test('killed after a schedule was committed, before its answer: it is there, and sending it again replaces it', async (t) => {
  const database = await freshDatabase(t);
  const env = { NODE_OPTIONS: `--import ${HOOK}`, QUEEN_TEST_FAULT: 'timers.applied:kill:1' };
  const broker = await startBroker({ database, env }, t);
  await assert.rejects(apply(new Client(broker.url), [schedule('k', 60_000)]));
  await broker.ended;
  const heir = new Client((await startBroker({ database }, t)).url);
  const [again] = await apply(heir, [schedule('k', 200)]);
  assert.equal(again!.status, 'rescheduled');
  await until('it has fired', async () => (await stored(database)).length > 0);
  assert.deepEqual(await stored(database), [again!.messageId]);
});

test('the database is away while timers fall due: they fire once, soon after it is back', async (t) => {
  const database = await freshDatabase(t);
  const { user, database: name, hosts } = database.options;
  const [{ host, port }] = hosts as [{ host: string; port: number }];
  const proxy = await startProxy(
    host.startsWith('/') ? { path: join(host, `.s.PGSQL.${port}`) } : { host, port },
  );
  t.after(() => proxy.close());
  const url = `postgres://${user}@127.0.0.1:${proxy.port}/${name}`;
  const broker = await startBroker(
    { database: { url }, env: { ...LEASE, QUEEN_STMT_TIMEOUT_MS: '1500' } },
    t,
  );
  const client = new Client(broker.url);
  const ids: string[] = [];
  for (let from = 0; from < 3000; from += 250) {
    const operations = Array.from({ length: 250 }, (_, n) => ({
      ...schedule(`k${from + n}`, 50),
      partition: `p${n % 9}`,
    }));
    ids.push(...(await apply(client, operations)).map(({ messageId }) => messageId));
    // In the middle of the fires.
    if (from === 1500) proxy.refuse();
    if (from === 1500) {
      const refused = await client.call<{ error: string }>('POST', '/api/v1/timers', {
        operations: [schedule('away', 0)],
      });
      assert.ok([500, 503].includes(refused.status), JSON.stringify(refused));
      assert.equal(refused.body.error, 'timers_unavailable');
      proxy.heal();
      await until('it is back', async () => (await client.call('GET', '/health')).status === 200);
    }
  }
  const healed = performance.now();
  await until('all have fired', async () => (await stored(database)).length >= ids.length);
  // A claim that could be given back was given back; one whose commit is in doubt ends by itself.
  assert.ok(performance.now() - healed < 15_000);
  const fired = (await stored(database)).filter((id) => ids.includes(id));
  assert.deepEqual(fired.sort(), ids.toSorted());
});
