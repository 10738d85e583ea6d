/** What arrives on the socket: oversized, compressed, slow, broken, pipelined, half-closed. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { EMPTY_POP } from './fake_broker.ts';
import { get, openWire, post, RawClient, until } from './wire.ts';

const ITEM = '{"items":[{"queue":"q","payload":1}]}';

function error(body: string): { error: string; code: string } {
  return JSON.parse(body);
}

test('a body over the cap is a plain-text 413, announced or found out, on hot and other routes', async (t) => {
  const wire = await openWire(t, { bodyBytesMax: 1000 });
  const big = 'x'.repeat(1001);
  const chunked = `POST /api/v1/push HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n${big}\r\n0\r\n\r\n`;
  const requests = [
    post('/api/v1/push', big),
    post('/api/v1/ack', big),
    post('/api/v1/ack/batch', big),
    post('/api/v1/configure', big),
    post('/api/v1/lease/x/extend', big),
    chunked,
    chunked.replace('/push', '/configure'),
  ];
  for (const request of requests) {
    const client = await RawClient.open(wire.port, t);
    const answer = await client.send(request).answer();
    assert.equal(answer!.status, 413);
    assert.match(answer!.headers['content-type']!, /^text\/plain/);
    assert.match(answer!.body, /larger than 1000 bytes/);
  }
  assert.equal(wire.broker.pushes.length + wire.broker.acks.length + wire.broker.configures.length, 0);
});

test('the body limit is exact', async (t) => {
  const wire = await openWire(t, { bodyBytesMax: ITEM.length });
  assert.equal((await fetch(`${wire.url}/api/v1/push`, { method: 'POST', body: ITEM })).status, 201);
  assert.equal((await fetch(`${wire.url}/api/v1/push`, { method: 'POST', body: `${ITEM} ` })).status, 413);
});

test('a client that is still sending reads its 413', async (t) => {
  const wire = await openWire(t, { bodyBytesMax: 1000 });
  const answer = await fetch(`${wire.url}/api/v1/push`, {
    method: 'POST',
    body: 'x'.repeat(8 << 20),
  });
  assert.equal(answer.status, 413);
  await answer.text();
});

test('a large body is one push', { timeout: 20_000 }, async (t) => {
  const wire = await openWire(t);
  const body = `{"items":[{"queue":"q","payload":"${'x'.repeat(60 << 20)}"}]}`;
  const answer = await fetch(`${wire.url}/api/v1/push`, { method: 'POST', body });
  assert.equal(answer.status, 201);
  await answer.text();
  assert.equal(wire.broker.pushes[0]!.items[0]!.payload.length, (60 << 20) + 2);
});

test('a compressed body is refused by name', async (t) => {
  const wire = await openWire(t);
  for (const path of ['/api/v1/push', '/api/v1/ack', '/api/v1/configure']) {
    const client = await RawClient.open(wire.port, t);
    const answer = await client.send(post(path, gzipSync(ITEM), { 'Content-Encoding': 'gzip' })).answer();
    assert.equal(answer!.status, 415, path);
    assert.equal(error(answer!.body).code, 'unsupported_encoding');
  }
  const client = await RawClient.open(wire.port, t);
  const plain = await client.send(post('/api/v1/push', ITEM, { 'Content-Encoding': 'identity' })).answer();
  assert.equal(plain!.status, 201);
});

test('the content type does not matter, an empty body is no body', async (t) => {
  const wire = await openWire(t);
  for (const type of ['text/plain', 'application/xml', 'garbage;;;', '', 'multipart/form-data']) {
    for (const [path, body] of [
      ['/api/v1/push', ITEM],
      ['/api/v1/configure', '{"queue":"q"}'],
    ] as const) {
      const client = await RawClient.open(wire.port, t);
      const answer = await client.send(post(path, body, { 'Content-Type': type })).answer();
      assert.ok(answer!.status < 300, `${type} ${path} ${answer!.body}`);
    }
  }
  const json = { 'Content-Type': 'application/json' };
  const lease = '/api/v1/lease/0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11/extend';
  assert.equal((await fetch(wire.url + lease, { method: 'POST', headers: json })).status, 200);
  assert.equal(
    (await fetch(`${wire.url}/api/v1/resources/queues/q`, { method: 'DELETE', headers: json })).status,
    200,
  );
  assert.equal((await fetch(`${wire.url}/api/v1/resources/queues`, { headers: json })).status, 200);
  assert.equal((await fetch(`${wire.url}/api/v1/pop/queue/q`, { headers: json })).status, 204);
});

test('Expect: 100-continue is granted, unless the body would be refused anyway', async (t) => {
  const wire = await openWire(t, { bodyBytesMax: 1000 });
  const granted = await RawClient.open(wire.port, t);
  const head = `POST /api/v1/push HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n`;
  granted.send(`${head}Content-Length: ${ITEM.length}\r\n\r\n`);
  assert.equal((await granted.answer())!.status, 100);
  assert.equal((await granted.send(ITEM).answer())!.status, 201);
  const refused = await RawClient.open(wire.port, t);
  assert.equal((await refused.send(`${head}Content-Length: 1001\r\n\r\n`).answer())!.status, 413);
  const other = await RawClient.open(wire.port, t);
  const odd = await other.send('GET /health HTTP/1.1\r\nHost: x\r\nExpect: cake\r\n\r\n').answer();
  assert.equal(odd!.status, 417);
});

test('pipelined requests are answered in their order', async (t) => {
  const wire = await openWire(t);
  wire.broker.onPop = async () => {
    await new Promise((resolve) => setTimeout(resolve, 50));
    return EMPTY_POP;
  };
  const client = await RawClient.open(wire.port, t);
  const push = post('/api/v1/push', ITEM).toString();
  client.send(get('/api/v1/pop/queue/q') + push + get('/health/live') + push + get('/nothing'));
  const statuses = [];
  for (let i = 0; i < 5; i++) statuses.push((await client.answer())!.status);
  assert.deepEqual(statuses, [204, 201, 200, 201, 404]);
});

test('garbage behind a good request: the good one is answered, then the garbage, then the end', async (t) => {
  const wire = await openWire(t);
  let deliver: () => void = () => {};
  wire.broker.onPop = () =>
    new Promise((resolve) => {
      deliver = () => resolve(EMPTY_POP);
    });
  const client = await RawClient.open(wire.port, t);
  client.send(`${get('/api/v1/pop/queue/q')}\0\0\0 what is this\r\n\r\n`);
  await until(() => wire.broker.pops.length === 1 && wire.traffic.refused.size > 0);
  deliver();
  assert.equal((await client.answer())!.status, 204);
  const second = await client.answer();
  assert.equal(second!.status, 400);
  assert.equal(error(second!.body).code, 'malformed_http');
  await client.closed();
});

test('bytes that are no HTTP get a JSON 400 and the end of the connection', async (t) => {
  const wire = await openWire(t);
  const bodies = [
    'hello\r\n\r\n',
    '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03',
    'GET / HTTP/9.9\r\n\r\n',
    'GET / HTTP/1.1\r\nbad header\r\n\r\n',
    'POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n',
    'POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd',
    'POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc',
    'POST /api/v1/push HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
  ];
  for (const bytes of bodies) {
    const client = await RawClient.open(wire.port, t);
    const answer = await client.send(Buffer.from(bytes, 'latin1')).answer();
    assert.equal(answer!.status, 400, JSON.stringify(bytes));
    assert.equal(error(answer!.body).code, 'malformed_http');
    await client.closed();
  }
  assert.equal(wire.broker.pushes.length, 0);
  assert.equal((await fetch(`${wire.url}/health/live`)).status, 200);
});

test('headers beyond all measure: 431', async (t) => {
  const wire = await openWire(t);
  const client = await RawClient.open(wire.port, t);
  const answer = await client.send(`GET /${'x'.repeat(100_000)} HTTP/1.1\r\nHost: x\r\n\r\n`).answer();
  assert.equal(answer!.status, 431);
  assert.equal(error(answer!.body).code, 'headers_too_large');
});

test('no Host header, an absolute target, HTTP/1.0: all served', async (t) => {
  const wire = await openWire(t);
  for (const request of [
    'GET /health/live HTTP/1.1\r\n\r\n',
    'GET http://queen:6632/health/live HTTP/1.1\r\nHost: queen\r\n\r\n',
    'GET http://queen/api/v1/pop/queue/q?batch=1 HTTP/1.1\r\nHost: queen\r\n\r\n',
    'GET /health/live HTTP/1.0\r\n\r\n',
  ]) {
    const client = await RawClient.open(wire.port, t);
    const answer = await client.send(request).answer();
    assert.ok(answer!.status === 200 || answer!.status === 204, request);
  }
});

test('unknown routes: 404 with the code of the wire', async (t) => {
  const wire = await openWire(t);
  const requests: [string, string][] = [
    ['GET', '/api/v1/nothing'],
    ['GET', '/index.html'],
    ['POST', '/api/v1/push/'],
    ['POST', '/api/v1/ack/other'],
    ['GET', '/api/v1/pop/queue/'],
    ['GET', '/api/v1/pop/queue/a/b'],
    ['GET', '/api/v1/pop/queue/a/partition/b/c'],
    ['GET', '/api/v1/popcorn'],
    ['GET', '/api/v1/resources/partitions'],
    ['DELETE', '/api/v1/queues/q/clear'],
    ['POST', '/api/v1/messages/1/t/dlq'],
    ['PUT', '/api/v1/kv/ns'],
    ['QUERY', '/api/v1/pushed'],
  ];
  for (const [method, path] of requests) {
    const answer = await fetch(wire.url + path, { method });
    assert.equal(answer.status, 404, `${method} ${path}`);
    assert.deepEqual(await answer.json(), { error: 'Not Found', code: 'no_such_route' }, `${method} ${path}`);
  }
  const head = await fetch(`${wire.url}/nothing`, { method: 'HEAD' });
  assert.equal(head.status, 404);
  const connect = await RawClient.open(wire.port, t);
  connect.send('CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n');
  await connect.closed();
});

test('a known path with another method: 405 with the methods that it has', async (t) => {
  const wire = await openWire(t);
  const requests: [string, string, string][] = [
    ['GET', '/api/v1/push', 'POST'],
    ['OPTIONS', '/api/v1/push?x=/api/v1/pop', 'POST'],
    ['QUERY', '/api/v1/push', 'POST'],
    ['PUT', '/api/v1/configure', 'POST'],
    ['PATCH', '/health', 'GET, HEAD'],
    ['PROPFIND', '/', 'GET, HEAD'],
    ['POST', '/api/v1/resources/queues/a%2Fb', 'DELETE, GET, HEAD'],
    ['POST', '/api/v1/kv/ns/a/b/c', 'DELETE, GET, HEAD, PUT'],
    ['POST', '/api/v1/pop/queue/a/partition/b', 'GET'],
  ];
  for (const [method, path, allow] of requests) {
    const answer = await fetch(wire.url + path, { method });
    assert.deepEqual([answer.status, answer.headers.get('allow')], [405, allow], `${method} ${path}`);
    const body = (await answer.json()) as Record<string, unknown>;
    assert.equal(body.code, 'method_not_allowed');
    assert.match(String(body.error), new RegExp(`expected ${allow}`));
  }
});

test('the root says where to go', async (t) => {
  const wire = await openWire(t);
  const answer = await fetch(`${wire.url}/`);
  assert.equal(answer.status, 200);
  const index = (await answer.json()) as { name: string; version: string; links: Record<string, string> };
  assert.equal(index.name, 'Queen');
  for (const path of ['health', 'live', 'metrics', 'docs', 'openapi']) {
    assert.equal((await fetch(wire.url + index.links[path])).status, 200, path);
  }
});

test('an unknown route does not wait for its body, and a known one that follows is served', async (t) => {
  const wire = await openWire(t);
  const client = await RawClient.open(wire.port, t);
  client.send(post('/api/v1/nothing', 'x'.repeat(200_000)));
  assert.equal((await client.answer())!.status, 404);
});

test('an aborted upload takes nothing and leaves nothing', async (t) => {
  const wire = await openWire(t);
  for (const path of ['/api/v1/push', '/api/v1/ack', '/api/v1/configure']) {
    for (const end of ['reset', 'half-close'] as const) {
      const client = await RawClient.open(wire.port, t, true);
      client.send(post(path, ITEM).subarray(0, -5));
      const readings = () =>
        wire.metrics.expose().then((text) => /queen_http_body_bytes (\d+)/.exec(text)![1]);
      while ((await readings()) === '0') await new Promise((resolve) => setTimeout(resolve, 2));
      if (end === 'reset') client.socket.resetAndDestroy();
      else client.socket.end();
      while ((await readings()) !== '0') await new Promise((resolve) => setTimeout(resolve, 2));
      await client.closed();
    }
  }
  assert.equal(wire.broker.pushes.length + wire.broker.acks.length + wire.broker.configures.length, 0);
});

test('slow headers: 408 and the end', async (t) => {
  const wire = await openWire(t, { timeouts: { headers: 150, request: 300, check: 50 } });
  const client = await RawClient.open(wire.port, t);
  client.send('GET /health/live HTTP/1.1\r\nHost: x\r\nX-Slow: ');
  const drip = setInterval(() => client.send('x'), 20);
  t.after(() => clearInterval(drip));
  const answer = await client.answer();
  clearInterval(drip);
  assert.equal(answer!.status, 408);
  assert.equal(error(answer!.body).code, 'request_timeout');
  await client.closed();
});

test('a body that trickles: 408 and the end', async (t) => {
  const wire = await openWire(t, { timeouts: { headers: 150, request: 300, check: 50 } });
  for (const path of ['/api/v1/push', '/api/v1/configure']) {
    const client = await RawClient.open(wire.port, t);
    client.send(post(path, ITEM).subarray(0, -ITEM.length));
    const drip = setInterval(() => client.send(' '), 50);
    t.after(() => clearInterval(drip));
    const answer = await client.answer();
    clearInterval(drip);
    assert.equal(answer!.status, 408, path);
    await client.closed();
  }
  assert.equal(wire.broker.pushes.length, 0);
});

test('a body that falls silent: 408 and the end', async (t) => {
  const wire = await openWire(t, { bodyLimits: { silenceMs: 100 } });
  const client = await RawClient.open(wire.port, t);
  client.send(post('/api/v1/push', ITEM).subarray(0, -5));
  const answer = await client.answer();
  assert.equal(answer!.status, 408);
  client.socket.end();
  await client.closed();
});

test('the bytes of unanswered bodies are bounded: pushes are refused, acks wait', {
  timeout: 20_000,
}, async (t) => {
  const wire = await openWire(t, { bodyLimits: { allBytesMax: 300_000, pushPatienceMs: 100 } });
  let finish: () => void = () => {};
  const gate = new Promise<void>((resolve) => {
    finish = resolve;
  });
  wire.broker.onPush = async ({ items }) => {
    await gate;
    const transactionId = 't';
    return items.map(() => ({
      status: 'queued',
      messageId: 'm',
      transactionId,
      partitionId: null,
      offset: null,
      error: null,
    }));
  };
  const body = `{"items":[{"queue":"q","payload":"${'x'.repeat(200_000)}"}]}`;
  const first = fetch(`${wire.url}/api/v1/push`, { method: 'POST', body });
  await until(() => wire.broker.pushes.length === 1);
  const second = await fetch(`${wire.url}/api/v1/push`, { method: 'POST', body });
  assert.equal(second.status, 429);
  assert.equal(second.headers.get('retry-after'), '1');
  assert.equal(((await second.json()) as { code: string }).code, 'overloaded');
  const error = 'x'.repeat(200_000);
  const ack = fetch(`${wire.url}/api/v1/ack`, {
    method: 'POST',
    body: JSON.stringify({ transactionId: 't', partitionId: '1', error }),
  });
  await until(() => wire.traffic.refused.get('overloaded') === 1);
  assert.equal(wire.broker.acks.length, 0);
  finish();
  assert.equal((await first).status, 201);
  assert.equal((await ack).status, 200);
  assert.match(await wire.metrics.expose(), /queen_http_body_bytes 0/);
});

test('a body that is alone passes whatever the bound', async (t) => {
  const wire = await openWire(t, { bodyLimits: { allBytesMax: 10 } });
  const answer = await fetch(`${wire.url}/api/v1/push`, { method: 'POST', body: ITEM });
  assert.equal(answer.status, 201);
});

test('too many requests sent ahead on one connection cut it', async (t) => {
  const wire = await openWire(t);
  wire.broker.onPop = () => new Promise(() => {});
  const client = await RawClient.open(wire.port, t);
  client.send(get('/api/v1/pop/queue/q?wait=true').repeat(2000));
  await client.closed();
  assert.ok(wire.broker.pops.length <= 256);
  await until(() => wire.broker.pops.every(({ signal }) => signal!.aborted));
});

test('a client that does not take its answer is cut off, one that takes it slowly is not', async (t) => {
  const wire = await openWire(t);
  const payload = Buffer.from(`"${'x'.repeat(32 << 20)}"`);
  const createdAtMicros = 0;
  const message = {
    offset: 0,
    id: '',
    transactionId: '',
    traceId: null,
    producerSub: null,
    createdAtMicros,
    payload,
  };
  const claim = {
    queue: 'q',
    partition: 'p',
    partitionId: '1',
    lastOffset: 0,
    deliveryAttempt: 1,
    messages: [message],
  };
  wire.broker.onPop = async () => ({ ...EMPTY_POP, claims: [claim] });
  const sockets: Socket[] = [];
  const seen = (event: unknown) => sockets.push((event as { socket: Socket }).socket);
  subscribe('http.server.request.start', seen);
  t.after(() => unsubscribe('http.server.request.start', seen));
  const client = await RawClient.open(wire.port, t);
  client.socket.pause();
  client.send(get('/api/v1/pop/queue/q'));
  await until(() => sockets.length === 1 && sockets[0]!.timeout !== undefined && sockets[0]!.timeout > 0);
  assert.equal(sockets[0]!.timeout, 30_000);
  sockets[0]!.setTimeout(100);
  await until(() => sockets[0]!.destroyed);

  const patient = await RawClient.open(wire.port, t);
  patient.send(get('/api/v1/pop/queue/q'));
  assert.equal((await patient.answer())!.status, 200);
  patient.send(get('/health/live'));
  assert.equal((await patient.answer())!.status, 200);
  assert.ok(sockets[1]!.timeout !== 30_000, 'the guard ends with the answer');
});

test('idle connections are kept for longer than clients keep them, and the client is told', async (t) => {
  const wire = await openWire(t);
  const client = await RawClient.open(wire.port, t);
  const answer = await client.send(get('/health/live')).answer();
  const seconds = Number(/timeout=(\d+)/.exec(answer!.headers['keep-alive']!)![1]);
  assert.ok(seconds >= 35, `${seconds}`);
});
