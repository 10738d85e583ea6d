/** What makes a message the same message: its transaction id, to the last byte, and nothing else. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client, type Pushed } from '../broker/client.ts';
import { startBroker } from '../kit/broker.ts';
import {
  consumer,
  deadLetters,
  FRUGAL,
  fingerprint,
  items,
  names,
  openRig,
  type Rig,
  sql,
  txnsOf,
} from './rig.ts';

test('identity', async (t) => {
  const rig = await openRig(t, 2, { RETENTION_INTERVAL: '600000' });

  await t.test('ids that only look alike are different, everywhere an id counts', () => lookAlikes(rig));
  await t.test('so are the names of lanes and groups', () => lookAlikeNames(rig));
  await t.test('an id is taken whole or refused whole', () => limits(rig));
  await t.test('a duplicate with another payload changes nothing, wherever the first one is by then', () =>
    otherPayload(rig),
  );
  await t.test('the window ends where it ends, for a duplicate with another payload too', () =>
    windowEdge(rig),
  );
  for (const race of RACES) {
    await t.test(`a hundred at the same instant: ${race.name}`, () => hundred(rig, race));
  }
  await t.test('brokers that have just been started know what is a duplicate', async () => {
    const before = await rig.clients[0]!.push(items('reborn', names('m', 20)));
    for (const broker of rig.brokers) await broker.kill('SIGKILL');
    const { url } = await startBroker({ database: rig.database, env: FRUGAL }, t);
    const again = await new Client(url).push(
      names('m', 20).map((transactionId) => ({ queue: 'reborn', transactionId, payload: 'another' })),
    );
    assert.deepEqual(
      summary(again),
      before.map(({ message_id }) => ['duplicate', message_id]),
    );
  });
});

const LONG = 65_535;
/** Each differs from its neighbours by what people and databases like to overlook. */
const ALIKE = [
  'Order-1',
  'order-1',
  'ORDER-1',
  'order-1 ',
  ' order-1',
  'order-1\u00a0',
  'order-1\u200b',
  '\ufefforder-1',
  'order\u20101',
  '\u00e9',
  'e\u0301',
  '\uff45\u0301',
  '\u212b',
  '\u00c5',
  'A\u030a',
  '\ufb01',
  'fi',
  '\u00df',
  'ss',
  '\u0130',
  'i\u0307',
  'I',
  '\u0131',
  '\u03a3',
  '\u03c2',
  '\u03c3',
  '\u{10ffff}',
  '\ufffd',
  '\u{1f468}\u200d\u{1f469}',
  '\u{1f468}\u{1f469}',
  '1',
  '01',
  '1.0',
  '1e0',
  '+1',
  '0',
  '-0',
  'null',
  'NULL',
  'undefined',
  'true',
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  "a'b",
  'a"b',
  'a\\b',
  'a\\u0062',
  'a/b',
  'a%2Fb',
  'a%b',
  'a_b',
  'a{b,c}',
  '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11',
  '0198C1F4-6A9B-7C3E-9B1A-0D4F7C2E5A11',
  '0198c1f46a9b7c3e9b1a0d4f7c2e5a11',
  'x'.repeat(LONG),
  'x'.repeat(LONG - 1),
  `${'x'.repeat(LONG - 1)}y`,
  `y${'x'.repeat(LONG - 1)}`,
  '\u20ac'.repeat(LONG / 3),
  `${'\u20ac'.repeat(LONG / 3 - 1)}xyz`,
];

