/** Reads by offset over HTTP: fetch, fetch/offsets, partitions/changed. */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { test } from 'node:test';
import { createAccess } from '../../packages/broker/src/http/access/access.ts';
import { atEnd } from '../kit/cleanup.ts';
import { until } from '../kit/until.ts';
import { type Live, openLive, sql } from './live.ts';

interface Fetched {
  entries: {
    queue: string;
    partition: string;
    records: { offset: number; transactionId: string; payload: unknown; ts: string }[];
    highWatermark: number;
    logStartOffset: number;
    error?: string;
  }[];
}

interface Changed {
  safeTime: string;
  safeTimeDegraded: boolean;
  entries: {
    queue: string;
    partitions?: { name: string; lastOffset: number; logStart: number; lastWriteAt: string }[];
    next?: string | null;
    error?: string;
  }[];
}

async function read(live: Live, body: unknown): Promise<Fetched['entries']> {
  const answer = await live.ask<Fetched>('POST', '/api/v1/fetch', body);
  assert.equal(answer.status, 200, JSON.stringify(answer.body));
  return answer.body.entries;
}

async function changed(live: Live, entries: unknown[]): Promise<Changed> {
  const { status, body } = await live.ask<Changed>('POST', '/api/v1/partitions/changed', { entries });
  assert.equal(status, 200, JSON.stringify(body));
  return body;
}

/** One message a segment. */
async function push(
  live: Live,
  queue: string,
  partition: string,
  from: number,
  count: number,
): Promise<void> {
  for (let i = from; i < from + count; i++) {
    await live.client.push([{ queue, partition, transactionId: `${partition}${i}`, payload: `v${i}` }]);
  }
}

const values = (entry: Fetched['entries'][number]) => entry.records.map(({ payload }) => payload);

test('records from an offset on, in request order; nothing moves', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'Default', 0, 3);
  await push(live, 'q', '7', 0, 1);
  await live.client.configure('q', { delayedProcessing: 3600, windowBuffer: 60 });
  const entries = [
    { queue: 'q', partition: 7, offset: 0 },
    { queue: 'q', offset: 1 },
    { queue: 'q', partition: null, offset: 3 },
    { queue: 'q', offset: 0, maxBytes: 9 },
  ];
  const [seven, rest, end, few] = await read(live, { entries });
  const { ts, ...record } = seven!.records[0]!;
  assert.match(ts, /\.\d{6}Z$/);
  assert.deepEqual(record, { offset: 0, transactionId: '70', payload: 'v0' });
  assert.deepEqual(
    { ...seven, records: [] },
    { queue: 'q', partition: '7', records: [], highWatermark: 1, logStartOffset: 0 },
  );
  assert.deepEqual(
    rest!.records.map(({ offset, payload }) => [offset, payload]),
    [
      [1, 'v1'],
      [2, 'v2'],
    ],
  );
  assert.deepEqual(
    [end!.records, end!.highWatermark, end!.error],
    [[], 3, undefined],
    'where the next will be',
  );
  assert.deepEqual(values(few!), ['v0', 'v1'], 'as many as fit: four bytes each');
  assert.deepEqual(await read(live, { entries: [] }), []);
  const [rows] = await sql<{ n: number }>(
    live.broker.db,
    'SELECT count(*)::int AS n FROM queen.log_consumers',
  );
  assert.equal(rows!.n, 0);
});

test('at least one record, however large; the cut is between records of one segment too', async (t) => {
  const live = await openLive(t);
  const large = 'x'.repeat(300_000);
  await live.client.push([1, 2, 3].map((n) => ({ queue: 'q', payload: `${n}${large}` })));
  const one = (entry: object) =>
    read(live, { entries: [{ queue: 'q', offset: 0, ...entry }] }).then(([found]) =>
      found!.records.map(({ offset }) => offset),
    );
  assert.deepEqual(await one({ maxBytes: 1 }), [0]);
  assert.deepEqual(await one({ maxBytes: -5 }), [0], 'clamped');
  assert.deepEqual(await one({ maxBytes: 700_000 }), [0, 1]);
  assert.deepEqual(await one({}), [0, 1, 2], 'a MiB by default');
  assert.deepEqual(await one({ offset: 2, maxBytes: 1 }), [2]);
});

