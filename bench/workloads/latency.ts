/**
 * From push to pop at a fixed rate: consumers are parked, a producer sends on schedule whether or not the previous
 * answers have come, and the clock of a message runs from when it was due.
 */
import { ack, pop } from '../consume.ts';
import { percentile } from '../stats.ts';
import type { Result, Row, Workload } from '../workload.ts';

const PARTITIONS = 10;
const CONSUMERS = 10;
const PRODUCERS = 32;
const RATES = [100, 500];

export const latency: Workload = {
  name: 'push-to-pop latency',
  about: `single messages, ${PARTITIONS} partitions, ${CONSUMERS} parked consumers`,
  async run(rig, scale): Promise<Result> {
    const rows: Row[] = [];
    for (const rate of RATES) {
      const queue = `bench-latency-${rate}`;
      await rig.withQueue(queue, PARTITIONS, {}, async () => {
        const consumers = await rig.connections(CONSUMERS);
        const producers = await rig.connections(PRODUCERS);
        const latencies: number[] = [];
        let consuming = true;
        // Its end has to wait for this long.
        const timeoutMs = scale.quick ? 300 : 2_000;
        const query = `batch=100&wait=true&timeout=${timeoutMs}&consumerGroup=g&subscriptionMode=new`;
        // The first pop registers the group; what exists by then is not its concern.
        await pop(consumers[0]!, queue, 'batch=1&consumerGroup=g&subscriptionMode=new');
        const consume = async (connection: (typeof consumers)[number]) => {
          while (consuming) {
            const popped = await pop(connection, queue, query);
            if (popped === null) continue;
            const now = performance.now();
            for (const { data } of popped.messages) {
              const due = (data as { due?: number }).due;
              if (due !== undefined) latencies.push(now - due);
            }
            await ack(connection, popped, 'g');
          }
        };
        const loops = consumers.map(consume);
        const count = Math.round(rate * Math.max(scale.quick ? 0.8 : 1.5, scale.seconds));
        const free = [...producers];
        const sends: Promise<unknown>[] = [];
        let late = 0;
        const begun = performance.now() + 100;
        for (let n = 0; n < count; n++) {
          const due = begun + (n * 1000) / rate;
          for (let early = due - performance.now(); early > 0; early = due - performance.now()) {
            await new Promise((resolve) => setTimeout(resolve, early));
          }
          const producer = free.pop();
          if (producer === undefined) {
            late++;
            continue;
          }
          const items = [
            { queue, partition: `p00000${n % PARTITIONS}`, payload: { due, pad: 'x'.repeat(160) } },
          ];
          sends.push(
            producer
              .request('POST', '/api/v1/push', Buffer.from(JSON.stringify({ items })))
              .then(() => free.push(producer)),
          );
        }
        await Promise.all(sends);
        const sent = count - late;
        const patience = performance.now() + 5_000;
        while (latencies.length < sent && performance.now() < patience) {
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
        consuming = false;
        await Promise.all(loops);
        for (const connection of [...consumers, ...producers]) connection.close();
        if (latencies.length !== sent)
          throw new Error(`${sent} messages pushed, ${latencies.length} delivered`);
        rows.push({
          what: `${rate} messages/s`,
          figures: {
            'p50 ms': percentile(latencies, 0.5),
            'p99 ms': percentile(latencies, 0.99),
            'max ms': percentile(latencies, 1),
            'not sent': late,
          },
        });
      });
    }
    return { rows, goals: [] };
  },
};