async function lookAlikes(rig: Rig): Promise<void> {
  const [first, second] = rig.clients as [Client, Client];
  assert.equal(new Set(ALIKE).size, ALIKE.length);
  const all = (payload: string) => ALIKE.map((transactionId) => ({ queue: 'alike', transactionId, payload }));
  const pushed = await first.push(all('first'));
  assert.deepEqual(
    pushed.map(({ status, transaction_id: id }) => [status, id]),
    ALIKE.map((id) => ['queued', id]),
  );
  assert.equal(new Set(pushed.map(({ message_id }) => message_id)).size, ALIKE.length);
  // Each is the duplicate of itself alone: sent alone, on either broker.
  const again = await Promise.all(all('second').map((item, i) => (i % 2 ? first : second).push([item])));
  assert.deepEqual(
    summary(again.flat()),
    pushed.map(({ message_id }) => ['duplicate', message_id]),
  );

  const held = await second.pop('alike', { batch: 500 });
  assert.deepEqual(txnsOf(held), ALIKE);
  const { partitionId } = held[0]!;
  // And each ack means that one message: the cursor moves by one at a time.
  for (const [i, message] of held.entries()) {
    if (i % 8 === 3) {
      // What is cut off, or put into another form, is not the id.
      const id = message.transactionId;
      for (const other of [id.slice(0, -1), `${id}\u0301`, `${id} `]) {
        if (ALIKE.includes(other) || Buffer.byteLength(other) > LONG) continue;
        const verdict = await first.ack({ ...message, transactionId: other });
        assert.equal(
          verdict.success,
          false,
          `${JSON.stringify(other.slice(0, 40))} for ${JSON.stringify(id.slice(0, 40))}`,
        );
      }
    }
    const status = i % 10 === 9 ? 'dlq' : 'completed';
    const verdict = await (i % 2 ? first : second).ack(message, status);
    assert.deepEqual([verdict.success, verdict.noop, verdict.dlq], [true, false, status === 'dlq']);
    assert.equal((await consumer(rig.db, partitionId)).committed, i);
    // A dead letter releases the lease; the rest comes again.
    if (status === 'dlq') {
      const rest = await second.pop('alike', { batch: 500 });
      assert.deepEqual(txnsOf(rest), ALIKE.slice(i + 1));
      held.splice(i + 1, held.length, ...rest);
    }
  }
  const letters = await deadLetters(rig.db, partitionId);
  assert.deepEqual(
    letters.map(({ txn }) => txn),
    ALIKE.filter((_, i) => i % 10 === 9),
  );
}

async function lookAlikeNames(rig: Rig): Promise<void> {
  const [first, second] = rig.clients as [Client, Client];
  // Dot segments and what a path cannot carry are of no concern here; nor are names above 255 characters.
  const fit = ALIKE.filter((name) => name.length <= 255);
  const pushed = await first.push(
    fit.map((name) => ({ queue: 'lanes', partition: name, transactionId: 'same', payload: name })),
  );
  assert.ok(pushed.every(({ status }) => status === 'queued'));
  for (const [i, name] of fit.entries()) {
    const wish = { consumerGroup: name, subscriptionMode: 'all' };
    const [message, ...more] = await (i % 2 ? first : second).pop('lanes', wish, name);
    assert.deepEqual(
      [message?.data, message?.partition, message?.consumerGroup, more],
      [name, name, name, []],
    );
    assert.ok((await first.ack(message!)).success);
  }
  const [groups] = await sql<{ n: number }>(
    rig.db,
    `SELECT count(*)::int AS n FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id
       JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = 'lanes' AND c.committed = 0 AND c.consumer_group = p.name`,
  );
  assert.equal(groups!.n, fit.length);
}

async function limits(rig: Rig): Promise<void> {
  const [client] = rig.clients as [Client];
  const tooLong = [
    'x'.repeat(LONG + 1),
    '\u00e9'.repeat((LONG + 1) / 2),
    '\u20ac'.repeat(LONG / 3 + 1),
    'x'.repeat(1 << 20),
  ];
  const impossible = [
    '\0',
    'a\0b',
    'a\0',
    '\u0001',
    '\n',
    'a\tb',
    '\u001f',
    '\u007f',
    '\ud800',
    'a\udc00',
    '\udc00\ud800',
  ];
  const before = await fingerprint(rig.db);
  for (const id of [...tooLong, ...impossible]) {
    // Between two good ones: they go with it.
    const list = [
      ...items('limits', ['good1']),
      { queue: 'limits', transactionId: id, payload: 1 },
      ...items('limits', ['good2']),
    ];
    const { status, body } = await client.call('POST', '/api/v1/push', { items: list });
    const what = JSON.stringify(id.slice(0, 20));
    assert.equal(status, 400, what);
    assert.match(String(body.error), /transactionId/, what);
    assert.match(
      String(body.error),
      tooLong.includes(id) ? /65,?535/ : /control|surrogate|Unicode|NUL/i,
      what,
    );
  }
  assert.deepEqual(await fingerprint(rig.db), before, 'nothing of it was taken');
}