test('what cannot be read says why', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'p', 0, 4);
  await live.client.configure('q', { retentionEnabled: true, retentionSeconds: 50 });
  await live.database.advanceClock(100);
  await push(live, 'q', 'p', 4, 2);
  await live.broker.retention.pass();
  const at = (offset: number) => ({ queue: 'q', partition: 'p', offset });
  const found = await read(live, {
    entries: [
      at(0),
      at(3),
      at(4),
      at(6),
      at(7),
      { queue: 'q', partition: 'none', offset: 0 },
      { queue: 'none', offset: 0 },
    ],
    maxWaitMs: 20_000,
  });
  const gone = 'OFFSET_OUT_OF_RANGE';
  const unknown = 'UNKNOWN_TOPIC_OR_PARTITION';
  assert.deepEqual(
    found.map(({ error }) => error),
    [gone, gone, undefined, undefined, gone, unknown, unknown],
  );
  assert.deepEqual(
    found.map((entry) => [entry.logStartOffset, entry.highWatermark]).slice(0, 5),
    Array(5).fill([4, 6]),
  );
  assert.deepEqual(
    found.map(({ records }) => records.length),
    [0, 0, 2, 0, 0, 0, 0],
  );
});

test('bodies that are refused', async (t) => {
  const live = await openLive(t);
  const bad: [string, unknown][] = [
    ['fetch', undefined],
    ['fetch', []],
    ['fetch', {}],
    ['fetch', { entries: {} }],
    ['fetch', { entries: ['x'] }],
    ['fetch', { entries: [{ offset: 0 }] }],
    ['fetch', { entries: [{ queue: '', offset: 0 }] }],
    ['fetch', { entries: [{ queue: 'q' }] }],
    ['fetch', { entries: [{ queue: 'q', offset: -1 }] }],
    ['fetch', { entries: [{ queue: 'q', offset: '1' }] }],
    ['fetch', { entries: [{ queue: 'q', offset: 0.5 }] }],
    ['fetch', { entries: [{ queue: 'q', offset: 0, partition: true }] }],
    ['fetch', { entries: [{ queue: 'q', offset: 0, partition: 'a\u0000' }] }],
    ['fetch', { entries: [{ queue: 'q', offset: 0, maxBytes: 'all' }] }],
    ['fetch', { entries: [], maxWaitMs: 'x' }],
    ['fetch', { entries: Array(1025).fill({ queue: 'q', offset: 0 }) }],
    ['fetch/offsets', { entries: [{ queue: 'q' }] }],
    ['fetch/offsets', { entries: [{ queue: 'q', timestamp: 'noon' }] }],
    ['partitions/changed', {}],
    ['partitions/changed', { entries: [{ queue: '' }] }],
    ['partitions/changed', { entries: [{ queue: 'q', since: 'x' }] }],
    ['partitions/changed', { entries: [{ queue: 'q', after: 5 }] }],
    ['partitions/changed', { entries: [{ queue: 'q', limit: 'x' }] }],
    ['partitions/changed', { entries: Array(65).fill({ queue: 'q' }) }],
  ];
  for (const [path, body] of bad) {
    const { status } = await live.ask('POST', `/api/v1/${path}`, body);
    assert.equal(status, 400, `${path} ${JSON.stringify(body)?.slice(0, 80)}`);
  }
});

async function parked(live: Live, count = 1): Promise<void> {
  await until('the fetch is parked', async () => live.broker.wake.parking.parked === count);
}

test('a fetch waits for what is pushed, here or at another broker, without a connection', async (t) => {
  const a = await openLive(t, { alone: 'looks at what is parked in one process' });
  const b = await openLive(t, { database: a.database });
  await push(a, 'q', 'p', 0, 1);
  const wait = (offset: number, more = {}) =>
    read(a, { entries: [{ queue: 'q', partition: 'p', offset }], maxWaitMs: 30_000, ...more });
  for (const [offset, pusher] of [a, b].entries()) {
    const fetched = wait(offset + 1);
    await parked(a);
    assert.equal(a.broker.db.stats().active, 0);
    const started = performance.now();
    await push(pusher, 'q', 'p', offset + 1, 1);
    const [entry] = await fetched;
    assert.deepEqual([values(entry!), entry!.highWatermark], [[`v${offset + 1}`], offset + 2]);
    assert.ok(performance.now() - started < 5_000);
  }
  const empty = performance.now();
  const [none] = await wait(3, { maxWaitMs: 300 });
  assert.deepEqual([none!.records, none!.highWatermark], [[], 3]);
  assert.ok(performance.now() - empty >= 290);
  const [there] = await wait(0);
  assert.equal(there!.records.length, 3, 'no wait where there is something');
  assert.equal(a.broker.wake.parking.parked, 0);
});

