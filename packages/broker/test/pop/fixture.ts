import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { DEFAULT_TENANT, type PopAnswer, type PopRequest, QUEUE_MODE_GROUP } from '../../src/engine/types.ts';
import { hashTransactionIds } from '../../src/log/hash.ts';
import { packSegment } from '../../src/log/segment.ts';
import { mintUuidV7 } from '../../src/log/uuid.ts';
import type { Database } from '../../src/store/database.ts';
import { statement } from '../../src/store/database.ts';
import { type StoreLog, silentLog } from '../../src/store/log.ts';
import { append, provision, VERDICT } from '../../src/store/push.ts';
import { Delivery, type DeliverySettings } from './delivery.ts';

export const TENANT = DEFAULT_TENANT;

interface Teardown {
  after(fn: () => Promise<void>): void;
}

let statements = 0;
const byText = new Map<string, ReturnType<typeof statement>>();

/** Runs any SQL of a test. */
export function sql<Row extends object>(db: Database, text: string, params: (string | number | null)[] = []) {
  let known = byText.get(text);
  if (known === undefined) {
    known = statement(`pop_test_${statements++}`, text);
    byText.set(text, known);
  }
  return db.query<Row>(known, params);
}

export interface Broker {
  readonly db: Database;
  readonly delivery: Delivery;
  readonly delivered: {
    partitionId: number;
    batchEnd: number;
    worker: string;
    transactionIds: readonly string[];
  }[];
  pop(over?: Partial<PopRequest> & { queue?: string; partition?: string }): Promise<PopAnswer>;
}

export interface Rig {
  readonly database: TestDatabase;
  /** Apart from the brokers: pushes and looks. */
  readonly db: Database;
  broker(settings?: Partial<DeliverySettings>, log?: StoreLog): Promise<Broker>;
  /** One segment a call, told to the announcers of `tell`. */
  push(queue: string, partition: string, texts: readonly string[], tell?: readonly Broker[]): Promise<Pushed>;
  /** A consumer row. */
  consumer(partitionId: number, group?: string): Promise<ConsumerRow | null>;
}

export interface Pushed {
  partitionId: number;
  base: number;
  last: number;
}

export interface ConsumerRow {
  committed: number;
  batch_end: number | null;
  worker_id: string | null;
  lease_expires_at: number | null;
  lease_conflated: boolean;
  attempt_offset: number | null;
  attempt_count: number;
  total_consumed: number;
  batch_retry_count: number;
}

/** Admission that lets everything through. */
const open = { run: <T>(_lane: string, work: () => Promise<T>): Promise<T> => work() };

export async function setup(t: Teardown): Promise<Rig> {
  const database = await freshDatabase();
  const db = await database.open();
  const brokers: Broker[] = [];
  t.after(async () => {
    for (const broker of brokers) {
      await broker.delivery.stop();
      await broker.db.close();
    }
    await db.close();
    await database.drop();
  });
  return {
    database,
    db,
    async broker(settings = {}, log = silentLog) {
      const made = await makeBroker(database, settings, log, brokers.length);
      brokers.push(made);
      return made;
    },
    async push(queue, partition, texts, tell = []) {
      const [place] = await provision(db, TENANT, [{ queue, partition }]);
      const frames = texts.map((text) => ({
        messageId: mintUuidV7(Date.now()),
        traceId: null,
        transactionId: text,
        producerSub: null,
        encrypted: false,
        payload: Buffer.from(JSON.stringify(text)),
      }));
      const [verdict] = await append(db, [
        {
          partitionId: place!.partitionId,
          count: frames.length,
          verifiedUpto: -1,
          windowSeconds: place!.windowSeconds,
          hashes: hashTransactionIds(texts),
          blob: await packSegment(frames, 1),
          sealed: false,
        },
      ]);
      if (verdict?.verdict !== VERDICT.stored) throw new Error(`not stored: ${JSON.stringify(verdict)}`);
      const last = verdict.base + texts.length - 1;
      for (const broker of tell) {
        broker.delivery.announcer.pushed([
          { tenant: TENANT, queue, partitionId: place!.partitionId, lastOffset: last },
        ]);
      }
      return { partitionId: place!.partitionId, base: verdict.base, last };
    },
    async consumer(partitionId, group = QUEUE_MODE_GROUP) {
      const rows = await sql<ConsumerRow>(
        db,
        `SELECT committed, batch_end, worker_id, lease_expires_at, lease_conflated, attempt_offset, attempt_count,
                total_consumed, batch_retry_count
           FROM queen.log_consumers WHERE partition_id = $1::bigint AND consumer_group = $2::text`,
        [partitionId, group],
      );
      return rows[0] ?? null;
    },
  };
}

async function makeBroker(
  database: TestDatabase,
  settings: Partial<DeliverySettings>,
  log: StoreLog,
  index: number,
): Promise<Broker> {
  const db = await database.open({ acquireTimeoutMs: 60_000 });
  const delivered: Broker['delivered'] = [];
  const delivery = new Delivery({
    db,
    admission: open,
    ackRegistry: { delivered: (batch) => void delivered.push(batch) },
    clock: systemClock,
    log,
    sender: `broker-${index}`,
    settings: { notify: false, ...settings },
  });
  await delivery.start();
  return {
    db,
    delivery,
    delivered,
    pop: (over = {}) => delivery.pop(request(over)),
  };
}

export function request(over: Partial<PopRequest> & { queue?: string; partition?: string } = {}): PopRequest {
  const { queue = 'q', partition, ...rest } = over;
  return {
    tenant: TENANT,
    scope: partition === undefined ? { kind: 'queue', queue } : { kind: 'partition', queue, partition },
    group: QUEUE_MODE_GROUP,
    batch: null,
    partitions: null,
    autoAck: false,
    waitMs: 0,
    leaseSeconds: 0,
    subscriptionMode: 'all',
    subscriptionFrom: null,
    conflation: null,
    autopilot: false,
    signal: null,
    ...rest,
  };
}

/** The texts of an answer, by partition. */
export function texts(answer: PopAnswer): Record<string, string[]> {
  const out: Record<string, string[]> = {};
  for (const claim of answer.claims) {
    out[claim.partition] = claim.messages.map((m) => JSON.parse(m.payload.toString('utf8')) as string);
  }
  return out;
}

/** Completes a batch as an ack would. */
export async function complete(rig: Rig, answer: PopAnswer, group: string, tell: readonly Broker[] = []) {
  for (const claim of answer.claims) {
    const last = claim.messages.at(-1)!.offset;
    await sql(
      rig.db,
      `UPDATE queen.log_consumers SET committed = $3::bigint, batch_end = NULL, worker_id = NULL,
              lease_expires_at = NULL, lease_acquired_at = NULL, attempt_offset = NULL, attempt_count = 0
        WHERE partition_id = $1::bigint AND consumer_group = $2::text`,
      [Number(claim.partitionId), group, last],
    );
    for (const broker of tell) broker.delivery.announcer.released(Number(claim.partitionId), group, last);
  }
}

export function range(n: number, prefix = 'm'): string[] {
  return Array.from({ length: n }, (_, i) => `${prefix}${i}`);
}
