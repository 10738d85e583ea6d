/**
 * Every route with every role, and with another tenant's ids.
 *
 * The first walk goes over the whole list of routes, those without a handler included: who may not, hears 401 or 403
 * before anything else is judged, and who may, hears something else. The second asks each route of a tenant's data for
 * what belongs to somebody else, and for what does not exist, and compares the two answers to the byte, with names and
 * times taken out. At the end the owner finds everything as it was.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAccess } from '../../packages/broker/src/http/access/access.ts';
import { TokenVerifier } from '../../packages/broker/src/http/access/verifier.ts';
import { RULES, SECRET, sign } from '../../packages/broker/test/http/access/issuer.ts';
import { ADMITTED, ROLES, ROUTES } from '../../packages/broker/test/http/access/route_table.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { ENGINE_DEFAULTS } from '../kit/engine.ts';
import type { Message, Pushed, Verdict } from './client.ts';
import { type Live, openLive } from './live.ts';

const OWNER = '00000000-0000-4000-8000-00000000000a';
const STRANGER = '00000000-0000-4000-8000-00000000000b';
const NOBODY = '00000000-0000-4000-8000-00000000000c';
const WALKER = '00000000-0000-4000-8000-00000000000d';

function open(t: Cleanup): Promise<Live> {
  const verifier = new TokenVerifier({
    algorithm: 'HS256',
    secret: SECRET,
    publicKey: null,
    jwks: null,
    claims: RULES,
  });
  return openLive(t, {
    settings: { tenancy: true, kv: { ...ENGINE_DEFAULTS.kv, requireGrant: false } },
    server: { access: createAccess({ verifier, skipPaths: ['/health'], tenancy: true }) },
    connectors: true,
  });
}

const bearer = (token: string, tenant?: string): Record<string, string> => ({
  authorization: `Bearer ${token}`,
  ...(tenant === undefined ? {} : { 'x-queen-tenant': tenant }),
});

/** The names and ids that a request is made of. */
interface Names {
  queue: string;
  partition: string;
  partitionId: string;
  transactionId: string;
  leaseId: string;
  dlqId: string;
  group: string;
  key: string;
  ns: string;
  trace: string;
}

function target(path: string, names: Names): string {
  const values: Record<string, string> = {
    ':queue': names.queue,
    ':partitionId': names.partitionId,
    ':partition': names.partition,
    ':transactionId': names.transactionId,
    ':leaseId': names.leaseId,
    ':id': names.dlqId,
    ':group': names.group,
    ':ns': names.ns,
    ':name': names.trace,
    '*': names.key,
  };
  const filled = path.replaceAll(/:\w+|\*/g, (name) => encodeURIComponent(values[name]!));
  const query: Record<string, string> = {
    '/api/v1/pop': `?namespace=${names.queue}`,
    '/api/v1/dlq': `?queue=${names.queue}`,
    '/api/v1/messages': `?queue=${names.queue}`,
    '/api/v1/resources/queues/:queue/depth': `?group=${names.group}`,
    '/api/v1/timers/:queue': '?mode=list',
    '/api/v1/analytics/queue-ops': `?queue=${names.queue}`,
  };
  return filled + (query[path] ?? '');
}

const CONNECTOR = {
  kind: 'source',
  connection: { host: 'db', database: 'd', user: 'u' },
  source: { tables: [{ table: 't', queue: 'q' }], slot: 'walked', publication: 'walked' },
};

