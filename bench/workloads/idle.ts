/** What a thousand parked consumers on a hundred empty queues cost while nothing happens. */
import { statement } from '../../packages/broker/src/store/database.ts';
import type { Result, Workload } from '../workload.ts';

const CONSUMERS = 1000;
const QUEUES = 100;

const CALLS = statement(
  'bench_calls',
  `SELECT sum(calls)::bigint AS calls FROM pg_stat_statements
    WHERE query !~ 'pg_stat_statements' AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())`,
);

const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export const idle: Workload = {
  name: 'idle consumers',
  about: `${CONSUMERS} long polls on ${QUEUES} empty queues`,
  async run(rig, scale): Promise<Result> {
    const db = await rig.database(1);
    const connections = await rig.connections(CONSUMERS);
    const path = (n: number) =>
      `/api/v1/pop/queue/bench-idle-${n % QUEUES}?wait=true&timeout=60000&consumerGroup=g&batch=10`;
    try {
      for (let n = 0; n < QUEUES; n++) await rig.configure(`bench-idle-${n}`, {});
      let answered = 0;
      for (const [n, connection] of connections.entries()) {
        connection.request('GET', path(n)).then(
          () => answered++,
          () => {},
        );
      }
      // The first pops of a group meet the database; what is measured begins when they are parked.
      await wait(scale.quick ? 1_000 : 5_000);
      const seconds = scale.quick ? 1 : 30;
      const calls = async () => (await db.query<{ calls: number }>(CALLS))[0]!.calls;
      const before = { calls: await calls(), cpu: rig.brokerCpuSeconds() };
      await wait(seconds * 1000);
      const after = { calls: await calls(), cpu: rig.brokerCpuSeconds() };
      if (answered > 0) throw new Error(`${answered} polls were answered while nothing was pushed`);
      const perSecond = (after.calls - before.calls) / seconds;
      const percent = ((after.cpu - before.cpu) / seconds) * 100;
      return {
        rows: [
          {
            what: 'parked',
            figures: {
              'statements/s': perSecond,
              'broker % of a core': percent,
              'broker MB': rig.brokerMemory() / 2 ** 20,
            },
          },
        ],
        goals: [
          {
            what: '1,000 idle consumers, SQL',
            value: perSecond,
            unit: 'statements/s',
            target: 5,
            better: 'below',
          },
          {
            what: '1,000 idle consumers, broker',
            value: percent,
            unit: '% of a core',
            target: 2,
            better: 'below',
          },
        ],
      };
    } finally {
      for (const connection of connections) connection.close();
      for (let n = 0; n < QUEUES; n++) await rig.deleteQueue(`bench-idle-${n}`);
      await db.close();
    }
  },
};