function summary(results: readonly Pushed[]): [string, string][] {
  return results.map(({ status, message_id }) => [status, message_id]);
}

async function otherPayload(rig: Rig): Promise<void> {
  const [first, second] = rig.clients as [Client, Client];
  const item = (transactionId: string, payload: unknown) => ({
    queue: 'twice',
    partition: 'p',
    transactionId,
    payload,
  });
  const ids = names('m', 6);
  const original = await first.push(ids.map((id) => item(id, { original: id })));
  const expected = original.map(({ message_id }) => ['duplicate', message_id]);

  /** Duplicates of all of it, in every company that they can come in. */
  async function repeat(where: string): Promise<void> {
    const before = await fingerprint(rig.db);
    for (const client of [first, second]) {
      const forged = { forged: true, more: 'x'.repeat(3000) };
      assert.deepEqual(summary(await client.push(ids.map((id) => item(id, forged)))), expected, where);
      assert.deepEqual(
        summary(await client.push(ids.toReversed().map((id) => item(id, null)))),
        expected.toReversed(),
        where,
      );
      const singles = await Promise.all(ids.map((id) => client.push([item(id, 0), item(id, 1)])));
      assert.deepEqual(
        summary(singles.flat()),
        expected.flatMap((each) => [each, each]),
        where,
      );
    }
    assert.deepEqual(await fingerprint(rig.db), before, where);
  }

  await repeat('waiting');
  const held = await second.pop('twice', { batch: 6 });
  await repeat('leased');
  assert.ok((await second.ack(held[1]!)).success);
  await repeat('a part done');
  assert.ok((await second.ack(held[2]!, 'dlq')).dlq);
  await repeat('dead-lettered');
  const rest = await first.pop('twice', { batch: 6 });
  assert.deepEqual(
    rest.map(({ data }) => data),
    ids.slice(3).map((id) => ({ original: id })),
  );
  assert.ok((await first.ackBatch(rest)).every(({ success }) => success));
  await repeat('done');
  const [letter] = await deadLetters(rig.db, rest[0]!.partitionId);
  assert.deepEqual(JSON.parse(letter!.payload!), { original: 'm2' });

  // Among new ones: these are stored without a hole, in their order.
  const mixed = await first.push([
    item('n0', 'n0'),
    item('m4', 'x'),
    item('n1', 'n1'),
    item('m0', 'x'),
    item('n0', 'x'),
    item('n2', 'n2'),
  ]);
  assert.deepEqual(
    mixed.map(({ status }) => status),
    ['queued', 'duplicate', 'queued', 'duplicate', 'duplicate', 'queued'],
  );
  assert.deepEqual(
    [mixed[1]!.message_id, mixed[3]!.message_id, mixed[4]!.message_id],
    [original[4]!.message_id, original[0]!.message_id, mixed[0]!.message_id],
  );
  const fresh = await second.pop('twice', { batch: 10, wait: true, timeout: 5_000 });
  assert.deepEqual(
    fresh.map(({ data, id }) => [data, id]),
    [0, 2, 5].map((i) => [['n0', '', 'n1', '', '', 'n2'][i], mixed[i]!.message_id]),
  );
  assert.equal((await consumer(rig.db, fresh[0]!.partitionId)).batchEnd, 8, 'offsets without a hole');
  // The same id elsewhere is another message.
  const elsewhere = await first.push([
    { queue: 'twice', partition: 'q', transactionId: 'm0', payload: 1 },
    { queue: 'twice2', partition: 'p', transactionId: 'm0', payload: 1 },
  ]);
  assert.ok(elsewhere.every(({ status }) => status === 'queued'));
}

