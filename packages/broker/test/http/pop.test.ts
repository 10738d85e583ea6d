import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EngineError } from '../../src/engine/errors.ts';
import type { PopAnswer, PopClaim, PopRequest } from '../../src/engine/types.ts';
import { EMPTY_POP } from './fake_broker.ts';
import { get, openWire, RawClient, until } from './wire.ts';

const LEASE = '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11';

function claimOf(payloads: string[], more: Partial<PopClaim> = {}): PopClaim {
  return {
    queue: 'orders',
    partition: 'eu "1"',
    partitionId: '42',
    lastOffset: 9,
    deliveryAttempt: 1,
    messages: payloads.map((payload, i) => ({
      offset: i,
      id: LEASE,
      transactionId: `t-"${i}`,
      traceId: null,
      producerSub: null,
      createdAtMicros: 1_785_409_364_512_873 + i,
      payload: Buffer.from(payload),
    })),
    ...more,
  };
}

function answerOf(claims: PopClaim[], more: Partial<PopAnswer> = {}): PopAnswer {
  return { ...EMPTY_POP, leaseId: LEASE, claims, ...more };
}

test('parameters arrive typed, with the defaults of the wire', async (t) => {
  const wire = await openWire(t, { popTimeoutMs: 1234 });
  await fetch(`${wire.url}/api/v1/pop/queue/orders`);
  const { signal, ...first } = wire.broker.pops[0]!;
  assert.ok(signal !== null && !signal.aborted);
  assert.deepEqual(first, {
    tenant: '00000000-0000-0000-0000-000000000001',
    scope: { kind: 'queue', queue: 'orders' },
    group: '__QUEUE_MODE__',
    batch: null,
    partitions: null,
    autoAck: false,
    waitMs: 0,
    leaseSeconds: 0,
    subscriptionMode: 'new',
    subscriptionFrom: null,
    conflation: null,
    autopilot: false,
  });
  const all =
    'autopilot=true&batch=0&wait=true&consumerGroup=g&subscriptionMode=all&partitions=-1&autoAck=true' +
    '&leaseSeconds=-5&subscriptionFrom=2026-07-30T11:02:44.512873Z&conflation=false&surprise=%zz';
  await fetch(`${wire.url}/api/v1/pop?namespace=n&task=t&${all}`);
  const { signal: _signal, ...second } = wire.broker.pops[1]!;
  assert.deepEqual(second, {
    tenant: '00000000-0000-0000-0000-000000000001',
    scope: { kind: 'discovery', namespace: 'n', task: 't' },
    group: 'g',
    batch: 1,
    partitions: -1,
    autoAck: true,
    waitMs: 1234,
    leaseSeconds: 0,
    subscriptionMode: 'all',
    subscriptionFrom: 1_785_409_364_512_873,
    conflation: false,
    autopilot: true,
  });
});

test('words for a start: new and its alias, all for anything else; an unreadable instant is ignored', async (t) => {
  const wire = await openWire(t);
  const start = async (query: string) => {
    await fetch(`${wire.url}/api/v1/pop/queue/q?consumerGroup=g&${query}`);
    const { subscriptionMode, subscriptionFrom } = wire.broker.pops.at(-1)!;
    return [subscriptionMode, subscriptionFrom];
  };
  assert.deepEqual(await start('subscriptionMode=new'), ['new', null]);
  assert.deepEqual(await start('subscriptionMode=new-only'), ['new', null]);
  assert.deepEqual(await start('subscriptionMode=earliest'), ['all', null]);
  assert.deepEqual(await start('subscriptionMode=all&subscriptionFrom=garbage'), ['all', null]);
  assert.deepEqual(await start('subscriptionFrom=now'), ['new', 'now']);
  const defaulted = await openWire(t, { subscriptionMode: 'all' });
  await fetch(`${defaulted.url}/api/v1/pop/queue/q?consumerGroup=g`);
  assert.equal(defaulted.broker.pops[0]!.subscriptionMode, 'all');
});

test('a namespace on a queue route is ignored, discovery without a scope is refused', async (t) => {
  const wire = await openWire(t);
  await fetch(`${wire.url}/api/v1/pop/queue/q?namespace=n`);
  assert.deepEqual(wire.broker.pops[0]!.scope, { kind: 'queue', queue: 'q' });
  const answer = await fetch(`${wire.url}/api/v1/pop?namespace=`);
  assert.equal(answer.status, 400);
  const { code, ...body } = (await answer.json()) as Record<string, unknown>;
  assert.deepEqual(body, { success: false, error: 'namespace or task is required', messages: [] });
});

test('conflation needs a group and refuses autoAck', async (t) => {
  const wire = await openWire(t);
  for (const query of [
    'conflation=true',
    'conflation=true&consumerGroup=__QUEUE_MODE__',
    'conflation=true&consumerGroup=g&autoAck=true',
    'conflation=true&consumerGroup=g&commitOnDelivery=true',
  ]) {
    const answer = await fetch(`${wire.url}/api/v1/pop/queue/q?${query}`);
    assert.equal(answer.status, 400, query);
    await answer.text();
  }
  assert.equal(wire.broker.pops.length, 0);
});