test('a fetch whose notification is lost finds the message by the shared look', async (t) => {
  const a = await openLive(t, { engine: { notifications: false } });
  const b = await openLive(t, { database: a.database, engine: { notifications: false } });
  await push(b, 'q', 'p', 0, 1);
  const fetched = read(a, { entries: [{ queue: 'q', partition: 'p', offset: 1 }], maxWaitMs: 30_000 });
  await parked(a);
  await push(b, 'q', 'p', 1, 1);
  assert.deepEqual(values((await fetched)[0]!), ['v1']);
});

test('minBytes: what has come is kept and read once, the rest is waited for', async (t) => {
  const live = await openLive(t, { alone: 'looks at what is parked in one process' });
  await push(live, 'q', 'p', 0, 2);
  const entries = [
    { queue: 'q', partition: 'p', offset: 0 },
    { queue: 'q', partition: 'r', offset: 0 },
  ];
  await push(live, 'q', 'r', 0, 1);
  const fetched = read(live, { entries, maxWaitMs: 30_000, minBytes: 24 });
  await parked(live);
  await push(live, 'q', 'p', 2, 1);
  await push(live, 'q', 'elsewhere', 0, 1);
  await parked(live);
  await push(live, 'q', 'r', 1, 2);
  const [p, r] = await fetched;
  assert.deepEqual(
    [values(p!), values(r!)],
    [
      ['v0', 'v1', 'v2'],
      ['v0', 'v1', 'v2'],
    ],
  );
  const [full] = await read(live, {
    entries: [{ queue: 'q', partition: 'p', offset: 0, maxBytes: 5 }],
    maxWaitMs: 30_000,
    minBytes: 1e9,
  });
  assert.equal(full!.records.length, 1, 'an entry that may not grow is not waited for');
});

test('a fetch ends with its client, with its queue, and with the broker', async (t) => {
  const live = await openLive(t, { alone: 'looks at what is parked in one process, and stops it' });
  await push(live, 'q', 'p', 0, 1);
  const body = JSON.stringify({ entries: [{ queue: 'q', partition: 'p', offset: 1 }], maxWaitMs: 30_000 });
  const { port, hostname } = new URL(live.client.url);
  const client = request({ port, hostname, path: '/api/v1/fetch', method: 'POST' });
  client.on('error', () => {});
  client.end(body);
  await parked(live);
  client.destroy();
  await parked(live, 0);

  const orphan = live.ask<Fetched>('POST', '/api/v1/fetch', body);
  await parked(live);
  await live.ask('DELETE', '/api/v1/resources/queues/q');
  assert.equal((await orphan).body.entries[0]!.error, 'UNKNOWN_TOPIC_OR_PARTITION');

  await push(live, 'q', 'p', 0, 1);
  const last = live.ask<Fetched>('POST', '/api/v1/fetch', body);
  await parked(live);
  const stopped = live.stop();
  assert.deepEqual((await last).body.entries[0]!.records, []);
  await stopped;
});

test('a corrupt segment is named, and does not hide what lies before it', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'p', 0, 3);
  await sql(
    live.broker.db,
    'UPDATE queen.log_segments SET blob = substring(blob FROM 1 FOR length(blob) - 3) WHERE base_offset = 1',
  );
  const [before, at, behind] = await read(live, {
    entries: [0, 1, 2].map((offset) => ({ queue: 'q', partition: 'p', offset })),
  });
  assert.deepEqual([values(before!), before!.error], [['v0'], undefined]);
  assert.deepEqual([at!.records, at!.error], [[], 'CORRUPT_MESSAGE']);
  assert.deepEqual(values(behind!), ['v2']);
});

test('a log is read to its end in any portions, payloads byte for byte', async (t) => {
  const live = await openLive(t);
  const payload = '{"b":1,"a":12345678901234567890,"a":"\\u0000"}';
  for (let i = 0; i < 5; i++) {
    const items = Array.from({ length: 30 }, () => `{"queue":"q","payload":${payload}}`);
    await live.ask('POST', '/api/v1/push', `{"items":[${items.join(',')}]}`);
  }
  for (const maxBytes of [100, 1_000, 1_000_000]) {
    let offset = 0;
    for (;;) {
      const response = await fetch(`${live.client.url}/api/v1/fetch`, {
        method: 'POST',
        body: JSON.stringify({ entries: [{ queue: 'q', offset, maxBytes }] }),
      });
      const text = await response.text();
      const { records, highWatermark } = (JSON.parse(text) as Fetched).entries[0]!;
      if (records.length === 0) {
        assert.deepEqual([offset, highWatermark], [150, 150]);
        break;
      }
      assert.equal(text.split(`"payload":${payload},`).length, records.length + 1);
      for (const record of records) assert.equal(record.offset, offset++);
    }
  }
});

