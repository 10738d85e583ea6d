/** How failures of the engine look on the KV and transaction routes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EngineError } from '../../src/engine/errors.ts';
import { openWire, type Wire } from './wire.ts';

const GET = '{"operations":[{"op":"get","ns":"n","key":"k"}]}';

async function post(wire: Wire, path: string, body: string) {
  const response = await fetch(`${wire.url}${path}`, { method: 'POST', body });
  const type = response.headers.get('content-type');
  return {
    status: response.status,
    type,
    retryAfter: response.headers.get('retry-after'),
    body: (await response.json()) as Record<string, unknown>,
  };
}

test('KV: each kind of failure has its status, its code and nothing else in error', async (t) => {
  const wire = await openWire(t);
  const cases: [EngineError, number, string, string | undefined, string | null][] = [
    [
      new EngineError('overloaded', 'rate_limited', 'slow down', { retryAfterSeconds: 3 }),
      429,
      'rate_limited',
      undefined,
      '3',
    ],
    [
      new EngineError('unavailable', 'kv_disabled', 'off', { retryAfterSeconds: 5 }),
      503,
      'kv_disabled',
      undefined,
      '5',
    ],
    [
      new EngineError('unavailable', 'kv_unavailable', 'busy', { retryAfterSeconds: 1 }),
      503,
      'kv_unavailable',
      undefined,
      '1',
    ],
    [new EngineError('in_doubt', 'database_connection', 'lost'), 500, 'kv_unavailable', 'in_doubt', null],
    [new EngineError('refused', 'database_error', 'what'), 500, 'kv_unavailable', 'database_error', null],
    [
      new EngineError('refused', 'feature_gated', 'no plan', { reason: 'feature_gated' }),
      403,
      'feature_gated',
      'feature_gated',
      null,
    ],
    [
      new EngineError('refused', 'kv_quota_exceeded', 'full', { reason: 'x' }),
      403,
      'kv_quota_exceeded',
      'x',
      null,
    ],
  ];
  for (const [error, status, code, reason, retryAfter] of cases) {
    wire.broker.onKv = () => Promise.reject(error);
    const answer = await post(wire, '/api/v1/kv', GET);
    const seen = [answer.status, answer.body.error, answer.body.code, answer.body.reason, answer.retryAfter];
    assert.deepEqual(seen, [status, code, code, reason, retryAfter], error.code);
    assert.equal(answer.body.message, error.message);
    assert.match(answer.type!, /application\/json/);
  }
});

test('transactions: what nothing was written of, and what nobody knows', async (t) => {
  const wire = await openWire(t);
  const body = '{"operations":[{"type":"push","queue":"q"}]}';
  const fail = async (error: EngineError) => {
    wire.broker.onTransaction = () => Promise.reject(error);
    return post(wire, '/api/v1/transaction', body);
  };
  const pool = await fail(new EngineError('unavailable', 'pool', 'no database connection'));
  assert.deepEqual([pool.status, pool.body.error], [500, 'pool']);
  const full = await fail(new EngineError('overloaded', 'overloaded', 'too much', { retryAfterSeconds: 1 }));
  assert.deepEqual([full.status, full.body.code, full.retryAfter], [429, 'overloaded', '1']);
  const doubt = await fail(new EngineError('in_doubt', 'database_connection', 'lost'));
  assert.deepEqual([doubt.status, doubt.body.code], [500, 'in_doubt']);
  assert.match(doubt.body.error as string, /^transaction failed/);
  const gated = await fail(new EngineError('refused', 'feature_gated', 'no plan'));
  assert.deepEqual(
    [gated.status, gated.body.error, gated.body.success, gated.body.reason],
    [403, 'feature_gated', false, 'feature_gated'],
  );
});

test('transactions: payloads stay bytes, timers and leases are passed on', async (t) => {
  const wire = await openWire(t);
  await post(
    wire,
    '/api/v1/transaction',
    '{"requiredLeases":["l"],"timers":[{"op":"cancel","queue":"q","timerKey":"k"}],"operations":[{"queue":"q\\/x","payload": {"n":1.10 } ,"type":"push"},' +
      '{"type":"push","items":[]},{"type":"ack","transactionId":"t","partitionId":"7","status":"nack","leaseId":""}]}',
  );
  const [seen] = wire.broker.transactions;
  const cancel = { op: 'cancel', queue: 'q', timerKey: 'k', transactionId: null };
  assert.deepEqual([seen!.requiredLeases, seen!.timers, seen!.origin], [['l'], [cancel], 'client']);
  const first = seen!.operations[0]!;
  const second = seen!.operations[1]!;
  assert.ok(first.type === 'push' && second.type === 'ack');
  assert.deepEqual([first.item.queue, first.item.payload.toString()], ['q/x', '{"n":1.10 }']);
  assert.deepEqual(
    [second.item.status, second.item.leaseId, second.group],
    ['failed', null, '__QUEUE_MODE__'],
  );
});