function body(method: string, path: string, names: Names): unknown {
  const { queue, partition, partitionId, transactionId, leaseId, group, key, ns } = names;
  const ack = { partitionId, transactionId, leaseId, consumerGroup: group, status: 'completed' };
  const fetched = { partitionId, partition, queue, offset: 0, limit: 10 };
  const bodies: Record<string, unknown> = {
    'POST /api/v1/push': { items: [{ queue, partition, payload: 1, transactionId }] },
    'POST /api/v1/ack': ack,
    'POST /api/v1/ack/batch': { consumerGroup: group, acknowledgments: [ack] },
    'POST /api/v1/lease/:leaseId/extend': { seconds: 60 },
    'POST /api/v1/configure': { queue, options: { leaseTime: 77 } },
    'POST /api/v1/transaction': { operations: [{ type: 'ack', ...ack }], requiredLeases: [leaseId] },
    'POST /api/v1/kv': { operations: [{ op: 'get', ns, key }] },
    'PUT /api/v1/kv/:ns/*': { value: 'theirs', forever: true },
    'POST /api/v1/resources/kv/list': { namespace: ns },
    'POST /api/v1/timers': { operations: [{ op: 'cancel', queue, timerKey: key }] },
    'POST /api/v1/consumer-groups/:group/subscription': { subscriptionTimestamp: '2026-01-01T00:00:00Z' },
    'POST /api/v1/consumer-groups/:group/queues/:queue/seek': { toEnd: true },
    'POST /api/v1/consumer-groups/:group/queues/:queue/partitions/:partition/seek': { toEnd: true },
    'POST /api/v1/fetch': { ...fetched, partitions: [fetched], entries: [fetched] },
    'POST /api/v1/fetch/offsets': { ...fetched, partitions: [fetched], entries: [fetched] },
    'POST /api/v1/partitions/changed': { queue, since: 0 },
    'POST /api/v1/traces': { partitionId, transactionId, consumerGroup: group, data: { text: 'x' } },
    'POST /streams/v1/state/get': { query_id: leaseId },
    'POST /streams/v1/cycle': { query_id: leaseId },
    'POST /internal/api/notify': { queue },
    'PUT /api/v1/connectors/:name': CONNECTOR,
  };
  return bodies[`${method} ${path}`] ?? (method === 'GET' || method === 'DELETE' ? undefined : {});
}

async function text(
  live: Live,
  method: string,
  path: string,
  headers: Record<string, string>,
  sent?: unknown,
) {
  const response = await fetch(live.client.url + path, {
    method,
    headers: { 'content-type': 'application/json', ...headers },
    ...(sent === undefined ? {} : { body: JSON.stringify(sent) }),
  });
  return {
    status: response.status,
    text: await response.text(),
    challenge: response.headers.get('www-authenticate'),
  };
}

const SPARE: Names = {
  queue: 'walked',
  partition: 'p',
  partitionId: '999999999',
  transactionId: 't',
  leaseId: '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11',
  dlqId: '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a12',
  group: 'walkers',
  key: 'k',
  ns: 'walk',
  trace: 'trace',
};

test('every route lets in exactly the roles that its level names', async (t) => {
  const live = await open(t);
  const tokens: [string, Record<string, string>, (typeof ROLES)[number] | null][] = [];
  for (const role of ROLES) tokens.push([role, bearer(await sign('HS256', SECRET, { role }), WALKER), role]);
  tokens.push(['no role', bearer(await sign('HS256', SECRET, { sub: 's' }), WALKER), null]);
  for (const { method, path, level } of ROUTES) {
    const sent = body(method, path, SPARE);
    const at = target(path, SPARE);
    const anonymous = await text(live, method, at, {}, sent);
    if (level === 'public')
      assert.ok(![401, 403].includes(anonymous.status) || path === '/auth/me', `${method} ${path}`);
    else {
      assert.equal(anonymous.status, 401, `${method} ${path}`);
      assert.deepEqual(JSON.parse(anonymous.text), {
        error: 'Authentication required',
        code: 'auth_required',
      });
      assert.equal(anonymous.challenge, 'Bearer');
    }
    for (const [name, headers, role] of tokens) {
      const what = `${method} ${path} as ${name}`;
      const answer = await text(live, method, at, headers, sent);
      if (level !== 'public' && (role === null || !ADMITTED[level].includes(role))) {
        assert.equal(answer.status, 403, what);
        assert.deepEqual(
          JSON.parse(answer.text),
          { error: 'Insufficient permissions', code: 'forbidden' },
          what,
        );
      } else {
        assert.ok(![401, 403, 500, 501].includes(answer.status), `${what}: ${answer.status} ${answer.text}`);
      }
    }
  }
});

