import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Brokers } from '../../src/brokers/brokers.ts';
import {
  AbortedError,
  InDoubtError,
  OverloadedError,
  QueenError,
  RefusedError,
  UnavailableError,
} from '../../src/errors.ts';
import { retryAfterSeconds } from '../../src/wire/answer.ts';
import { overloadedPauseMs, pauseMs, RETRIES } from '../../src/wire/backoff.ts';
import { type Request, segment, Transport } from '../../src/wire/transport.ts';

type Reply = Response | Error | 'silence';

/** A transport whose network is a list of replies; what it was asked is kept. */
function transport(replies: Reply[], urls = ['http://a'], timeoutMs = 1_000) {
  const asked: { url: string; init: RequestInit }[] = [];
  const end = new AbortController();
  const fetch = (url: string, init: RequestInit): Promise<Response> => {
    asked.push({ url, init });
    const reply = replies.shift() ?? answer(200, { ok: true });
    if (reply instanceof Response) return Promise.resolve(reply);
    if (reply instanceof Error) return Promise.reject(reply);
    return new Promise((_, reject) => {
      if (init.signal!.aborted) reject(init.signal!.reason);
      init.signal!.addEventListener('abort', () => reject(init.signal!.reason), { once: true });
    });
  };
  const made = new Transport({
    brokers: new Brokers(urls),
    headers: async () => ({ authorization: 'Bearer t' }),
    retry: { ...RETRIES, baseMs: 1, maxMs: 2, overloadedRetries: 3 },
    timeoutMs,
    fetch: fetch as typeof globalThis.fetch,
  });
  return { transport: made, asked, end };
}

function answer(status: number, body: unknown, headers: Record<string, string> = {}): Response {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return new Response(status === 204 ? null : text, { status, headers });
}

function broken(code?: string): Error {
  return new TypeError('fetch failed', { cause: Object.assign(new Error('x'), { code }) });
}

const SAFE: Request = { method: 'POST', path: '/p', body: { a: 1 }, repeatable: true };
const ONCE: Request = { ...SAFE, repeatable: false };

async function failure(work: Promise<unknown>): Promise<QueenError> {
  const error = await work.then(
    () => assert.fail('it did not fail'),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof QueenError, String(error));
  return error;
}

test('what is answered below 500 is final, and says what it says', async () => {
  const { transport: one, asked } = transport([
    answer(400, { error: 'bad body: x', code: 'bad_body', field: 'items' }),
    answer(400, { error: 'kv_bad_request', reason: 'kv_bad_key', message: 'no NUL' }),
    answer(413, 'too large'),
  ]);
  const first = await failure(one.call(SAFE));
  assert.ok(first instanceof RefusedError);
  assert.deepEqual([first.code, first.field, first.message], ['bad_body', 'items', 'bad body: x']);
  const second = await failure(one.call(SAFE));
  assert.deepEqual([second.code, second.reason, second.message], ['kv_bad_request', 'kv_bad_key', 'no NUL']);
  const third = await failure(one.call(SAFE));
  assert.deepEqual([third.code, third.message, third.kind], ['http_413', 'too large', 'refused']);
  assert.equal(asked.length, 3);
});

test('overloaded: asked again, of the same broker, when it says so', async () => {
  const wait = { 'retry-after': '0.1' };
  const { transport: one, asked } = transport(
    [answer(429, {}, wait), answer(429, {}, wait)],
    ['http://a', 'http://b'],
  );
  const begun = performance.now();
  await one.call(ONCE);
  assert.equal(asked.length, 3);
  assert.ok(performance.now() - begun >= 155, 'it waited too little');
  assert.equal(new Set(asked.map(({ url }) => url)).size, 1);
  const refusing = transport(Array.from({ length: 9 }, () => answer(429, { code: 'overloaded' })));
  const error = await failure(refusing.transport.call(SAFE));
  assert.ok(error instanceof OverloadedError);
  assert.deepEqual([error.code, refusing.asked.length], ['overloaded', 4]);
});

test('where nothing was carried out the next broker is asked, even for what may not be repeated', async () => {
  for (const reply of [
    broken('ECONNREFUSED'),
    answer(503, { error: 'kv_disabled' }),
    answer(500, { error: 'pool', code: 'pool' }),
  ]) {
    const { transport: two, asked } = transport([reply], ['http://a', 'http://b']);
    const { repeated } = await two.call(ONCE);
    assert.equal(repeated, false);
    assert.equal(new Set(asked.map(({ url }) => url)).size, 2);
    await two.call(ONCE);
    assert.equal(asked[2]!.url, asked[1]!.url, 'the one that failed is not asked first');
  }
  const dead = transport(Array.from({ length: 9 }, () => broken('ECONNREFUSED')));
  assert.ok((await failure(dead.transport.call(ONCE))) instanceof UnavailableError);
  assert.equal(dead.asked.length, 5);
});

