/** KV operations a second: single ones, a hundred in a call, and everybody on one counter. */
import { closedLoop } from '../load.ts';
import type { Rig } from '../rig.ts';
import { percentile } from '../stats.ts';
import type { Result, Row, Scale, Workload } from '../workload.ts';

const CLIENTS = 16;
const KEYS = 1_000;
const BATCH = 100;
const VALUE = { name: 'a value of some length', n: 12345, tags: ['a', 'b', 'c'] };

type Operation = Record<string, unknown>;

async function measure(
  rig: Rig,
  scale: Scale,
  what: string,
  operations: (turn: number) => Operation[],
): Promise<Row> {
  const connections = await rig.connections(CLIENTS);
  let turn = 0;
  const { rate, latencies } = await closedLoop(
    CLIENTS,
    scale.seconds,
    scale.warmUpSeconds,
    async (worker) => {
      const asked = operations(turn++);
      const body = Buffer.from(JSON.stringify({ operations: asked }));
      const answer = await connections[worker]!.request('POST', '/api/v1/kv', body);
      if (answer.status !== 200 || answer.body.includes('"applied":false')) {
        throw new Error(`kv answered ${answer.status}: ${answer.body}`);
      }
      return asked.length;
    },
  );
  for (const connection of connections) connection.close();
  return {
    what,
    figures: {
      'operations/s': rate,
      'p50 ms': percentile(latencies, 0.5),
      'p99 ms': percentile(latencies, 0.99),
    },
  };
}

export const kv: Workload = {
  name: 'kv',
  about: `${CLIENTS} clients over ${KEYS} keys, values of some 70 bytes`,
  async run(rig, scale): Promise<Result> {
    const at = (key: string) => ({ ns: 'bench', key });
    const put = (key: string) => ({ op: 'put', ...at(key), value: VALUE, forever: true });
    const name = (turn: number) => `k${turn % KEYS}`;
    const rows: Row[] = [];
    // Neighbours in time never write one key: what is measured is the path, not a queue for a row.
    rows.push(await measure(rig, scale, 'put, one a call', (turn) => [put(name(turn))]));
    rows.push(await measure(rig, scale, 'get, one a call', (turn) => [{ op: 'get', ...at(name(turn)) }]));
    rows.push(
      await measure(rig, scale, `put, ${BATCH} a call`, (turn) =>
        Array.from({ length: BATCH }, (_, i) => put(`b${turn % CLIENTS}-${i}`)),
      ),
    );
    rows.push(
      await measure(rig, scale, 'incr of one key', () => [
        { op: 'incr', ...at('counter'), delta: 1, forever: true },
      ]),
    );
    return { rows, goals: [] };
  },
};
