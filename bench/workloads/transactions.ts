/** Transactions a second: a push with a key, pushes to many partitions, and the step of a pipeline (ack here, push there). */
import { pop } from '../consume.ts';
import { closedLoop } from '../load.ts';
import { partitionName, payload } from '../messages.ts';
import type { Rig } from '../rig.ts';
import { pushSteps } from '../rig.ts';
import { percentile } from '../stats.ts';
import type { Result, Row, Scale, Workload } from '../workload.ts';

const CLIENTS = 16;
const PARTITIONS = 100;
const SPREAD = 10;
const PAYLOAD = JSON.parse(payload(1)) as unknown;
const FROM = 'bench-tx-from';
const TO = 'bench-tx-to';

interface Body {
  operations: unknown[];
  requiredLeases?: string[];
  kv?: unknown[];
}

/** What one transaction of a worker consists of; null: there is nothing left to do. */
type Make = (worker: number, turn: number) => Promise<Body | null>;

async function measure(rig: Rig, scale: Scale, what: string, make: Make): Promise<Row> {
  const connections = await rig.connections(CLIENTS);
  let turn = 0;
  const step = async (worker: number) => {
    const body = await make(worker, turn++);
    if (body === null) return 0;
    const sent = Buffer.from(JSON.stringify(body));
    const answer = await connections[worker]!.request('POST', '/api/v1/transaction', sent);
    if (answer.status !== 200 || !answer.body.includes('"success":true')) {
      throw new Error(`a transaction answered ${answer.status}: ${answer.body}`);
    }
    return 1;
  };
  const { rate, latencies } = await closedLoop(CLIENTS, scale.seconds, scale.warmUpSeconds, step);
  for (const connection of connections) connection.close();
  return {
    what,
    figures: {
      'transactions/s': rate,
      'p50 ms': percentile(latencies, 0.5),
      'p99 ms': percentile(latencies, 0.99),
    },
  };
}

const push = (partition: number) => ({
  type: 'push',
  items: [{ queue: TO, partition: partitionName(partition % PARTITIONS), payload: PAYLOAD }],
});

async function pipeline(rig: Rig, scale: Scale): Promise<Row> {
  const fill = await rig.connections(CLIENTS);
  await closedLoop(CLIENTS, Math.max(0.3, scale.seconds / 4), 0, pushSteps(FROM, fill, PARTITIONS, 100));
  const query = 'batch=1&consumerGroup=g&subscriptionMode=all&wait=true&timeout=1000';
  const row = await measure(rig, scale, 'pop one, then ack it and push one', async (worker, turn) => {
    const popped = await pop(fill[worker]!, FROM, query);
    if (popped === null) return null;
    const { transactionId, partitionId } = popped.messages[0]!;
    const { leaseId } = popped;
    const ack = { type: 'ack', transactionId, partitionId, leaseId, consumerGroup: 'g', status: 'completed' };
    return { operations: [ack, push(turn)], requiredLeases: [leaseId] };
  });
  for (const connection of fill) connection.close();
  return row;
}

export const transactions: Workload = {
  name: 'transactions',
  about: `${CLIENTS} clients, 200-byte payloads, ${PARTITIONS} partitions`,
  run(rig, scale): Promise<Result> {
    return rig.withQueue(TO, PARTITIONS, {}, () =>
      rig.withQueue(FROM, PARTITIONS, {}, async () => {
        const rows = [
          await measure(rig, scale, 'one push', async (_worker, turn) => ({ operations: [push(turn)] })),
          await measure(rig, scale, 'one push and one key', async (worker, turn) => ({
            operations: [push(turn)],
            kv: [{ op: 'put', ns: 'bench', key: `tx${worker}`, value: turn, forever: true }],
          })),
          await measure(rig, scale, `${SPREAD} pushes to ${SPREAD} partitions`, async (_worker, turn) => ({
            operations: Array.from({ length: SPREAD }, (_, i) => push(turn * SPREAD + i)),
          })),
          await pipeline(rig, scale),
        ];
        return { rows, goals: [] };
      }),
    );
  },
};