test('where nobody knows it is asked again only if that does no harm', async () => {
  const doubts: (() => Reply)[] = [
    () => broken('ECONNRESET'),
    () => answer(500, { error: 'x', code: 'in_doubt' }),
    () => answer(502, 'bad gateway'),
    () => answer(503, 'upstream connect error or disconnect/reset before headers'),
    () => answer(503, { message: 'Service Unavailable' }),
    () => answer(500, { error: 'kv_unavailable', reason: 'in_doubt' }),
    () => answer(200, '{"cut":'),
    () => 'silence',
  ];
  for (const doubt of doubts) {
    const once = transport([doubt()], ['http://a'], 20);
    assert.ok((await failure(once.transport.call(ONCE))) instanceof InDoubtError, String(doubt));
    assert.equal(once.asked.length, 1);
    const again = transport([doubt()], ['http://a'], 20);
    const { repeated, body } = await again.transport.call(SAFE);
    assert.deepEqual([repeated, body], [true, { ok: true }]);
    assert.equal(again.asked[0]!.init.body, again.asked[1]!.init.body);
  }
  // A refusal after a doubt does not tell what became of the first try.
  const refused = transport([broken('ECONNRESET'), answer(404, { error: 'gone', code: 'gone' })]);
  const error = await failure(refused.transport.call(SAFE));
  assert.deepEqual([error.kind, error.code], ['in_doubt', 'gone']);
  // Of what is only read it tells all.
  for (const read of [{ ...SAFE, method: 'GET' } as const, { ...SAFE, reads: true }]) {
    const absent = transport([broken('ECONNRESET'), answer(404, { error: 'gone', code: 'gone' })]);
    assert.ok((await failure(absent.transport.call(read))) instanceof RefusedError);
    const lost = transport(Array.from({ length: 9 }, () => answer(502, 'bad gateway')));
    const { kind, status } = await failure(lost.transport.call(read));
    assert.deepEqual([kind, status, lost.asked.length], ['unavailable', 502, 5]);
  }
});

test('a signal ends a request, a pause, and what has not begun', async () => {
  const waiting = transport(['silence'], ['http://a'], 60_000);
  const controller = new AbortController();
  const call = failure(waiting.transport.call({ ...SAFE, signal: controller.signal }));
  setTimeout(() => controller.abort('enough'), 10);
  const error = await call;
  assert.ok(error instanceof AbortedError);
  assert.equal(error.cause, 'enough');
  assert.equal(
    (await failure(waiting.transport.call({ ...SAFE, signal: controller.signal }))).kind,
    'aborted',
  );
  assert.equal(waiting.asked.length, 1);
  const paused = transport([answer(429, {}, { 'retry-after': '60' })]);
  const other = new AbortController();
  const pausing = failure(paused.transport.call({ ...SAFE, signal: other.signal }));
  setTimeout(() => other.abort(), 10);
  assert.equal((await pausing).kind, 'aborted');
  const closing = transport(['silence'], ['http://a'], 60_000);
  const closed = failure(closing.transport.call(SAFE));
  closing.transport.close();
  assert.equal((await closed).code, 'closed');
});

test('what cannot be sent is not sent, and not tried again', async () => {
  const { transport: one, asked } = transport([]);
  await assert.rejects(one.call({ ...SAFE, body: { n: 1n } }), TypeError);
  assert.equal(asked.length, 0);
  assert.equal(segment('a/b c?%'), 'a%2Fb%20c%3F%25');
  for (const name of ['', '.', '..']) assert.throws(() => segment(name), TypeError);
});

test('pauses double up to a bound and differ; a wish is obeyed by a fifth more or less', () => {
  for (const [round, bound] of [
    [0, 100],
    [1, 200],
    [5, 3_200],
    [6, 5_000],
    [1_000, 5_000],
  ] as const) {
    assert.equal(pauseMs(RETRIES, round, 0), bound / 2);
    assert.ok(pauseMs(RETRIES, round, 0.999) < bound);
  }
  assert.equal(overloadedPauseMs(RETRIES, 0, 10, 0), 8_000);
  assert.equal(overloadedPauseMs(RETRIES, 0, 10, 0.5), 10_000);
  assert.equal(overloadedPauseMs(RETRIES, 0, 86_400, 0.5), 60_000);
  assert.equal(overloadedPauseMs(RETRIES, 0, undefined, 0), 50);
  assert.equal(retryAfterSeconds('2', 0), 2);
  assert.equal(retryAfterSeconds('Thu, 01 Jan 1970 00:00:10 GMT', 4_000), 6);
  for (const text of [null, '', ' ', 'soon']) assert.equal(retryAfterSeconds(text, 0), undefined);
});

test('a token that cannot be got, or does not come, is a try like others, and no fault of a broker', async () => {
  const tokens: (() => Promise<string>)[] = [];
  const asked: string[] = [];
  const made = new Transport({
    brokers: new Brokers(['http://a', 'http://b']),
    headers: async () => ({ authorization: await (tokens.shift() ?? (async () => 'there'))() }),
    retry: { ...RETRIES, retries: 2, baseMs: 1, maxMs: 2 },
    timeoutMs: 20,
    fetch: (async (url: string, { headers }: { headers: Record<string, string> }) => {
      asked.push(`${url} ${headers.authorization}`);
      return answer(200, {});
    }) as unknown as typeof fetch,
  });
  const fails = () => Promise.reject(new Error('no such key'));
  const hangs = () => new Promise<string>(() => {});
  await made.call(ONCE);
  tokens.push(fails);
  await made.call(ONCE);
  tokens.push(hangs);
  await made.call(ONCE);
  await made.call(ONCE);
  const [first, second] = [asked[0]!, asked[1]!];
  assert.notEqual(first, second);
  assert.deepEqual(asked, [first, second, second, first], 'none is avoided');
  tokens.push(hangs, hangs, fails);
  const error = await failure(made.call(SAFE));
  assert.ok(error instanceof UnavailableError);
  assert.deepEqual([error.code, error.message, asked.length], ['token', 'no token: no such key', 4]);
  tokens.push(hangs);
  const controller = new AbortController();
  const waiting = failure(made.call({ ...SAFE, timeoutMs: 60_000, signal: controller.signal }));
  controller.abort();
  assert.ok((await waiting) instanceof AbortedError);
});