test('a malformed tenant is refused where a tenant counts, and not looked at elsewhere', async (t) => {
  const live = await open(t);
  const token = await sign('HS256', SECRET, { role: 'admin' });
  for (const { method, path, tenant } of ROUTES) {
    const sent = body(method, path, SPARE);
    const what = `${method} ${path}`;
    const answer = await text(live, method, target(path, SPARE), bearer(token, 'not-a-uuid'), sent);
    const refused = answer.status === 400 && answer.text.includes('x-queen-tenant');
    assert.equal(refused, tenant, `${what}: ${answer.status} ${answer.text}`);
    if (refused) {
      assert.equal(JSON.parse(answer.text).error, 'invalid x-queen-tenant header (must be a UUID)');
      // Who is asking comes first.
      assert.equal(
        (await text(live, method, target(path, SPARE), { 'x-queen-tenant': 'x' }, sent)).status,
        401,
      );
    }
  }
  // What counts as none, and what as the same one.
  const queues = async (tenant: string) => {
    const answer = await text(live, 'GET', '/api/v1/resources/queues', bearer(token, tenant));
    assert.equal(answer.status, 200, answer.text);
    return (JSON.parse(answer.text) as { queues: { name: string }[] }).queues.map(({ name }) => name);
  };
  const push = (tenant: string, queue: string) =>
    text(live, 'POST', '/api/v1/push', bearer(token, tenant), { items: [{ queue, payload: 1 }] });
  await push('', 'default');
  await push(OWNER.toUpperCase(), 'owned');
  for (const same of ['', ' ', '00000000-0000-0000-0000-000000000001'])
    assert.deepEqual(await queues(same), ['default']);
  for (const same of [OWNER, OWNER.toUpperCase()]) assert.deepEqual(await queues(same), ['owned']);
  for (const bad of [`{${OWNER}}`, OWNER.replaceAll('-', ''), `${OWNER}0`, `${OWNER}, ${OWNER}`]) {
    assert.equal((await text(live, 'GET', '/api/v1/resources/queues', bearer(token, bad))).status, 400, bad);
  }
});

