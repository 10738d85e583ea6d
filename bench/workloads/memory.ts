/** Whether the broker's memory stays flat while messages come and go at a steady rate. */
import { ack, pop } from '../consume.ts';
import { pushSteps } from '../rig.ts';
import { slope } from '../stats.ts';
import type { Result, Workload } from '../workload.ts';

const PARTITIONS = 100;
const BATCH = 100;
const BATCHES_PER_SECOND = 200;
const PRODUCERS = 8;
const CONSUMERS = 4;
const MB = 2 ** 20;

export const memory: Workload = {
  name: 'memory',
  about: `${BATCH * BATCHES_PER_SECOND} messages/s pushed, consumed and retained for a minute`,
  async run(rig, scale): Promise<Result> {
    const queue = 'bench-memory';
    const minutes = scale.minutes;
    return rig.withQueue(queue, PARTITIONS, { maxWaitTimeSeconds: 60, dedupWindowSeconds: 120 }, async () => {
      const connections = await rig.connections(PRODUCERS + CONSUMERS);
      const producers = connections.slice(0, PRODUCERS);
      const begun = performance.now();
      const until = begun + minutes * 60_000;
      const push = pushSteps(queue, producers, PARTITIONS, BATCH);
      let pushed = 0;
      let consumed = 0;
      const produce = async (worker: number) => {
        for (let n = worker; ; n += PRODUCERS) {
          const due = begun + (n * 1000) / BATCHES_PER_SECOND;
          if (due >= until) return;
          const early = due - performance.now();
          if (early > 0) await new Promise((resolve) => setTimeout(resolve, early));
          if (performance.now() >= until) return;
          const stored = await push(worker);
          pushed += stored;
        }
      };
      const query = 'batch=1000&partitions=20&wait=true&timeout=1000&consumerGroup=g&subscriptionMode=all';
      const consume = async (connection: (typeof connections)[number]) => {
        while (performance.now() < until) {
          const popped = await pop(connection, queue, query);
          if (popped === null) continue;
          await ack(connection, popped, 'g');
          consumed += popped.messages.length;
        }
      };
      const samples: { x: number; y: number }[] = [];
      const everyMs = Math.max(250, (minutes * 60_000) / 600);
      const sampler = setInterval(() => {
        samples.push({ x: (performance.now() - begun) / 60_000, y: rig.brokerMemory() / MB });
      }, everyMs);
      try {
        await Promise.all([
          ...producers.map((_, worker) => produce(worker)),
          ...connections.slice(PRODUCERS).map(consume),
        ]);
      } finally {
        clearInterval(sampler);
        for (const connection of connections) connection.close();
      }
      const at = (share: number) =>
        samples[Math.min(samples.length - 1, Math.floor(samples.length * share))]!.y;
      const secondHalf = samples.slice(Math.floor(samples.length / 2));
      return {
        rows: [
          {
            what: `${minutes.toFixed(minutes < 1 ? 2 : 0)} minutes`,
            figures: {
              'MB at 10 %': at(0.1),
              'MB at 50 %': at(0.5),
              'MB at the end': at(1),
              'MB at most': Math.max(...samples.map((sample) => sample.y)),
              'MB/min, second half': slope(secondHalf),
              'messages/s pushed': pushed / (minutes * 60),
              'messages/s consumed': consumed / (minutes * 60),
            },
          },
        ],
        goals: [],
      };
    });
  },
};
