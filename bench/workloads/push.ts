/** How much can be pushed, by batch and by the number of partitions that the batches go to. */
import { closedLoop } from '../load.ts';
import { pushSteps } from '../rig.ts';
import { percentile } from '../stats.ts';
import type { Result, Row, Workload } from '../workload.ts';

const BATCHES = [1, 10, 100, 1000];
/** Small batches need company to fill a flush; large ones would only wait for each other. */
const CLIENTS: Record<number, number> = { 1: 128, 10: 64, 100: 16, 1000: 8 };

export const push: Workload = {
  name: 'push',
  about: 'closed loop, 200-byte payloads, one partition a request, deduplication on',
  async run(rig, scale): Promise<Result> {
    const rows: Row[] = [];
    for (const partitions of scale.quick ? [1, 100] : [1, 100, 10_000]) {
      await rig.withQueue('bench-push', partitions, { dedupWindowSeconds: 3600 }, async () => {
        for (const batch of BATCHES) {
          const clients = CLIENTS[batch]!;
          const connections = await rig.connections(clients);
          const steps = pushSteps('bench-push', connections, partitions, batch);
          const { rate, latencies } = await closedLoop(clients, scale.seconds, scale.warmUpSeconds, steps);
          for (const connection of connections) connection.close();
          rows.push({
            what: `batch ${batch}, ${partitions} partitions, ${clients} clients`,
            figures: {
              'messages/s': rate,
              'requests/s': rate / batch,
              'p50 ms': percentile(latencies, 0.5),
              'p99 ms': percentile(latencies, 0.99),
            },
          });
        }
      });
    }
    return { rows, goals: [] };
  },
};
