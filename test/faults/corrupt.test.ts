/**
 * What is stored is not what was written: a byte flipped in a segment or in its hashes, a segment cut short, a page of
 * the database's file damaged. The partition says where it hurts; nothing of it is skipped or served all the same;
 * every other partition goes on.
 */
import assert from 'node:assert/strict';
import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Database, statement } from '../../packages/broker/src/store/database.ts';
import { CLUSTER } from '../../packages/broker/src/store/embedded/cluster.ts';
import { Client, type Message } from '../broker/client.ts';
import { type BrokerProcess, startBroker } from '../kit/broker.ts';
import { atEnd } from '../kit/cleanup.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { OwnServer } from './outages.ts';
import { seeded } from './seed.ts';

const POP = { consumerGroup: 'g', subscriptionMode: 'all', leaseSeconds: 30 };

const LANE = statement(
  'corrupt_lane',
  `SELECT p.id, c.committed, c.worker_id AS worker FROM queen.log_partitions p
     JOIN queen.queues q ON q.id = p.queue_id
     LEFT JOIN queen.log_consumers c ON c.partition_id = p.id AND c.consumer_group = 'g'
    WHERE q.name = $1 AND p.name = $2`,
);
const SEGMENT = statement(
  'corrupt_segment',
  'SELECT blob FROM queen.log_segments WHERE partition_id = $1::bigint AND base_offset = $2::bigint',
);
const WRITE_SEGMENT = statement(
  'corrupt_write_segment',
  'UPDATE queen.log_segments SET blob = $3::bytea WHERE partition_id = $1::bigint AND base_offset = $2::bigint',
);
const WRITE_HASHES = statement(
  'corrupt_write_hashes',
  `UPDATE queen.log_txns SET hashes = $3::bytea WHERE partition_id = $1::bigint AND base_offset = $2::bigint`,
);
const HASHES = statement(
  'corrupt_hashes',
  'SELECT hashes FROM queen.log_txns WHERE partition_id = $1::bigint AND base_offset = $2::bigint',
);

interface Lane {
  id: number;
  committed: number | null;
  worker: string | null;
}

async function laneOf(db: Database, queue: string, partition: string): Promise<Lane> {
  const [lane] = await db.query<Lane>(LANE, [queue, partition]);
  return lane!;
}

/** Three messages a request, so three a segment; three segments a lane. */
async function fill(client: Client, queue: string, partitions: string[], pad = 20): Promise<void> {
  for (let segment = 0; segment < 3; segment++) {
    for (const partition of partitions) {
      const items = [0, 1, 2].map((i) => {
        const n = segment * 3 + i;
        const payload = {
          n,
          noise: Buffer.from(crypto.getRandomValues(new Uint8Array(pad))).toString('hex'),
        };
        return { queue, partition, transactionId: `${partition}-${n}`, payload };
      });
      await client.push(items);
    }
  }
}

const numbers = (messages: Message[]) => messages.map(({ data }) => (data as { n: number }).n);
const NINE = [0, 1, 2, 3, 4, 5, 6, 7, 8];

async function metric(broker: BrokerProcess, name: string): Promise<number> {
  const text = await (await fetch(`${broker.url}/metrics/prometheus`)).text();
  return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1] ?? Number.NaN);
}

/** Takes everything that the queue gives, as one consumer would; by partition. */
async function drain(client: Client, queue: string): Promise<Map<string, number[]>> {
  const seen = new Map<string, number[]>();
  for (;;) {
    const batch = await client.pop(queue, { ...POP, partitions: 2, batch: 7 });
    if (batch.length === 0) return seen;
    for (const [partition, messages] of Map.groupBy(batch, (m) => m.partition)) {
      seen.set(partition, [...(seen.get(partition) ?? []), ...numbers(messages)]);
    }
    assert.ok((await client.ackBatch(batch)).every(({ success }) => success));
  }
}