async function windowEdge(rig: Rig): Promise<void> {
  const WINDOW_SECONDS = 1000;
  const [first, second] = rig.clients as [Client, Client];
  await first.configure('edge', { dedupWindowSeconds: WINDOW_SECONDS });
  const push = async (client: Client, payload: number) => {
    const [result] = await client.push([{ queue: 'edge', transactionId: 'm', payload }]);
    return result!;
  };
  const original = await push(first, 0);
  await rig.database.advanceClock(WINDOW_SECONDS - 30);
  for (const client of [first, second])
    assert.deepEqual(summary([await push(client, 1)]), [['duplicate', original.message_id]]);
  await rig.database.advanceClock(31);
  const renewed = await push(second, 2);
  assert.equal(renewed.status, 'queued');
  assert.notEqual(renewed.message_id, original.message_id);
  for (const client of [first, second])
    assert.deepEqual(summary([await push(client, 3)]), [['duplicate', renewed.message_id]]);
  assert.deepEqual(
    (await first.pop('edge')).map(({ data }) => data),
    [0, 2],
  );
}

interface Race {
  name: string;
  /** The lane has messages already. */
  known: boolean;
  /** Other ids in each request, before and behind the common one. */
  company: number;
  /** The common id is in this many lanes of each request. */
  lanes: number;
}

const RACES: Race[] = [
  { name: 'a queue that nobody has met', known: false, company: 0, lanes: 1 },
  { name: 'a lane with messages', known: true, company: 0, lanes: 1 },
  { name: 'each in company of its own', known: true, company: 3, lanes: 1 },
  { name: 'in bundles over lanes that are new', known: false, company: 1, lanes: 5 },
];
const RACERS = 100;

async function hundred(rig: Rig, race: Race): Promise<void> {
  const queue = `race ${race.name}`;
  const lanes = names('lane', race.lanes);
  if (race.known) for (const lane of lanes) await rig.clients[0]!.push(items(queue, names('old', 3), lane));
  const answers = await Promise.all(
    Array.from({ length: RACERS }, async (_, racer) => {
      const own = (partition: string, side: string) =>
        names(`${side}-${racer}-`, race.company).map((transactionId) => ({
          queue,
          partition,
          transactionId,
          payload: racer,
        }));
      const list = lanes.flatMap((partition) => [
        ...own(partition, 'before'),
        { queue, partition, transactionId: 'the one', payload: racer },
        ...own(partition, 'behind'),
      ]);
      const results = await rig.clients[racer % 2]!.push(list);
      return list.map(({ partition, transactionId }, i) => ({
        racer,
        partition,
        transactionId,
        ...results[i]!,
      }));
    }),
  );
  for (const lane of lanes) {
    const mine = answers.flat().filter(({ partition }) => partition === lane);
    const common = mine.filter(({ transactionId }) => transactionId === 'the one');
    assert.equal(common.length, RACERS);
    const [winner, ...others] = common.filter(({ status }) => status === 'queued');
    assert.deepEqual(others, [], 'one is queued');
    assert.equal(common.filter(({ status }) => status === 'duplicate').length, RACERS - 1);
    assert.deepEqual(
      [...new Set(common.map(({ message_id }) => message_id))],
      [winner!.message_id],
      'one id',
    );
    assert.ok(mine.every(({ transactionId, status }) => transactionId === 'the one' || status === 'queued'));
    const stored = await rig.clients[1]!.pop(
      queue,
      { batch: 2000, autoAck: true, wait: true, timeout: 5_000 },
      lane,
    );
    assert.equal(stored.length, (race.known ? 3 : 0) + 1 + RACERS * 2 * race.company);
    const [kept, ...more] = stored.filter(({ transactionId }) => transactionId === 'the one');
    assert.deepEqual(
      [kept!.id, kept!.data, more],
      [winner!.message_id, winner!.racer, []],
      "the winner's payload",
    );
    // A request's own order holds around it.
    const place = new Map(stored.map(({ transactionId }, i) => [transactionId, i]));
    for (let racer = 0; racer < RACERS; racer++) {
      const own = [
        ...names(`before-${racer}-`, race.company),
        ...names(`behind-${racer}-`, race.company),
      ].map((id) => place.get(id)!);
      assert.deepEqual(
        own,
        own.toSorted((a, b) => a - b),
      );
    }
  }
}