test('offsets of an instant', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'p', 0, 2);
  await live.database.advanceClock(100);
  await live.client.push([0, 1].map((n) => ({ queue: 'q', partition: 'p', payload: n })));
  const [{ records }] = (await read(live, { entries: [{ queue: 'q', partition: 'p', offset: 0 }] })) as [
    Fetched['entries'][number],
  ];
  const ask = async (timestamp: string, partition = 'p') => {
    const { status, body } = await live.ask<{ entries: Record<string, unknown>[] }>(
      'POST',
      '/api/v1/fetch/offsets',
      {
        entries: [{ queue: 'q', partition, timestamp }],
      },
    );
    assert.equal(status, 200);
    return body.entries[0]!;
  };
  assert.deepEqual(await ask('2000-01-01'), {
    queue: 'q',
    partition: 'p',
    offset: 0,
    ts: records[0]!.ts,
    highWatermark: 4,
    logStartOffset: 0,
  });
  assert.deepEqual((await ask(records[1]!.ts)).offset, 1);
  const later = await ask(records[1]!.ts.replace('Z', '+00:00'));
  assert.equal(later.offset, 1, 'an offset is an offset');
  assert.deepEqual(
    [(await ask(records[2]!.ts)).offset, (await ask(records[3]!.ts)).offset],
    [2, 2],
    'one segment, one time',
  );
  const none = await ask('2999-01-01');
  assert.deepEqual([none.offset, none.ts, none.highWatermark], [null, null, 4]);
  assert.equal((await ask('2000-01-01', 'nope')).error, 'UNKNOWN_TOPIC_OR_PARTITION');
});

test('partitions by name, page by page', async (t) => {
  const live = await openLive(t);
  const names = ['ä', 'b', 'a', 'Default', 'c', ''];
  for (const name of names) await push(live, 'q', name, 0, 2);
  const seen: string[] = [];
  let after: string | null = null;
  do {
    const answer: Changed = await changed(live, [{ queue: 'q', after, limit: 4 }]);
    const [entry] = answer.entries;
    seen.push(...entry!.partitions!.map(({ name }) => name));
    assert.deepEqual(Object.keys(entry!.partitions![0]!), ['name', 'lastOffset', 'logStart', 'lastWriteAt']);
    after = entry!.next ?? null;
  } while (after !== null);
  assert.deepEqual([...seen].sort(), [...names].sort());
  assert.deepEqual((await changed(live, [])).entries, []);
  const { entries } = await changed(live, [
    { queue: 'none' },
    { queue: 'q', after: 'rubbish' },
    { queue: 'q', limit: 0 },
    { queue: 'q', limit: 5_000 },
  ]);
  assert.deepEqual(entries[0], { queue: 'none', error: 'UNKNOWN_TOPIC_OR_PARTITION' });
  assert.deepEqual(entries[1], { queue: 'q', error: 'BAD_CURSOR' });
  assert.deepEqual(
    [entries[2]!.partitions!.length, entries[3]!.partitions!.length, entries[3]!.next],
    [1, 6, null],
  );
});

test('partitions written since an instant, by time; the two kinds of cursor do not mix', async (t) => {
  const live = await openLive(t);
  for (const name of ['a', 'b', 'c']) await push(live, 'q', name, 0, 1);
  await live.database.advanceClock(60);
  const [now] = await sql<{ at: string }>(live.broker.db, 'SELECT to_json(queen.clock())::text AS at');
  const since = JSON.parse(now!.at) as string;
  for (const name of ['c', 'b', 'new']) {
    await push(live, 'q', name, 1, 1);
    await live.database.advanceClock(2);
  }
  const { entries } = await changed(live, [{ queue: 'q', since, limit: 2 }]);
  assert.deepEqual(
    entries[0]!.partitions!.map(({ name }) => name),
    ['c', 'b'],
  );
  const next = entries[0]!.next!;
  const rest = await changed(live, [
    { queue: 'q', since, after: next },
    { queue: 'q', after: next },
    { queue: 'q', since: '2000-01-01' },
  ]);
  assert.deepEqual(
    rest.entries[0]!.partitions!.map(({ name, lastOffset }) => [name, lastOffset]),
    [['new', 0]],
  );
  assert.equal(rest.entries[1]!.error, 'BAD_CURSOR');
  assert.deepEqual(
    rest.entries[2]!.partitions!.map(({ name }) => name),
    ['a', 'c', 'b', 'new'],
  );
  const byName = (await changed(live, [{ queue: 'q', limit: 1 }])).entries[0]!.next!;
  assert.equal((await changed(live, [{ queue: 'q', since, after: byName }])).entries[0]!.error, 'BAD_CURSOR');
});