test('one byte of a segment, wherever it is; and a segment cut short', async (t) => {
  const chance = seeded(t);
  const database = await freshDatabase(t);
  const broker = await startBroker({ database }, t);
  const client = new Client(broker.url);
  const db = await database.open({ poolSize: 1 });
  atEnd(t, () => db.close());
  const damaged = Array.from({ length: 12 }, (_, i) => `damaged-${i}`);
  const sound = ['sound-0', 'sound-1', 'sound-2'];
  await fill(client, 'q', [...damaged, ...sound]);
  for (const [i, partition] of damaged.entries()) {
    const { id } = await laneOf(db, 'q', partition);
    const [{ blob }] = (await db.query<{ blob: Buffer }>(SEGMENT, [id, 3])) as [{ blob: Buffer }];
    // The middle segment. Some lose their end, one of them everything but a byte.
    const broken =
      i < 8 ? Buffer.from(blob) : blob.subarray(0, i === 8 ? 1 : chance.integer(2, blob.length - 1));
    if (i < 8) broken[chance.integer(0, blob.length - 1)]! ^= 1 << chance.integer(0, 7);
    await db.query(WRITE_SEGMENT, [id, 3, broken]);
  }

  const seen = await drain(client, 'q');
  for (const partition of sound) assert.deepEqual(seen.get(partition), NINE, partition);
  for (const partition of damaged) {
    // Up to the damage at most, and in whole.
    const got = seen.get(partition) ?? [];
    assert.ok(got.length === 0 || got.length === 3, `${partition}: ${got}`);
    const { id, committed, worker } = await laneOf(db, 'q', partition);
    assert.ok((committed ?? -1) < 3 && worker === null, `${partition}: ${committed} ${worker}`);
    const path = `/api/v1/pop/queue/q/partition/${partition}?consumerGroup=g&subscriptionMode=all`;
    const answer = await client.call<{ error: string; code: string }>('GET', path);
    assert.equal(answer.status, 500);
    assert.equal(answer.body.code, 'corrupt_segment');
    assert.match(answer.body.error, new RegExp(`partition ${id}: the segment at offset 3 cannot be read`));
    // The sound messages in front of it can be had.
    const front = await client.pop('q', { ...POP, consumerGroup: 'front', batch: 3 }, partition);
    assert.deepEqual(numbers(front), [0, 1, 2]);
  }
  assert.ok((await metric(broker, 'queen_corrupt_segments_total')) >= damaged.length);
  assert.match(broker.logs(), /a stored segment cannot be read, its partition is not served past it/);
  // New messages of a damaged lane are taken, and wait behind the damage.
  const [pushed] = await client.push([
    { queue: 'q', partition: damaged[0]!, payload: {}, transactionId: 'new' },
  ]);
  assert.equal(pushed!.status, 'queued');
  // A repaired segment is served from where the group stands.
  const { id } = await laneOf(db, 'q', sound[0]!);
  const [{ blob }] = (await db.query<{ blob: Buffer }>(SEGMENT, [id, 3])) as [{ blob: Buffer }];
  const broken = await laneOf(db, 'q', damaged[0]!);
  await db.query(WRITE_SEGMENT, [broken.id, 3, blob]);
  const again = await client.pop('q', POP, damaged[0]);
  assert.equal(again.at(-1)!.transactionId, 'new');
});

