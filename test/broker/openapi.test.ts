/** What a broker answers, held against the OpenAPI document that it serves: every route, and nothing in an answer that is not shown. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpenApi } from '../../packages/broker/test/http/open_api.ts';
import { openLive } from './live.ts';

/** A page, a scraper's text, and what is asked for from elsewhere. */
const NO_JSON = ['/docs', '/auth/login', '/metrics/prometheus'];

/** What of an answer leads to the next call. */
interface Answered {
  leaseId: string;
  messages: Record<string, string>[];
}

test('every answer is as the document has it', async (t) => {
  const live = await openLive(t, { connectors: true, alone: 'it looks at what one broker says of itself' });
  const api = new OpenApi((await live.ask('GET', '/openapi.json')).body);
  const done = new Set<string>();

  /** Asks, and judges the answer by its status. */
  async function ask(method: string, path: string, expected: number, body?: unknown): Promise<Answered> {
    const answer = await live.ask(method, path, body);
    const found = api.find(method, path);
    const at = `${method} ${path} ${JSON.stringify(answer.body)}`;
    assert.equal(answer.status, expected, at);
    const shown = found.operation.responses[answer.status];
    assert.ok(shown !== undefined, `${at}: the status is not documented`);
    const { content } = api.resolve(shown);
    if (content === undefined) assert.equal(answer.body, null, at);
    else
      assert.deepEqual(
        api.faultsOf(content['application/json']!.schema, answer.body, { closed: expected < 400 }),
        [],
        at,
      );
    if (expected < 400) done.add(`${found.method} ${found.path}`);
    return answer.body as unknown as Answered;
  }

  const push = (queue: string, ids: string[], partition = 'p') =>
    ask('POST', '/api/v1/push', 201, {
      items: ids.map((transactionId) => ({
        queue,
        partition,
        transactionId,
        payload: { id: transactionId },
      })),
    });
  const named = 'consumerGroup=g&subscriptionMode=all';

  await t.test('messages', async () => {
    await ask('POST', '/api/v1/configure', 200, {
      queue: 'ns.task',
      namespace: 'ns',
      options: { retryLimit: 0, leaseTime: 60 },
    });
    await ask('POST', '/api/v1/configure', 400, { queue: 'ns.task', options: { leaseTime: 'x' } });
    const plain = await ask('POST', '/api/v1/configure', 200, { queue: 'plain' });
    const { responses } = api.find('POST', '/api/v1/configure').operation;
    const shown = responses[200]!.content!['application/json']!.example as { options: unknown };
    assert.deepEqual(
      (plain as unknown as typeof shown).options,
      shown.options,
      'the defaults that are shown',
    );
    await push('ns.task', ['a', 'b', 'c', 'd']);
    await push('ns.task', ['a']);
    await ask('POST', '/api/v1/push', 400, { items: [{}] });
    const popped = await ask('GET', `/api/v1/pop/queue/ns.task?${named}&batch=2`, 200);
    const [first, second] = popped.messages as [Record<string, string>, Record<string, string>];
    const of = ({ transactionId, partitionId, leaseId }: Record<string, string>) => ({
      transactionId,
      partitionId,
      leaseId,
    });
    await ask('POST', `/api/v1/lease/${popped.leaseId}/extend`, 200, { seconds: 90 });
    await ask('POST', '/api/v1/ack', 200, { consumerGroup: 'g', ...of(first), status: 'completed' });
    const failed = {
      consumerGroup: 'g',
      acknowledgments: [{ ...of(second), status: 'failed', error: 'boom 7' }],
    };
    await ask('POST', '/api/v1/ack/batch', 200, failed);
    await ask('GET', '/api/v1/pop?namespace=ns&autoAck=true&batch=1', 200);
    await ask('GET', '/api/v1/pop', 400);
    await ask('GET', `/api/v1/pop/queue/ns.task/partition/p?${named}&batch=1`, 200);
    await ask('GET', '/api/v1/pop/queue/nothing?consumerGroup=h', 204);
    await ask('GET', '/api/v1/pop/queue/nothing?consumerGroup=h&batch=x', 400);
    await ask('GET', `/api/v1/pop/queue/ns.task?consumerGroup=c&subscriptionMode=all&conflation=true`, 200);
  });

  await t.test('queues and groups', async () => {
    await ask('POST', '/api/v1/stats/refresh', 200);
    for (const path of ['queues', 'queues?stats=cached', 'queues/ns.task', 'queues/ns.task/depth?group=g']) {
      await ask('GET', `/api/v1/resources/${path}`, 200);
    }
    await ask('GET', '/api/v1/resources/queues/none', 404);
    for (const path of ['namespaces', 'tasks', 'overview'])
      await ask('GET', `/api/v1/resources/${path}`, 200);
    const groups = '/api/v1/consumer-groups';
    await ask('GET', groups, 200);
    await ask('GET', `${groups}?limit=1`, 200);
    await ask('GET', `${groups}/lagging?minLagSeconds=0`, 200);
    await ask('GET', `${groups}/g`, 200);
    await ask('GET', `${groups}/g/queues/ns.task?sort=waiting&order=desc`, 200);
    await ask('POST', `${groups}/g/subscription`, 200, { subscriptionTimestamp: '2026-01-31T10:00:00Z' });
    await ask('POST', `${groups}/g/subscription`, 400, {});
    await ask('POST', `${groups}/g/queues/ns.task/seek`, 200, { toBeginning: true });
    await ask('POST', `${groups}/g/queues/none/seek`, 404, { toEnd: true });
    await ask('POST', `${groups}/g/queues/ns.task/partitions/p/seek`, 200, { offset: 1 });
    await ask('POST', `${groups}/g/queues/ns.task/partitions/none/seek`, 404);
    await ask('DELETE', `${groups}/c/queues/ns.task?deleteMetadata=false`, 200);
    await ask('DELETE', `${groups}/c`, 200);
  });

  await t.test('transactions, keys and timers', async () => {
    const schedule = (timerKey: string) => ({
      op: 'schedule',
      queue: 'later',
      timerKey,
      delayMs: 3_600_000,
      txn: `t-${timerKey}`,
      payload: Buffer.from('{"n":1}').toString('base64'),
    });
    await ask('POST', '/api/v1/transaction', 200, {
      operations: [{ type: 'push', items: [{ queue: 'tx', transactionId: 'x', payload: 1 }] }],
      kv: [{ op: 'incr', ns: 'n', key: 'count', delta: 1, forever: true }],
      timers: [schedule('in-transaction')],
    });
    await ask('POST', '/api/v1/transaction', 200, {
      operations: [{ type: 'push', queue: 'tx', transactionId: 'x', payload: 1 }],
    });
    await ask('POST', '/api/v1/transaction', 200, {
      operations: [],
      kv: [{ op: 'put', ns: 'n', key: 'count', value: 1, forever: true, expect: 0, required: true }],
    });
    await ask('POST', '/api/v1/transaction', 400, { operations: [{ type: 'pull' }] });
    await ask('POST', '/api/v1/kv', 200, {
      operations: [
        { op: 'put', ns: 'n', key: 'a', value: { x: 1 }, ttlSeconds: 60 },
        { op: 'putIfAbsent', ns: 'n', key: 'count', value: 1, forever: true },
        { op: 'get', ns: 'n', key: 'a' },
        { op: 'get', ns: 'n', key: 'none' },
        { op: 'getMany', ns: 'n', keys: ['a', 'none'] },
        { op: 'getPrefix', ns: 'n', prefix: 'a', keysOnly: true },
        { op: 'delete', ns: 'n', key: 'none' },
      ],
    });
    await ask('POST', '/api/v1/kv', 200, {
      operations: [{ op: 'put', ns: 'n', key: 'a', value: 1, forever: true, expect: 0, required: true }],
    });
    await ask('POST', '/api/v1/kv', 400, { operations: [{ op: 'none' }] });
    await ask('POST', '/api/v1/kv', 403, {
      operations: [{ op: 'put', ns: 'queen-pg', key: 'a', value: 1, forever: true }],
    });
    await ask('PUT', '/api/v1/kv/n/b%2Fc', 200, { value: null, forever: true });
    await ask('GET', '/api/v1/kv/n/b%2Fc', 200);
    await ask('DELETE', '/api/v1/kv/n/b%2Fc', 200);
    await ask('GET', '/api/v1/resources/kv/namespaces', 200);
    await ask('POST', '/api/v1/resources/kv/list', 200, { namespace: 'n' });
    await ask('POST', '/api/v1/timers', 200, {
      operations: [schedule('k'), { op: 'cancel', queue: 'later', timerKey: 'no' }],
    });
    await ask('POST', '/api/v1/timers', 400, { operations: [{ op: 'none' }] });
    await ask('POST', '/api/v1/timers', 403, { operations: [{ ...schedule('far'), delayMs: 1e12 }] });
    await ask('GET', '/api/v1/timers', 200);
    await ask('GET', '/api/v1/timers/later', 200);
    await ask('GET', '/api/v1/timers/later?mode=count&prefix=k', 200);
    await ask('GET', '/api/v1/timers/later?mode=none', 400);
    await ask('GET', '/api/v1/timers/later/k', 200);
    await ask('GET', '/api/v1/timers/later/none', 200);
    await ask('DELETE', '/api/v1/timers/later/k', 200);
  });

  await t.test('dead letters, lookup, reading by offset', async () => {
    const letters = await ask('GET', '/api/v1/dlq?queue=ns.task', 200);
    const { id, partitionId, transactionId } = letters.messages[0]!;
    await ask('GET', '/api/v1/messages?queue=ns.task', 200);
    await ask('GET', '/api/v1/messages?status=none', 400);
    const message = `/api/v1/messages/${partitionId}/${transactionId}`;
    await ask('GET', message, 200);
    await ask('GET', `/api/v1/messages/${partitionId}/none`, 404);
    await ask('GET', `/api/v1/messages/find?transactionId=${transactionId}`, 200);
    await ask('GET', '/api/v1/analytics/dlq-signatures?queue=ns.task', 200);
    await ask('POST', `${message}/retry`, 200);
    await ask('POST', `/api/v1/dlq/${id}/replay`, 404);
    for (const partition of ['1', '2', '3']) await push('doomed', [partition], partition);
    const doomed = await ask('GET', '/api/v1/pop/queue/doomed?partitions=3', 200);
    await ask('POST', '/api/v1/ack/batch', 200, {
      acknowledgments: doomed.messages.map((each) => ({ ...each, status: 'dlq' })),
    });
    const { messages } = await ask('GET', '/api/v1/dlq?queue=doomed', 200);
    await ask('GET', '/api/v1/dlq?queue=doomed&data=false', 200);
    await ask('GET', `/api/v1/dlq/${messages[0]!.id}`, 200);
    await ask('POST', `/api/v1/dlq/${messages[0]!.id}/replay`, 200, { queue: 'again' });
    await ask('DELETE', `/api/v1/messages/${messages[1]!.partitionId}/${messages[1]!.transactionId}`, 200);
    await ask('DELETE', '/api/v1/dlq?queue=doomed', 200);
    await ask('DELETE', '/api/v1/dlq', 400);
    const note = { partitionId, transactionId, traceNames: ['order'], data: { text: 'seen' } };
    await ask('POST', '/api/v1/traces', 201, note);
    await ask('POST', '/api/v1/traces', 400, {});
    await ask('GET', `/api/v1/traces/${partitionId}/${transactionId}`, 200);
    await ask('GET', '/api/v1/traces/by-name/order', 200);
    await ask('GET', '/api/v1/traces/names', 200);
    const lane = { queue: 'ns.task', partition: 'p' };
    await ask('POST', '/api/v1/fetch', 200, {
      entries: [
        { ...lane, offset: 0 },
        { queue: 'none', offset: 0 },
      ],
    });
    await ask('POST', '/api/v1/fetch', 400, { entries: [{ ...lane, offset: -1 }] });
    await ask('POST', '/api/v1/fetch/offsets', 200, { entries: [{ ...lane, timestamp: '2020-01-01' }] });
    await ask('POST', '/api/v1/partitions/changed', 200, {
      entries: [{ queue: 'ns.task' }, { queue: 'none' }],
    });
  });

  await t.test('statistics', async () => {
    await ask('POST', '/api/v1/stats/refresh', 200);
    for (const path of [
      '',
      '/queues',
      '/queues/ns.task',
      '/queues/ns.task/partitions/p',
      '/analytics',
      '/buffers',
    ]) {
      await ask('GET', `/api/v1/status${path}`, 200);
    }
    await ask('GET', '/api/v1/status?from=soon', 400);
    const analytics = [
      'queue-lag',
      'queue-ops',
      'queue-parked-replicas',
      'retention?groupBy=queue',
      'workload?groupBy=queue',
    ];
    analytics.push('partition-liveness', 'system-metrics', 'worker-metrics?queue=ns.task', 'postgres-stats');
    for (const path of analytics) await ask('GET', `/api/v1/analytics/${path}`, 200);
  });

  await t.test('operation and connectors', async () => {
    const system = '/api/v1/system';
    await ask('POST', `${system}/maintenance`, 200, { enabled: false });
    await ask('POST', `${system}/maintenance`, 400, {});
    await ask('GET', `${system}/maintenance`, 200);
    await ask('POST', `${system}/maintenance/pop`, 200, { enabled: false });
    await ask('GET', `${system}/maintenance/pop`, 200);
    await ask('POST', `${system}/kv-timers`, 200, { kv: true });
    await ask('POST', `${system}/kv-timers`, 400, {});
    await ask('GET', `${system}/kv-timers`, 200);
    await ask('GET', `${system}/shared-state`, 200);
    await ask('GET', '/internal/api/shared-state/stats', 200);
    await ask('GET', '/internal/api/inter-instance/stats', 200);
    await ask('POST', '/internal/api/notify', 200, { queue: 'ns.task' });
    for (const path of ['/health', '/health/live', '/status', '/metrics', '/auth/me', '/openapi.json']) {
      await ask('GET', path, 200);
    }
    await ask('POST', '/auth/logout', 200);
    const connection = { host: '127.0.0.1', database: 'd', user: 'u' };
    const sink = { kind: 'sink', connection, sink: { queue: 'q', table: 'public.t', mode: 'append' } };
    const source = { kind: 'source', connection, source: { tables: [{ table: 't', queue: 'q' }] } };
    await ask('PUT', '/api/v1/connectors/out', 200, sink);
    await ask('PUT', '/api/v1/connectors/in', 200, source);
    await ask('PUT', '/api/v1/connectors/in', 409, sink);
    await ask('PUT', '/api/v1/connectors/in', 400, { kind: 'none' });
    await ask('GET', '/api/v1/connectors', 200);
    await ask('GET', '/api/v1/connectors/in', 200);
    await ask('GET', '/api/v1/connectors/none', 404);
    await ask('POST', '/api/v1/connectors/in/resync', 202);
    await ask('POST', '/api/v1/connectors/out/resync', 400);
    await ask('DELETE', '/api/v1/connectors/in', 202);
    await ask('DELETE', '/api/v1/connectors/out', 200);
    await ask('DELETE', '/api/v1/resources/queues/ns.task', 200);
  });

  const missed = api.operations
    .filter(({ path }) => !NO_JSON.includes(path))
    .map(({ method, path }) => `${method} ${path}`)
    .filter((each) => !done.has(each));
  assert.deepEqual(missed, [], 'every route was asked');
});