test('a write within a second of the last one is not missed by a sweep that begins in between', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'p', 0, 1);
  const [now] = await sql<{ at: string }>(live.broker.db, 'SELECT to_json(queen.clock())::text AS at');
  await push(live, 'q', 'p', 1, 1);
  const { entries } = await changed(live, [{ queue: 'q', since: JSON.parse(now!.at) as string }]);
  assert.deepEqual(
    entries[0]!.partitions!.map(({ name }) => name),
    ['p'],
  );
});

test('the safe time stays behind every open write, and says when it cannot be told', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'p', 0, 1);
  const micros = (text: string) => Date.parse(text) * 1000;
  const clock = async () =>
    (await sql<{ now: number }>(live.broker.db, 'SELECT queen.micros(queen.clock()) AS now'))[0]!.now;
  const idle = micros((await changed(live, [])).safeTime);
  const distance = (await clock()) - idle;
  assert.ok(distance >= 5e6 && distance < 60e6, String(distance));

  // A writer whose message is stamped, and not committed.
  const writer = await live.database.open();
  const stamped = Promise.withResolvers<number>();
  const go = Promise.withResolvers<void>();
  const open = writer.transaction(async (tx) => {
    await sql(tx, "UPDATE queen.log_partitions SET last_created_at = last_created_at WHERE name = 'p'");
    const [row] = await sql<{ now: number }>(tx, 'SELECT queen.micros(queen.clock()) AS now');
    stamped.resolve(row!.now);
    await go.promise;
  });
  const at = await stamped.promise;
  await until('time passes', async () => (await clock()) > at + 600_000);
  const held = await changed(live, []);
  assert.ok(micros(held.safeTime) <= at - 4_900_000, 'at least the margin before the open write');
  assert.equal(held.safeTimeDegraded, false);
  go.resolve();
  await open;
  await until(
    'the safe time goes on',
    async () => micros((await changed(live, [])).safeTime) > at - 4_900_000,
  );

  // A session of another account writes where this account must not look.
  const role = `reader_${process.pid}`;
  await sql(live.broker.db, `CREATE ROLE ${role} LOGIN`);
  atEnd(t, async () => {
    const admin = await live.database.open();
    await sql(admin, `DROP OWNED BY ${role}`).catch(() => {});
    await sql(admin, `DROP ROLE IF EXISTS ${role}`);
    await admin.close();
  });
  await sql(live.broker.db, `GRANT USAGE ON SCHEMA queen TO ${role}`);
  const stranger = await live.database.open({ user: role });
  const [row] = await sql<{ safe: number; degraded: boolean; now: number }>(
    stranger,
    'SELECT queen.micros(safe) AS safe, degraded, queen.micros(queen.clock()) AS now FROM queen.log_safe_time(30000)',
  );
  assert.ok(row!.degraded);
  assert.ok(Math.abs(row!.now - row!.safe - 30e6) < 5e6);
  await stranger.close();
  await writer.close();
});

test('another tenant reads nothing', async (t) => {
  const access = createAccess({ verifier: null, skipPaths: [], tenancy: true });
  const live = await openLive(t, { settings: { tenancy: true }, server: { access } });
  await push(live, 'q', 'p', 0, 1);
  const headers = { 'x-queen-tenant': '11111111-1111-4111-8111-111111111111' };
  const unknown = 'UNKNOWN_TOPIC_OR_PARTITION';
  const entries = [{ queue: 'q', partition: 'p', offset: 0, timestamp: '2020-01-01' }];
  for (const path of ['fetch', 'fetch/offsets', 'partitions/changed']) {
    const { body } = await live.ask<Fetched>('POST', `/api/v1/${path}`, { entries }, headers);
    assert.equal(body.entries[0]!.error, unknown, path);
  }
});
