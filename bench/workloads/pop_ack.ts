/** How fast a backlog is consumed: pop a batch, ack it whole. */
import { ack, pop } from '../consume.ts';
import { closedLoop } from '../load.ts';
import { pushSteps } from '../rig.ts';
import { percentile } from '../stats.ts';
import type { Result, Row, Workload } from '../workload.ts';

const PARTITIONS = 100;
const CLIENTS = 8;
const FILL_CLIENTS = 16;
const FILL_BATCH = 100;

export const popAck: Workload = {
  name: 'pop+ack',
  about: `a backlog over ${PARTITIONS} partitions, ${CLIENTS} consumers of one group, leased`,
  async run(rig, scale): Promise<Result> {
    const rows: Row[] = [];
    for (const batch of [1, 10, 100, 1000]) {
      const queue = `bench-pop-${batch}`;
      await rig.withQueue(queue, PARTITIONS, {}, async () => {
        const group = `g${batch}`;
        const query = `batch=${batch}&partitions=${Math.max(1, batch / 100)}&consumerGroup=${group}&subscriptionMode=all`;
        const connections = await rig.connections(FILL_CLIENTS);
        // More than can be consumed meanwhile: a push of 100 costs less than a pop and an ack of 100.
        const fill = Math.max(0.5, Math.min(1, batch / 100) * scale.seconds * 1.5);
        await closedLoop(FILL_CLIENTS, fill, 0, pushSteps(queue, connections, PARTITIONS, FILL_BATCH));
        let dry = 0;
        const { rate, latencies } = await closedLoop(
          CLIENTS,
          scale.seconds,
          scale.warmUpSeconds,
          async (worker) => {
            const popped = await pop(connections[worker]!, queue, query);
            if (popped === null) {
              dry++;
              return 0;
            }
            await ack(connections[worker]!, popped, group);
            return popped.messages.length;
          },
        );
        for (const connection of connections) connection.close();
        rows.push({
          what: `batch ${batch}`,
          figures: {
            'messages/s': rate,
            'p50 ms': percentile(latencies, 0.5),
            'p99 ms': percentile(latencies, 0.99),
            'empty pops': dry,
          },
        });
      });
    }
    return { rows, goals: [] };
  },
};
