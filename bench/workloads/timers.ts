/** How many timers fire in a second when a backlog of them is due, and how late they are when it is not. */
import type { Database } from '../../packages/broker/src/store/database.ts';
import { statement } from '../../packages/broker/src/store/database.ts';
import type { HttpConnection } from '../http.ts';
import { partitionName, payload } from '../messages.ts';
import type { Rig } from '../rig.ts';
import { percentile } from '../stats.ts';
import type { Result, Row, Scale, Workload } from '../workload.ts';

/** What one call may hold. */
const CALL = 256;
const CLIENTS = 4;
const QUEUE = 'bench-timers';

const PENDING = statement('bench_timers_pending', 'SELECT EXISTS (SELECT FROM queen.log_timers) AS pending');
/** From the first fire to the last. */
const FIRED = statement(
  'bench_timers_fired',
  `SELECT sum(s.end_offset - s.base_offset + 1)::bigint AS fired, count(*) AS segments,
          queen.micros(max(s.created_at)) - queen.micros(min(s.created_at)) AS micros
     FROM queen.log_segments s
     JOIN queen.log_partitions p ON p.id = s.partition_id
     JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1 AND s.created_at >= queen.from_micros($2::bigint)`,
);
const NOW = statement('bench_timers_now', 'SELECT queen.micros(queen.clock()) AS now');
/** One row a message: when it was stored, by partition and place. */
const STORED = statement(
  'bench_timers_stored',
  `SELECT queen.micros(s.created_at) AS at, (s.end_offset - s.base_offset + 1)::int AS count
     FROM queen.log_segments s
     JOIN queen.log_partitions p ON p.id = s.partition_id
     JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1 ORDER BY s.created_at`,
);

const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function post<T>(connection: HttpConnection, path: string, sent: unknown): Promise<T> {
  const { status, body } = await connection.request('POST', path, Buffer.from(JSON.stringify(sent)));
  if (status !== 200) throw new Error(`${path} answered ${status}: ${body}`);
  return JSON.parse(body.toString()) as T;
}

function fireSwitch(connection: HttpConnection, on: boolean): Promise<unknown> {
  return post(connection, '/api/v1/system/kv-timers', { timersFire: on });
}

/** Answers when each is due, in microseconds. */
async function schedule(
  connections: readonly HttpConnection[],
  timers: number,
  lanes: number,
  delayMs: (n: number) => number,
): Promise<number[]> {
  const due: number[] = [];
  let next = 0;
  const loop = async (connection: HttpConnection) => {
    while (next < timers) {
      const from = next;
      next = Math.min(timers, from + CALL);
      const operations = Array.from({ length: next - from }, (_, i) => ({
        op: 'schedule',
        queue: QUEUE,
        timerKey: `k${from + i}`,
        partition: partitionName((from + i) % lanes),
        txn: `t${from + i}`,
        payload: Buffer.from(payload(from + i)).toString('base64'),
        delayMs: Math.round(delayMs(from + i)),
      }));
      const answer = await post<{ results: { deliverAt: string }[] }>(connection, '/api/v1/timers', {
        operations,
      });
      for (const { deliverAt } of answer.results) {
        due.push(Date.parse(`${deliverAt.slice(0, 19)}Z`) * 1000 + Number(deliverAt.slice(20, 26)));
      }
    }
  };
  await Promise.all(connections.map(loop));
  return due;
}

async function drained(db: Database): Promise<void> {
  while ((await db.query<{ pending: boolean }>(PENDING))[0]!.pending) await wait(20);
}

/** Everything is due at once: firing is switched off until all of it is scheduled. */
async function backlog(rig: Rig, db: Database, scale: Scale, lanes: number): Promise<Row> {
  const timers = scale.quick ? 1_000 : 30_000;
  const connections = await rig.connections(CLIENTS);
  try {
    return await rig.withQueue(QUEUE, lanes, {}, async () => {
      await fireSwitch(connections[0]!, false);
      const begun = performance.now();
      await schedule(connections, timers, lanes, () => 0);
      const scheduling = (performance.now() - begun) / 1000;
      const [at] = await db.query<{ now: number }>(NOW);
      await fireSwitch(connections[0]!, true);
      await drained(db);
      const [fired] = await db.query<{ fired: number; segments: number; micros: number }>(FIRED, [
        QUEUE,
        at!.now,
      ]);
      if (fired!.fired !== timers) throw new Error(`${timers} timers, ${fired!.fired} messages`);
      return {
        what: `${timers} due at once, ${lanes} partitions`,
        figures: {
          'fired/s': (timers * 1e6) / Math.max(1, fired!.micros),
          'messages a segment': timers / fired!.segments,
          'scheduled/s': timers / scheduling,
        },
      };
    });
  } finally {
    for (const connection of connections) connection.close();
  }
}

/** They fall due one after the other. Fires keep the order of their times, so the n-th message is the n-th that was due. */
async function lateness(rig: Rig, db: Database, scale: Scale, rate: number): Promise<Row> {
  const seconds = Math.max(scale.quick ? 1 : 2, scale.seconds);
  const timers = Math.round(rate * seconds);
  const connections = await rig.connections(CLIENTS);
  try {
    return await rig.withQueue(QUEUE, 0, {}, async () => {
      const inMs = scale.quick ? 500 : 1_500;
      const due = await schedule(connections, timers, 1, (n) => inMs + (n * 1000) / rate);
      due.sort((a, b) => a - b);
      await drained(db);
      const rows = await db.query<{ at: number; count: number }>(STORED, [QUEUE]);
      const stored = rows.flatMap(({ at, count }) => Array.from({ length: count }, () => at));
      if (stored.length !== timers) throw new Error(`${timers} timers, ${stored.length} messages`);
      const late = due.map((at, i) => (stored[i]! - at) / 1000);
      return {
        what: `${rate} due a second`,
        figures: {
          'late p50 ms': percentile(late, 0.5),
          'late p99 ms': percentile(late, 0.99),
          'late max ms': percentile(late, 1),
        },
      };
    });
  } finally {
    for (const connection of connections) connection.close();
  }
}

export const timers: Workload = {
  name: 'timers',
  about: '200-byte payloads, one broker: a backlog that is due at once, and timers that fall due one by one',
  async run(rig, scale): Promise<Result> {
    const db = await rig.database(1);
    const rows: Row[] = [];
    try {
      for (const lanes of scale.quick ? [1, 1_000] : [1, 100, 10_000])
        rows.push(await backlog(rig, db, scale, lanes));
      rows.push(await lateness(rig, db, scale, 500));
    } finally {
      await db.close();
    }
    return { rows, goals: [] };
  },
};
