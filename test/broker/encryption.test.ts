/** Queues that encrypt, from the wire to the table and back; keys that are missing, others', or come later. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULT_TENANT } from '../../packages/broker/src/engine/types.ts';
import { openPayload, parseSealingKey, sealPayload } from '../../packages/broker/src/log/envelope.ts';
import type { Frame } from '../../packages/broker/src/log/frame.ts';
import { unpackSegment } from '../../packages/broker/src/log/segment.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import type { TestDatabase } from '../kit/postgres.ts';
import { type Live, openLive, sql } from './live.ts';

const KEY = parseSealingKey('0123456789abcdef'.repeat(4))!;
const OTHER = parseSealingKey('fedcba9876543210'.repeat(4))!;
/** In every payload, and nowhere else. */
const MARK = 'do-not-store-this';
const ODD = `{"n":123456789012345678901234567890, "a\\u0061":"\\ud800 ${MARK}","a":1,"a":2 , "e":1e-400}`;

function keyed(t: Cleanup, key: typeof KEY | null, database?: TestDatabase): Promise<Live> {
  return openLive(t, {
    settings: { sealingKey: key },
    ...(database === undefined ? {} : { database }),
  });
}

async function configure(live: Live, queue: string, on = true): Promise<void> {
  const { status, body } = await live.ask('POST', '/api/v1/configure', {
    queue,
    options: { encryptionEnabled: on },
  });
  assert.equal(status, 200, JSON.stringify(body));
}

/** The bytes of the payloads of a pop, as they stand in the answer. */
async function popBytes(live: Live, queue: string, group: string): Promise<string[]> {
  const answer = await live.broker.pop({
    tenant: DEFAULT_TENANT,
    scope: { kind: 'queue', queue },
    group,
    batch: 100,
    partitions: 0,
    autoAck: true,
    waitMs: 0,
    leaseSeconds: 0,
    subscriptionMode: 'all',
    subscriptionFrom: null,
    conflation: null,
    autopilot: false,
    signal: null,
  });
  return answer.claims.flatMap(({ messages }) => messages.map(({ payload }) => payload.toString()));
}

function push(live: Live, queue: string, payload: string, transactionId?: string) {
  const id = transactionId === undefined ? '' : `,"transactionId":${JSON.stringify(transactionId)}`;
  return live.ask<{ status: string; error?: string }[]>(
    'POST',
    '/api/v1/push',
    `{"items":[{"queue":${JSON.stringify(queue)},"payload":${payload}${id}}]}`,
  );
}

async function frames(live: Live, queue: string): Promise<Frame[]> {
  const rows = await sql<{ blob: Buffer; count: number }>(
    live.broker.db,
    `SELECT s.blob, (s.end_offset - s.base_offset + 1)::int AS count
       FROM queen.log_segments s JOIN queen.log_partitions p ON p.id = s.partition_id
       JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1 ORDER BY p.id, s.base_offset`,
    [queue],
  );
  return (await Promise.all(rows.map(({ blob, count }) => unpackSegment(blob, count)))).flat();
}

/** Tables whose rows hold the mark, looked for as text and as bytes; and segments that hold it once unpacked. */
async function inTheClear(live: Live): Promise<string[]> {
  const { db } = live.broker;
  const tables = await sql<{ name: string }>(
    db,
    `SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = 'queen' AND c.relkind = 'r' ORDER BY 1`,
  );
  assert.ok(tables.length > 10);
  const found: string[] = [];
  const hex = Buffer.from(MARK).toString('hex');
  for (const { name } of tables) {
    const [row] = await sql<{ rows: number }>(
      db,
      `SELECT count(*)::int AS rows FROM ${name} AS t WHERE t::text LIKE '%${MARK}%' OR t::text LIKE '%${hex}%'`,
    );
    if (row!.rows > 0) found.push(name);
  }
  const segments = await sql<{ blob: Buffer; count: number }>(
    db,
    'SELECT blob, (end_offset - base_offset + 1)::int AS count FROM queen.log_segments',
  );
  for (const { blob, count } of segments) {
    for (const { payload } of await unpackSegment(blob, count))
      if (payload.includes(MARK)) found.push('a frame');
  }
  return found;
}