test('an answer with messages: the envelope, every key of a message, payload bytes untouched', async (t) => {
  const wire = await openWire(t);
  const big = `"${'x'.repeat(100_000)}"`;
  const payloads = [
    '{"n":1e400, "n":-0}',
    '123456789012345678901234567890',
    '"\\ud800"',
    big,
    'null',
    '"ü😀"',
  ];
  const other = claimOf(['[1, 2]'], { partition: 'us', partitionId: '43', deliveryAttempt: 3 });
  other.messages[0]!.traceId = LEASE;
  other.messages[0]!.producerSub = 'alice"';
  wire.broker.onPop = async () => answerOf([claimOf(payloads), other]);
  const response = await fetch(`${wire.url}/api/v1/pop/queue/orders?consumerGroup=w%22`);
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('content-type'), 'application/json');
  const text = await response.text();
  assert.equal(Number(response.headers.get('content-length')), Buffer.byteLength(text));
  let at = 0;
  for (const payload of [...payloads, '[1, 2]']) {
    const found = text.indexOf(`"data":${payload},"producerSub"`, at);
    assert.ok(found > 0, payload.slice(0, 40));
    at = found;
  }
  const { messages, ...envelope } = JSON.parse(text);
  assert.deepEqual(envelope, {
    success: true,
    queue: 'orders',
    partition: 'eu "1"',
    partitionId: '42',
    leaseId: LEASE,
    consumerGroup: 'w"',
    partitionsClaimed: 2,
  });
  const { data: _data, ...last } = messages.at(-1);
  assert.deepEqual(last, {
    id: LEASE,
    transactionId: 't-"0',
    traceId: LEASE,
    producerSub: 'alice"',
    createdAt: '2026-07-30T11:02:44.512873Z',
    partitionId: '43',
    partition: 'us',
    leaseId: LEASE,
    consumerGroup: 'w"',
    deliveryAttempt: 3,
    offset: 0,
  });
  assert.equal(wire.traffic.popMessages, 7);
  assert.equal(wire.traffic.redeliveredMessages, 1);
});

test('on discovery the envelope names no queue, each message does', async (t) => {
  const wire = await openWire(t);
  wire.broker.onPop = async () =>
    answerOf([claimOf(['1'])], { autopilot: { partitions: 4, batch: 100, waitMs: 5 } });
  const json = (await (await fetch(`${wire.url}/api/v1/pop?task=t`)).json()) as {
    queue: string;
    autopilot: unknown;
    messages: { queue: string }[];
  };
  assert.equal(json.queue, '');
  assert.equal(json.messages[0]!.queue, 'orders');
  assert.deepEqual(json.autopilot, { partitions: 4, batch: 100, waitMs: 5 });
});

test('nothing to deliver: a 204 with neither body nor Content-Length, on a connection that stays', async (t) => {
  const wire = await openWire(t);
  const client = await RawClient.open(wire.port, t);
  for (let i = 0; i < 2; i++) {
    const answer = await client.send(get('/api/v1/pop/queue/q')).answer();
    assert.equal(answer!.status, 204);
    assert.equal(answer!.headers['content-length'], undefined);
    assert.equal(answer!.headers['transfer-encoding'], undefined);
    assert.equal(answer!.body, '');
  }
});

test('a conflating group gets a body where others get a 204', async (t) => {
  const wire = await openWire(t);
  const empty = async (query: string, more: Partial<PopAnswer>) => {
    wire.broker.onPop = async () => ({ ...EMPTY_POP, ...more });
    const answer = await fetch(`${wire.url}/api/v1/pop/queue/q?consumerGroup=g${query}`);
    return answer.status === 204 ? 204 : ((await answer.json()) as Record<string, unknown>);
  };
  const envelope = {
    success: true,
    queue: 'q',
    partition: '',
    partitionId: '',
    leaseId: '',
    consumerGroup: 'g',
  };
  const told = { ...envelope, partitionsClaimed: 0, messages: [] };
  assert.deepEqual(await empty('', { conflation: true }), { ...told, conflation: true });
  assert.deepEqual(await empty('&conflation=true', {}), { ...told, conflation: true });
  assert.deepEqual(await empty('&conflation=true', { conflationConflict: true }), {
    ...told,
    conflationConflict: true,
  });
  assert.deepEqual(await empty('&conflation=true', { paused: true }), {
    messages: [],
    paused: true,
    conflation: true,
  });
  assert.equal(await empty('', { paused: true }), 204);
});

