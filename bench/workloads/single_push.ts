/** One client, one message at a time, nothing else going on: what a push costs over the commit itself. */
import { hashTransactionIds } from '../../packages/broker/src/log/hash.ts';
import { statement } from '../../packages/broker/src/store/database.ts';
import { closedLoop } from '../load.ts';
import { payload } from '../messages.ts';
import { pushSteps } from '../rig.ts';
import { median, percentile } from '../stats.ts';
import type { Result, Workload } from '../workload.ts';

const TABLE = statement(
  'bench_commit_table',
  'CREATE TABLE IF NOT EXISTS public.bench_commit (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, blob bytea, hashes bytea)',
);
const INSERT = statement(
  'bench_commit_insert',
  'INSERT INTO public.bench_commit (blob, hashes) VALUES ($1::bytea, $2::bytea)',
);
const DROP = statement('bench_commit_drop', 'DROP TABLE public.bench_commit');

export const singlePush: Workload = {
  name: 'single push',
  about: 'one client, one message a request, against a bare insert and commit of the same bytes',
  async run(rig, scale): Promise<Result> {
    const db = await rig.database(1);
    await db.query(TABLE);
    const bytes = Buffer.from(payload(1));
    const hashes = hashTransactionIds(['x']);
    const seconds = Math.max(0.5, scale.seconds / scale.rounds);
    const commits: number[] = [];
    const pushes: number[] = [];
    try {
      await rig.withQueue('bench-single', 1, {}, async () => {
        const connections = await rig.connections(1);
        const push = pushSteps('bench-single', connections, 1, 1);
        for (let round = 0; round < scale.rounds; round++) {
          const bare = await closedLoop(1, seconds, 0.1, async () => {
            await db.query(INSERT, [bytes, hashes]);
            return 1;
          });
          commits.push(...bare.latencies);
          pushes.push(...(await closedLoop(1, seconds, 0.1, push)).latencies);
        }
        connections[0]!.close();
      });
    } finally {
      await db.query(DROP);
      await db.close();
    }
    const figures = (latencies: number[]) => ({
      'p50 ms': percentile(latencies, 0.5),
      'p99 ms': percentile(latencies, 0.99),
    });
    return {
      rows: [
        { what: 'bare insert and commit', figures: figures(commits) },
        { what: 'push', figures: figures(pushes) },
      ],
      goals: [
        {
          what: 'single push over the bare commit, p50',
          value: median(pushes) - median(commits),
          unit: 'ms',
          target: 5,
          better: 'below',
        },
      ],
    };
  },
};