test('what an encrypted queue holds is in the clear on the wire and nowhere in the database', async (t) => {
  const live = await keyed(t, KEY);
  await configure(live, 'sealed');
  await configure(live, 'sealed-too');
  for (const [i, payload] of [ODD, `"${MARK}"`, `["${MARK}"]`].entries()) {
    assert.equal((await push(live, 'sealed', payload, `m${i}`)).body[0]!.status, 'queued');
  }
  const transaction = await live.ask('POST', '/api/v1/transaction', {
    operations: [{ type: 'push', items: [{ queue: 'sealed', payload: { by: `transaction ${MARK}` } }] }],
  });
  assert.equal(transaction.body.success, true, JSON.stringify(transaction.body));
  // A dead letter, and its replay into another queue that encrypts.
  const popped = await live.ask<{ messages: Record<string, unknown>[] }>(
    'GET',
    '/api/v1/pop/queue/sealed?batch=1&consumerGroup=g&subscriptionMode=all',
  );
  await live.ask('POST', '/api/v1/ack', { ...popped.body.messages[0], status: 'dlq', error: 'no good' });
  const letters = await live.ask<{ messages: { id: string; data: unknown; isEncrypted?: boolean }[] }>(
    'GET',
    '/api/v1/dlq?queue=sealed',
  );
  assert.equal(letters.body.messages.length, 1);
  const letter = letters.body.messages[0]!;
  assert.equal(letter.isEncrypted, true);
  assert.match(JSON.stringify(letter.data), new RegExp(MARK));
  assert.deepEqual(await inTheClear(live), []);
  const replay = await live.ask('POST', `/api/v1/dlq/${letter.id}/replay`, { queue: 'sealed-too' });
  assert.equal(replay.body.result, 'moved', JSON.stringify(replay.body));
  assert.deepEqual(await inTheClear(live), []);

  assert.deepEqual(await popBytes(live, 'sealed', 'reader'), [
    ODD,
    `"${MARK}"`,
    `["${MARK}"]`,
    `{"by":"transaction ${MARK}"}`,
  ]);
  assert.deepEqual(await popBytes(live, 'sealed-too', 'reader'), [ODD]);
  const { partitionId } = popped.body.messages[0] as { partitionId: string };
  const one = await live.ask('GET', `/api/v1/messages/${partitionId}/m1`);
  assert.deepEqual([one.body.data, one.body.isEncrypted], [MARK, true]);
  for (const frame of await frames(live, 'sealed')) {
    assert.equal(frame.encrypted, true);
    assert.ok(openPayload(KEY, frame.payload) !== null);
  }
  assert.equal(live.broker.sealing.unopened, 0);

  // The search does find what is there to be found.
  await push(live, 'plain', `"${MARK}"`);
  assert.deepEqual(await inTheClear(live), ['queen.log_segments', 'a frame']);
  const plain = await live.ask<{ messages: Record<string, unknown>[] }>('GET', '/api/v1/pop/queue/plain');
  await live.ask('POST', '/api/v1/ack', { ...plain.body.messages[0], status: 'dlq' });
  assert.deepEqual(await inTheClear(live), ['queen.log_dlq', 'queen.log_segments', 'a frame']);
});

test('switched off and on, what is stored stays as it is and comes back as it was', async (t) => {
  const live = await keyed(t, KEY);
  await push(live, 'q', '"before"');
  await configure(live, 'q');
  await push(live, 'q', '"sealed"');
  await configure(live, 'q', false);
  await push(live, 'q', '"after"');
  await push(live, 'q', '"after that"');
  assert.deepEqual(await popBytes(live, 'q', 'g'), ['"before"', '"sealed"', '"after"', '"after that"']);
  const kinds = (await frames(live, 'q')).map((frame) => frame.encrypted);
  assert.deepEqual(kinds.slice(0, 2), [false, true]);
  assert.equal(kinds.at(-1), false);
});

