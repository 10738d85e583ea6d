/** How fast a backlog is consumed: pop a batch, ack it whole. */
import { ack, pop } from '../consume.ts';
import type { HttpConnection } from '../http.ts';
import { closedLoop } from '../load.ts';
import { pushSteps, type Rig } from '../rig.ts';
import { percentile } from '../stats.ts';
import type { Result, Row, Scale, Workload } from '../workload.ts';

const PARTITIONS = 100;
const CLIENTS = 8;
const FILL_CLIENTS = 16;
const FILL_BATCH = 100;

async function consume(rig: Rig, scale: Scale, queue: string, batch: number): Promise<Row> {
  const connections = await rig.connections(FILL_CLIENTS);
  // A push of 100 costs about as much as its pop and ack; small batches need less.
  const fillSeconds = Math.max(0.3, Math.min(1, batch / 100) * scale.seconds);
  await closedLoop(FILL_CLIENTS, fillSeconds, 0, pushSteps(queue, connections, PARTITIONS, FILL_BATCH));

  const query = `batch=${batch}&partitions=${Math.max(1, batch / 100)}&consumerGroup=g&subscriptionMode=all`;
  const latencies: number[] = [];
  let messages = 0;
  const begun = performance.now();
  let ended = begun;
  let dry = false;
  const loop = async (connection: HttpConnection) => {
    while (!dry && performance.now() - begun < scale.seconds * 1000) {
      const from = performance.now();
      const popped = await pop(connection, queue, query);
      if (popped === null) {
        // The others hold the last leases: what is measured ends with the backlog.
        dry = true;
        return;
      }
      await ack(connection, popped, 'g');
      messages += popped.messages.length;
      ended = performance.now();
      latencies.push(ended - from);
    }
  };
  await Promise.all(connections.slice(0, CLIENTS).map(loop));
  for (const connection of connections) connection.close();
  return {
    what: `batch ${batch}`,
    figures: {
      'messages/s': (messages * 1000) / (ended - begun),
      'p50 ms': percentile(latencies, 0.5),
      'p99 ms': percentile(latencies, 0.99),
      seconds: (ended - begun) / 1000,
    },
  };
}

export const popAck: Workload = {
  name: 'pop+ack',
  about: `a backlog over ${PARTITIONS} partitions, ${CLIENTS} consumers of one group, leased`,
  async run(rig, scale): Promise<Result> {
    const rows: Row[] = [];
    for (const batch of [1, 10, 100, 1000]) {
      const queue = `bench-pop-${batch}`;
      rows.push(await rig.withQueue(queue, PARTITIONS, {}, () => consume(rig, scale, queue, batch)));
    }
    return { rows, goals: [] };
  },
};
