/** The database goes away under a broker and comes back: what each route says meanwhile, and that nothing is lost. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { startBroker } from '../kit/broker.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { startProxy } from '../kit/proxy.ts';
import { until } from '../kit/until.ts';
import { Client, type Message, type Pushed, type Verdict } from './client.ts';

test('an outage of the database', async (t) => {
  const database = await freshDatabase(t);
  const { user, database: name, hosts } = database.options;
  const [{ host, port }] = hosts as [{ host: string; port: number }];
  const proxy = await startProxy(
    host.startsWith('/') ? { path: join(host, `.s.PGSQL.${port}`) } : { host, port },
  );
  t.after(() => proxy.close());
  const url = `postgres://${user}@127.0.0.1:${proxy.port}/${name}`;
  const broker = await startBroker(
    { database: { url }, env: { QUEEN_STMT_TIMEOUT_MS: '3000' }, alone: 'it is about what one broker does' },
    t,
  );
  const client = new Client(broker.url);
  const item = (n: number) => ({ queue: 'q', transactionId: `t${n}`, payload: n });
  const stored: number[] = [0];
  await client.push([item(0)]);
  const [held] = await client.pop('q', { leaseSeconds: 3600 });
  // Parked before it, by queue, by partition and by namespace, until long after it.
  const wait = { wait: true, timeout: 120_000 };
  let answered = 0;
  const parked = [
    client.pop('later.q', { ...wait, consumerGroup: 'by-queue' }),
    client.pop('later.q', { ...wait, consumerGroup: 'by-partition' }, 'Default'),
    client.popAt('/api/v1/pop', { ...wait, namespace: 'later', consumerGroup: 'by-scope' }),
  ];
  for (const pop of parked) pop.finally(() => answered++).catch(() => {});
  await until('they are parked', async () => {
    const text = await (await fetch(`${broker.url}/metrics/prometheus`)).text();
    return (
      [...text.matchAll(/^queen_parked_long_polls\{.*\} (\d+)$/gm)].reduce((n, [, m]) => n + Number(m), 0) ===
      3
    );
  });

  proxy.refuse();
  await until('the probe sees it', async () => (await client.call('GET', '/health')).status === 503);
  const health = await client.call('GET', '/health');
  assert.deepEqual([health.body.status, health.body.database], ['unhealthy', 'disconnected']);
  assert.equal((await client.call('GET', '/health/live')).status, 200);
  assert.equal((await client.call('GET', '/status')).status, 200);
  const metrics = await fetch(`${broker.url}/metrics/prometheus`);
  assert.equal(metrics.status, 200);
  assert.match(await metrics.text(), /^queen_process_push_messages_total 1$/m);

  // All at once: each of them waits for a connection for a while.
  const [pushed, popped, acked, ...others] = await Promise.all([
    client.call<Pushed[]>('POST', '/api/v1/push', { items: [item(1)] }),
    client.call('GET', '/api/v1/pop/queue/other'),
    client.call<Verdict[]>('POST', '/api/v1/ack', { ...pick(held!), status: 'completed' }),
    client.call('POST', '/api/v1/configure', { queue: 'x' }),
    client.call('GET', '/api/v1/resources/queues'),
    client.call('GET', '/api/v1/resources/queues/q'),
    client.call('DELETE', '/api/v1/resources/queues/q'),
    client.call('POST', `/api/v1/lease/${held!.leaseId}/extend`, {}),
  ]);
  assert.deepEqual([pushed.status, pushed.body[0]!.status], [201, 'buffered'], JSON.stringify(pushed));
  // What comes behind it need not wait for a connection first.
  const quick = performance.now();
  const behind = (await client.push([item(2)]))[0]!;
  assert.equal(behind.status, 'buffered');
  assert.ok(performance.now() - quick < 2_000, `${performance.now() - quick} ms`);
  const spool = (await client.call<{ spool: unknown }>('GET', '/health')).body.spool;
  assert.deepEqual(spool, { pending: 2, failed: 0, draining: false, lasting: true });
  assert.ok(popped.status === 204 || popped.status === 500, JSON.stringify(popped));
  assert.ok(acked.status === 500 || acked.body[0]!.success === false, JSON.stringify(acked));
  for (const answer of others) {
    assert.equal(answer.status, 500, JSON.stringify(answer));
    assert.ok(
      typeof answer.body.error === 'string' && typeof answer.body.code === 'string',
      JSON.stringify(answer),
    );
    assert.doesNotMatch(JSON.stringify(answer.body), /ECONN|127\.0\.0\.1|at .*\.ts/);
  }

  proxy.heal();
  await until('it is back', async () => (await client.call('GET', '/health')).status === 200);
  await until('pushes are stored', async () => {
    const [result] = (await client.call<Pushed[]>('POST', '/api/v1/push', { items: [item(3)] })).body;
    return result!.status === 'queued' || result!.status === 'duplicate';
  });
  const again = await client.push([item(1), item(2)]);
  assert.deepEqual(
    again.map(({ status, message_id }) => [status, message_id]),
    [
      ['duplicate', pushed.body[0]!.message_id],
      ['duplicate', behind.message_id],
    ],
  );
  stored.push(1, 2, 3);
  assert.equal(answered, 0, 'who was parked is parked still');
  await client.push([{ queue: 'later.q', transactionId: 'ring', payload: 1 }]);
  for (const messages of await Promise.all(parked)) {
    assert.deepEqual(
      messages.map(({ transactionId }) => transactionId),
      ['ring'],
    );
  }
  const verdict = await client.ack(held!);
  assert.ok(verdict.success, JSON.stringify(verdict));
  const rest = await client.pop('q', { wait: true, timeout: 10_000 });
  assert.deepEqual([held!.data, ...rest.map(({ data }) => data)], stored);
  assert.equal((await broker.stop()).code, 0);
});

function pick({ transactionId, partitionId, leaseId }: Message) {
  return { transactionId, partitionId, leaseId };
}
