/** What looking costs with a hundred thousand partitions: lag of groups, lists, and the statistics behind them. */
import { statement } from '../../packages/broker/src/store/database.ts';
import { closedLoop } from '../load.ts';
import { percentile } from '../stats.ts';
import type { Result, Row, Workload } from '../workload.ts';

const QUEUES = 10;
const PARTITIONS = { full: 100_000, quick: 2_000 };
const NAME = 'bench-lag-';

const MAKE_QUEUES = statement(
  'bench_lag_queues',
  `INSERT INTO queen.queues (name, namespace) SELECT '${NAME}' || g, 'bench' FROM generate_series(1, ${QUEUES}) AS g`,
);
const MAKE_PARTITIONS = statement(
  'bench_lag_partitions',
  `INSERT INTO queen.log_partitions (queue_id, name, last_offset, oldest_live_at, last_created_at)
   SELECT q.id, 'p' || g, 9, queen.clock() - interval '1 minute', queen.clock()
     FROM generate_series(1, $1::int) AS g JOIN queen.queues q ON q.name = '${NAME}' || 1 + g % ${QUEUES}`,
);
const MAKE_SEGMENTS = statement(
  'bench_lag_segments',
  `INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
   SELECT p.id, b.n * 5, b.n * 5 + 4, queen.clock() - interval '1 minute', '\\x00'
     FROM queen.queues q JOIN queen.log_partitions p ON p.queue_id = q.id, generate_series(0, 1) AS b (n)
    WHERE q.name LIKE '${NAME}%'`,
);
/** Two groups with a cursor on each: a fifth is finished, the others are somewhere in the middle. */
const MAKE_CURSORS = statement(
  'bench_lag_cursors',
  `INSERT INTO queen.log_consumers (partition_id, consumer_group, committed)
   SELECT p.id, g.name, CASE WHEN p.id % 5 = 0 THEN 9 ELSE p.id % 9 END
     FROM queen.queues q JOIN queen.log_partitions p ON p.queue_id = q.id, (VALUES ('a'), ('b')) AS g (name)
    WHERE q.name LIKE '${NAME}%'`,
);
const ANALYZE = statement('bench_lag_analyze', 'ANALYZE');

export const groupLag: Workload = {
  name: 'group lag',
  about: `two groups with a cursor on each of ${PARTITIONS.full.toLocaleString('en')} partitions in ${QUEUES} queues, one reader`,
  async run(rig, scale): Promise<Result> {
    const partitions = scale.quick ? PARTITIONS.quick : PARTITIONS.full;
    const db = await rig.database(1);
    const [connection] = await rig.connections(1);
    const measure = async (what: string, method: string, path: string): Promise<Row> => {
      let bytes = 0;
      const { latencies } = await closedLoop(1, scale.seconds, scale.warmUpSeconds, async () => {
        const answer = await connection!.request(method, path);
        if (answer.status !== 200) throw new Error(`${path} answered ${answer.status}: ${answer.body}`);
        bytes = answer.body.length;
        return 1;
      });
      return {
        what,
        figures: {
          'p50 ms': percentile(latencies, 0.5),
          'p99 ms': percentile(latencies, 0.99),
          'answer kB': bytes / 1000,
        },
      };
    };
    try {
      await db.query(MAKE_QUEUES);
      await db.query(MAKE_PARTITIONS, [partitions]);
      await db.query(MAKE_SEGMENTS);
      await db.query(MAKE_CURSORS);
      await db.query(ANALYZE);
      const rows = [
        await measure('lag of all groups, live', 'GET', '/api/v1/consumer-groups'),
        await measure('one group by partition, live', 'GET', '/api/v1/consumer-groups/a'),
        await measure('refresh of the statistics', 'POST', '/api/v1/stats/refresh'),
        await measure('overview', 'GET', '/api/v1/resources/overview'),
        await measure('list of queues with their counters', 'GET', '/api/v1/status/queues'),
        await measure('a page of one queue, live', 'GET', `/api/v1/status/queues/${NAME}1?limit=100`),
      ];
      return {
        rows: rows.map((row) => ({ ...row, what: `${partitions} partitions: ${row.what}` })),
        goals: [],
      };
    } finally {
      connection!.close();
      for (let n = 1; n <= QUEUES; n++) await rig.deleteQueue(`${NAME}${n}`);
      await db.close();
    }
  },
};