test('one byte of the hashes, and hashes cut short: acks still find their message', async (t) => {
  const chance = seeded(t);
  const database = await freshDatabase(t);
  const broker = await startBroker(
    { database, env: { QUEEN_ACK_REGISTRY: 'false', QUEEN_DEDUP_CACHE: 'false' } },
    t,
  );
  const client = new Client(broker.url);
  const db = await database.open({ poolSize: 1 });
  atEnd(t, () => db.close());
  await fill(client, 'q', ['flipped', 'cut', 'sound']);
  for (const partition of ['flipped', 'cut']) {
    const { id } = await laneOf(db, 'q', partition);
    const [{ hashes }] = (await db.query<{ hashes: Buffer }>(HASHES, [id, 3])) as [{ hashes: Buffer }];
    const broken = partition === 'cut' ? hashes.subarray(0, 20) : Buffer.from(hashes);
    if (partition === 'flipped') broken[chance.integer(16, 31)]! ^= 1 << chance.integer(0, 7);
    await db.query(WRITE_HASHES, [id, 3, broken]);
  }
  for (const partition of ['flipped', 'cut', 'sound']) {
    const batch = await client.pop('q', POP, partition);
    assert.deepEqual(numbers(batch), NINE);
    // One after the other, each by its transactionId alone.
    for (const [i, message] of batch.entries()) {
      const verdict = await client.ack(message);
      assert.ok(verdict.success && !verdict.noop, `${partition} ${i}: ${verdict.error}`);
      assert.equal((await laneOf(db, 'q', partition)).committed, i, partition);
    }
    // Pushing goes on, whatever the look for duplicates meets.
    const answers = await client.push(
      [0, 4, 8].map((n) => ({ queue: 'q', partition, transactionId: `${partition}-${n}`, payload: {} })),
    );
    const statuses = answers.map(({ status }) => status);
    assert.equal(statuses[0], 'duplicate');
    assert.equal(statuses[2], 'duplicate');
    // What is not in the hashes any more cannot be known for a duplicate; it must not be taken for another one.
    assert.ok(
      partition === 'sound' ? statuses[1] === 'duplicate' : statuses[1] === 'queued',
      String(statuses),
    );
  }
});

test('a damaged page of the database file', async (t) => {
  const server = await OwnServer.start(t);
  const broker = await startBroker({ database: { url: server.url } }, t);
  const client = new Client(broker.url);
  const lanes = ['a', 'b', 'c', 'd', 'e'];
  // Large enough to lie in pages of their own, outside the row.
  await fill(client, 'q', lanes, 20_000);
  const db = await Database.open(server.options);
  const { id } = await laneOf(db, 'q', 'c');
  await db.close();
  const [place] = (await server.sql(
    `SELECT pg_relation_filepath(c.reltoastrelid) AS file, c.reltoastrelid::regclass::text AS toast,
            pg_column_toast_chunk_id(s.blob)::text AS chunk
       FROM queen.log_segments s, pg_class c
      WHERE c.oid = 'queen.log_segments'::regclass AND s.partition_id = ${id} AND s.base_offset = 3`,
  )) as [{ file: string; toast: string; chunk: string }];
  // A page of its own: one backend's chunks need not lie side by side, another lane's may lie between them.
  const [{ block }] = (await server.sql(
    `SELECT ((ctid::text::point)[0])::int AS block FROM ${place.toast}
      GROUP BY 1 HAVING bool_and(chunk_id = ${place.chunk}) ORDER BY 1 LIMIT 1`,
  )) as [{ block: number }];
  await broker.stop();
  // With everything in the file: a recovery would mend the page.
  await server.stop(60_000);
  flipByte(join(server.directory, CLUSTER, place.file), block * 8192 + 4096);
  await server.resume();

  const next = await startBroker({ database: { url: server.url } }, t);
  const after = new Client(next.url);
  const seen = await drain(after, 'q');
  for (const lane of lanes) {
    if (lane !== 'c') assert.deepEqual(seen.get(lane), NINE, lane);
    else assert.ok([0, 3].includes((seen.get(lane) ?? []).length), String(seen.get(lane)));
  }
  const answer = await after.call<{ error: string }>(
    'GET',
    `/api/v1/pop/queue/q/partition/c?consumerGroup=g`,
  );
  assert.equal(answer.status, 500);
  t.diagnostic(answer.body.error);
  assert.match(next.logs(), new RegExp(`partition(Id)?\\W+${id}\\b`), 'the log says which partition');
  const again = await after.push([{ queue: 'q', partition: 'a', payload: {}, transactionId: 'more' }]);
  assert.equal(again[0]!.status, 'queued');
});

function flipByte(file: string, at: number): void {
  const fd = openSync(file, 'r+');
  const byte = Buffer.alloc(1);
  readSync(fd, byte, 0, 1, at);
  byte[0]! ^= 0x40;
  writeSync(fd, byte, 0, 1, at);
  closeSync(fd);
}