test('another key, or none: the envelope is delivered, told of, and nothing is lost', async (t) => {
  const first = await keyed(t, KEY);
  await configure(first, 'q');
  await push(first, 'q', ODD);
  await push(first, 'q', '"two"');
  const errors: string[] = [];
  const log = {
    info() {},
    warn() {},
    debug() {},
    error: (_facts: object, message: string) => void errors.push(message),
  };
  const second = await openLive(t, {
    database: first.database,
    settings: { sealingKey: OTHER },
    engine: { log: log as never },
    server: { sealing: () => ({ key: true, unopened: second.broker.sealing.unopened }) },
  });
  assert.deepEqual((await second.ask('GET', '/health')).body.encryption, { key: true, unopened: 0 });
  const envelopes = await popBytes(second, 'q', 'elsewhere');
  assert.equal(envelopes.length, 2);
  const stored = await frames(first, 'q');
  assert.deepEqual(
    envelopes,
    stored.map((frame) => frame.payload.toString()),
  );
  assert.deepEqual(Object.keys(JSON.parse(envelopes[0]!)), ['encrypted', 'iv', 'authTag']);
  assert.deepEqual((await second.ask('GET', '/health')).body.encryption, { key: true, unopened: 2 });
  assert.equal((await second.ask('GET', '/health')).status, 200);
  assert.deepEqual(errors, ['sealed payloads that this key does not open are delivered sealed']);
  // What the second broker pushes is sealed by its own key; both are there for who has the right one.
  await push(second, 'q', '"three"');
  assert.deepEqual((await popBytes(first, 'q', 'reader')).slice(0, 2), [ODD, '"two"']);
  assert.equal(first.broker.sealing.unopened, 1);
});

test('without a key: no queue is switched to encryption, and none that is takes a push', async (t) => {
  const bare = await keyed(t, null);
  const options = { encryptionEnabled: true, leaseTime: 5 };
  const refused = await bare.ask('POST', '/api/v1/configure', { queue: 'q', options });
  assert.deepEqual([refused.status, refused.body.code], [400, 'encryption_required']);
  assert.equal((await bare.ask('GET', '/api/v1/resources/queues/q')).status, 404, 'nothing was written');
  await push(bare, 'q', '"warm"', 'm0');
  const other = await keyed(t, KEY, bare.database);
  await push(other, 'q', '"warm too"', 'm1');
  await configure(other, 'q');
  // Both remember the queue as it was; neither acts on it.
  const [item] = (await push(bare, 'q', `"${MARK}"`, 'm2')).body;
  assert.equal(item!.status, 'failed');
  assert.match(item!.error!, /^encryption_required/);
  assert.equal((await push(other, 'q', `"${MARK}"`, 'm2')).body[0]!.status, 'queued');
  assert.deepEqual(await inTheClear(other), []);
  const operations = [{ type: 'push', items: [{ queue: 'q', payload: MARK, transactionId: 'm3' }] }];
  const transaction = await bare.ask('POST', '/api/v1/transaction', { operations });
  assert.deepEqual([transaction.body.success, transaction.body.reason], [false, 'encryption_required']);
  // Other options may be changed here, and this one switched off.
  const kept = await bare.ask('POST', '/api/v1/configure', { queue: 'q', options: { leaseTime: 7 } });
  assert.equal((kept.body.options as { encryptionEnabled: boolean }).encryptionEnabled, true);
  assert.deepEqual(
    (await frames(other, 'q')).map((frame) => frame.encrypted),
    [false, false, true],
  );
});

test('a payload that has the shape of an envelope comes back as it was sent', async (t) => {
  const live = await keyed(t, KEY);
  const lookalikes = [
    `{"encrypted":"${'A'.repeat(44)}","iv":"${'B'.repeat(22)}==","authTag":"${'C'.repeat(22)}=="}`,
    // Even one that this very key would open.
    sealPayload(KEY, Buffer.from('"inner"')).toString(),
    sealPayload(OTHER, Buffer.from('"inner"')).toString(),
  ];
  for (const queue of ['plain', 'sealed']) {
    if (queue === 'sealed') await configure(live, queue);
    for (const payload of lookalikes) await push(live, queue, payload);
    assert.deepEqual(await popBytes(live, queue, 'g'), lookalikes, queue);
  }
  assert.equal(live.broker.sealing.unopened, 0);
  // As a dead letter of a plain queue nothing says what it is: one that no key opens stays as it is.
  await push(live, 'dead', lookalikes[0]!);
  const { body } = await live.ask<{ messages: Record<string, unknown>[] }>('GET', '/api/v1/pop/queue/dead');
  await live.ask('POST', '/api/v1/ack', { ...body.messages[0], status: 'dlq' });
  const letters = await live.ask<{ messages: { data: unknown; isEncrypted?: boolean }[] }>(
    'GET',
    '/api/v1/dlq',
  );
  assert.deepEqual(letters.body.messages[0]!.data, JSON.parse(lookalikes[0]!));
  assert.notEqual(letters.body.messages[0]!.isEncrypted, true);
});