/** What the owner has, one thing of every kind. */
async function furnish(live: Live, headers: Record<string, string>): Promise<Names> {
  const ask = async <T>(method: string, path: string, sent?: unknown): Promise<T> => {
    const answer = await text(live, method, path, headers, sent);
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text}`);
    return (answer.text === '' ? null : JSON.parse(answer.text)) as T;
  };
  const items = ['m-a', 'm-b', 'm-c'].map((transactionId) => ({
    queue: 'q-orders',
    partition: 'p-eu',
    payload: { of: 'the owner' },
    transactionId,
  }));
  for (const { status } of await ask<Pushed[]>('POST', '/api/v1/push', { items }))
    assert.equal(status, 'queued');
  const pop = (group: string) =>
    ask<{ leaseId: string; messages: Message[] }>(
      'GET',
      `/api/v1/pop/queue/q-orders?batch=1&consumerGroup=${group}&subscriptionMode=all&leaseSeconds=3600`,
    );
  const dead = (await pop('g-failing')).messages[0]!;
  const [verdict] = await ask<Verdict[]>('POST', '/api/v1/ack', {
    ...dead,
    consumerGroup: 'g-failing',
    status: 'dlq',
  });
  assert.equal(verdict!.dlq, true);
  const letters = await ask<{ messages: { id: string }[] }>('GET', '/api/v1/dlq?queue=q-orders');
  const { leaseId, messages } = await pop('g-workers');
  const { partitionId, transactionId } = messages[0]!;
  await ask('POST', '/api/v1/kv', {
    operations: [{ op: 'put', ns: 'n-settings', key: 'k-mode', value: 'the owner’s', forever: true }],
  });
  const payload = Buffer.from('"the owner’s"').toString('base64');
  const timer = {
    op: 'schedule',
    queue: 'q-orders',
    timerKey: 'k-mode',
    delayMs: 3_600_000,
    txn: 'm-late',
    payload,
  };
  await ask('POST', '/api/v1/timers', { operations: [timer] });
  await ask('POST', '/api/v1/traces', {
    partitionId,
    transactionId,
    consumerGroup: 'g-workers',
    traceNames: ['r-trip'],
    data: { text: 'seen' },
  });
  await ask('PUT', '/api/v1/connectors/r-trip', CONNECTOR);
  return {
    queue: 'q-orders',
    partition: 'p-eu',
    partitionId,
    transactionId,
    leaseId,
    dlqId: letters.messages[0]!.id,
    group: 'g-workers',
    key: 'k-mode',
    ns: 'n-settings',
    trace: 'r-trip',
  };
}

/** The same kinds of names, of things that nobody has. */
const ABSENT: Names = {
  queue: 'q-absent',
  partition: 'p-none',
  partitionId: '888888888',
  transactionId: 'm-none',
  leaseId: '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a21',
  dlqId: '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a22',
  group: 'g-nobody',
  key: 'k-none',
  ns: 'n-nothing',
  trace: 'r-nowhere',
};

/** An answer without what names and chance put into it. */
function neutral(answer: string, names: Names): string {
  let plain = answer;
  for (const [key, value] of Object.entries(names)) {
    // Ids of partitions are numbers, and those are in everything.
    const quote = key === 'partitionId' ? '"' : '';
    plain = plain.replaceAll(`${quote}${value}${quote}`, `${quote}<${key}>${quote}`);
  }
  return plain
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, '<uuid>')
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, '<time>')
    .replaceAll(/"txnHash":"[0-9a-f]+"/g, '"txnHash":"<hash>"')
    .replaceAll(/"(queueId|id|partitionId)":"\d+"/g, '"$1":"<id>"')
    .replaceAll(/"(version|safeTime|now|nowMicros|statsAge|uptime)":[\d.]+/g, '"$1":0');
}

test('what belongs to another tenant is answered like what does not exist', async (t) => {
  const live = await open(t);
  const token = await sign('HS256', SECRET, { role: 'admin', sub: 'walker' });
  const owner = bearer(token, OWNER);
  const theirs = await furnish(live, owner);
  const seen = async () => {
    const parts = [
      '/api/v1/resources/queues',
      `/api/v1/resources/queues/${theirs.queue}`,
      `/api/v1/resources/queues/${theirs.queue}/depth?group=g-workers`,
      '/api/v1/consumer-groups',
      '/api/v1/dlq',
      `/api/v1/messages/${theirs.partitionId}/${theirs.transactionId}`,
      '/api/v1/kv/n-settings/k-mode',
      '/api/v1/resources/kv/namespaces',
      '/api/v1/timers/q-orders/k-mode',
      `/api/v1/traces/${theirs.partitionId}/${theirs.transactionId}`,
      '/api/v1/traces/by-name/r-trip',
      '/api/v1/connectors',
    ];
    const answers = await Promise.all(parts.map((path) => text(live, 'GET', path, owner)));
    for (const [i, answer] of answers.entries())
      assert.equal(answer.status, 200, `${parts[i]}: ${answer.text}`);
    return answers.map((answer) => answer.text.replaceAll(/"(maxTimeLag|timeLagSeconds)":[\d.]+/g, '"$1":0'));
  };
  const before = await seen();
  const answers = new Map<string, { status: number; text: string }>();
  for (const { method, path, tenant } of ROUTES) {
    if (!tenant) continue;
    const what = `${method} ${path}`;
    const foreign = await text(
      live,
      method,
      target(path, theirs),
      bearer(token, STRANGER),
      body(method, path, theirs),
    );
    const absent = await text(
      live,
      method,
      target(path, ABSENT),
      bearer(token, NOBODY),
      body(method, path, ABSENT),
    );
    assert.deepEqual(
      { status: foreign.status, text: neutral(foreign.text, theirs) },
      { status: absent.status, text: neutral(absent.text, ABSENT) },
      what,
    );
    assert.ok(foreign.status < 500, `${what}: ${foreign.text}`);
    assert.ok(!foreign.text.includes('the owner'), `${what}: ${foreign.text}`);
    answers.set(what, foreign);
  }
  assert.deepEqual(await seen(), before, 'the owner finds everything as it was');
  const extended = await text(live, 'POST', `/api/v1/lease/${theirs.leaseId}/extend`, owner, {
    seconds: 7200,
  });
  assert.equal(JSON.parse(extended.text).renewed, 1, 'the lease is alive');

  // And what they said is what is written down for it.
  const said = (what: string) => JSON.parse(answers.get(what)!.text);
  const status = (what: string) => answers.get(what)!.status;
  const [ack] = said('POST /api/v1/ack');
  assert.deepEqual([ack.success, ack.error], [false, 'partition not owned by tenant']);
  assert.equal(said('POST /api/v1/ack/batch')[0].error, 'partition not owned by tenant');
  const extend = said('POST /api/v1/lease/:leaseId/extend');
  assert.deepEqual([extend.success, extend.renewed, extend.newExpiresAt], [false, 0, null]);
  for (const method of ['GET', 'DELETE'])
    assert.equal(status(`${method} /api/v1/messages/:partitionId/:transactionId`), 404);
  assert.equal(status('POST /api/v1/messages/:partitionId/:transactionId/retry'), 404);
  assert.deepEqual(
    [status('POST /api/v1/dlq/:id/replay'), said('POST /api/v1/dlq/:id/replay').result],
    [404, 'gone'],
  );
  assert.deepEqual(said('GET /api/v1/dlq').messages, []);
  const { success, error } = said('POST /api/v1/traces');
  assert.deepEqual([success, error], [false, 'Message not found']);
  assert.equal(status('POST /api/v1/traces'), 404);
  assert.deepEqual(said('GET /api/v1/traces/:partitionId/:transactionId').traces, []);
  assert.equal(said('POST /api/v1/kv').results[0].found, false);
  assert.equal(said('POST /api/v1/timers').results[0].status, 'absent');
  assert.equal(said('DELETE /api/v1/timers/:queue/*').status, 'absent');
  assert.equal(said('GET /api/v1/timers/:queue/*').found, false);
  assert.deepEqual(said('GET /api/v1/timers/:queue').rows, []);
  // Of its own queue by that name it gets what it pushed itself.
  assert.deepEqual(
    said('GET /api/v1/pop/queue/:queue').messages.map(({ data }: Message) => data),
    [1],
  );
  const transaction = said('POST /api/v1/transaction');
  assert.equal(transaction.success ?? false, false);
});

test('a token’s sub is stamped on what its bearer pushes, whatever the items claim', async (t) => {
  const live = await open(t);
  const push = async (claims: Record<string, unknown>) => {
    const token = await sign('HS256', SECRET, { role: 'read-write', ...claims });
    const items = [{ queue: 'q', payload: 1, producerSub: 'mallory' }];
    const answer = await text(live, 'POST', '/api/v1/push', bearer(token), { items });
    assert.equal(answer.status, 201, answer.text);
    const popped = await text(live, 'GET', '/api/v1/pop/queue/q?autoAck=true', bearer(token));
    return (JSON.parse(popped.text) as { messages: { producerSub: string | null }[] }).messages[0]!
      .producerSub;
  };
  assert.equal(await push({ sub: 'alice' }), 'alice');
  assert.equal(await push({}), null);
  assert.equal(await push({ sub: 'Ünïcödé / ☂' }), 'Ünïcödé / ☂');
});