test('failures: no connection and timeouts are 500, a refused statement is nothing to deliver', async (t) => {
  const wire = await openWire(t);
  const fail = async (error: Error, path = '') => {
    wire.broker.onPop = async () => {
      throw error;
    };
    const answer = await fetch(`${wire.url}/api/v1/pop/queue/q${path}`);
    const text = await answer.text();
    return [answer.status, text === '' ? null : (JSON.parse(text) as { error: string }).error];
  };
  assert.deepEqual(await fail(new EngineError('unavailable', 'pool', 'no connection')), [500, 'pool']);
  assert.deepEqual(await fail(new EngineError('unavailable', 'database_timeout', 'canceled')), [
    500,
    'pop failed',
  ]);
  assert.deepEqual(await fail(new EngineError('in_doubt', 'connection', 'lost')), [500, 'pop failed']);
  assert.deepEqual(await fail(new EngineError('refused', 'database_error', 'P0001')), [204, null]);
  const corrupt = new EngineError('refused', 'corrupt_segment', 'partition 4 at offset 7');
  assert.deepEqual(await fail(corrupt), [204, null]);
  assert.deepEqual(await fail(corrupt, '/partition/p'), [500, 'pop failed: partition 4 at offset 7']);
  assert.deepEqual(await fail(new EngineError('refused', 'bad_group', 'no')), [400, 'no']);
});

test('a client that goes away aborts its pop; what the engine says then hurts nobody', async (t) => {
  for (const ending of ['reset', 'half-close'] as const) {
    for (const outcome of ['claim', 'empty', 'error'] as const) {
      const wire = await openWire(t);
      let seen: PopRequest | undefined;
      wire.broker.onPop = (request) => {
        seen = request;
        return new Promise((resolve, reject) => {
          request.signal!.addEventListener('abort', () => {
            if (outcome === 'claim') resolve(answerOf([claimOf(['1'])]));
            else if (outcome === 'empty') resolve(EMPTY_POP);
            else reject(new Error('aborted'));
          });
        });
      };
      const client = await RawClient.open(wire.port, t, true);
      client.send(get('/api/v1/pop/queue/q?wait=true&timeout=60000'));
      await until(() => seen !== undefined);
      assert.equal(seen!.signal!.aborted, false);
      if (ending === 'reset') client.socket.resetAndDestroy();
      else client.socket.end();
      await until(() => seen!.signal!.aborted);
      assert.equal((await fetch(`${wire.url}/health/live`)).status, 200);
      await wire.close();
    }
  }
});

test('a client that goes away after the claim and before the answer', async (t) => {
  const wire = await openWire(t);
  let deliver: (answer: PopAnswer) => void = () => {};
  wire.broker.onPop = () =>
    new Promise((resolve) => {
      deliver = resolve;
    });
  const client = await RawClient.open(wire.port, t);
  client.send(get('/api/v1/pop/queue/q'));
  await until(() => wire.broker.pops.length === 1);
  client.socket.resetAndDestroy();
  await until(() => wire.broker.pops[0]!.signal!.aborted);
  deliver(answerOf([claimOf(['1'.repeat(1_000_000)])]));
  assert.equal((await fetch(`${wire.url}/health/live`)).status, 200);
});

test('pipelined long polls are all told when their connection ends', async (t) => {
  const wire = await openWire(t);
  wire.broker.onPop = () => new Promise(() => {});
  const client = await RawClient.open(wire.port, t);
  client.send(get('/api/v1/pop/queue/q?wait=true').repeat(5));
  await until(() => wire.broker.pops.length === 5);
  client.socket.destroy();
  await until(() => wire.broker.pops.every(({ signal }) => signal!.aborted));
});

test('waiting pops are counted while they wait, stuck batches for ever', async (t) => {
  const wire = await openWire(t);
  let deliver: (answer: PopAnswer) => void = () => {};
  wire.broker.onPop = () =>
    new Promise((resolve) => {
      deliver = resolve;
    });
  const parked = fetch(`${wire.url}/api/v1/pop/queue/q%22?wait=true`);
  await until(() => wire.broker.pops.length === 1);
  assert.match(await wire.metrics.expose(), /^queen_parked_long_polls\{queue="q\\""\} 1$/m);
  deliver(answerOf([claimOf(['1'], { deliveryAttempt: 9 }), claimOf(['1'], { deliveryAttempt: 10 })]));
  await (await parked).text();
  const text = await wire.metrics.expose();
  assert.doesNotMatch(text, /^queen_parked_long_polls\{/m);
  assert.match(text, /^queen_pop_repeated_offset_total 1$/m);
  assert.match(text, /^queen_pop_wildcard_total 1$/m);
});

test('HEAD and other methods on a pop claim nothing', async (t) => {
  const wire = await openWire(t);
  for (const method of ['HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'PROPFIND']) {
    const answer = await fetch(`${wire.url}/api/v1/pop/queue/q`, { method });
    assert.equal(answer.status, 405, method);
    assert.equal(answer.headers.get('allow'), 'GET', method);
    await answer.text();
  }
  assert.equal(wire.broker.pops.length, 0);
});
