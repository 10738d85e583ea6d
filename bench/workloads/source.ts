/** What a source brings from a database into queues, against a bare reader of the same slot. */

import { HttpConnection } from '../http.ts';
import type { Rig } from '../rig.ts';
import { median, percentile } from '../stats.ts';
import { BenchUpstream } from '../upstream.ts';
import type { Result, Row, Scale, Workload } from '../workload.ts';

/** Between two looks at a source that is measured: each is a request, which the broker answers from the store. */
function lookMs(rows: number): number {
  return Math.max(5, rows / 4_000);
}

interface Turns {
  source: number[];
  bare: number[];
}

/** Rates in rows a second: the source and the bare reader read the same changes, one after the other. */
async function changes(
  upstream: BenchUpstream,
  name: string,
  partitionBy: 'single' | 'key',
  { rounds, warmUps = 0 }: { rounds: number; warmUps?: number },
  rows: number,
  load: (from: number) => string,
): Promise<Turns> {
  const turns: Turns = { source: [], bare: [] };
  let id = 1;
  for (let round = 0; round < warmUps + rounds; round++) {
    if (round === warmUps) for (const rates of Object.values(turns)) rates.length = 0;
    const queue = `bench-${name}-${round}`;
    const settings = { snapshot: 'never', tables: [{ table: 'public.t', queue, partitionBy }] };
    await upstream.put(queue, settings);
    await upstream.reached(queue, ({ phase }) => phase === 'streaming');
    await upstream.put(queue, settings, false);
    await upstream.reached(queue, ({ phase }) => phase === 'disabled');
    await upstream.slot('bare');
    await upstream.database.sql(load(id));
    id += rows;
    const bare = async () => turns.bare.push(rows / (await upstream.bareRead('bare', rows)));
    const source = async () => {
      await upstream.put(queue, settings);
      // From the first look that finds some of them: the start of a source is not what is measured.
      let begun = 0;
      let there = 0;
      const ended = await upstream.reached(
        queue,
        ({ messages = 0 }) => {
          if (begun === 0 && messages > 0) {
            begun = performance.now();
            there = messages;
          }
          return messages >= rows;
        },
        lookMs(rows),
      );
      if (there < rows) turns.source.push((rows - there) / ((ended - begun) / 1000));
    };
    for (const turn of round % 2 === 0 ? [bare, source] : [source, bare]) await turn();
    await upstream.dropSlot('bare');
    await upstream.remove(queue);
  }
  return turns;
}

/** Rows a second of a first copy, against a query that reads the table and throws it away. */
async function snapshot(
  upstream: BenchUpstream,
  partitionBy: 'single' | 'key',
  rounds: number,
  rows: number,
): Promise<Turns> {
  const turns: Turns = { source: [], bare: [] };
  await upstream.database.sql(
    `TRUNCATE t; INSERT INTO t SELECT ${BenchUpstream.ROWS} FROM generate_series(1, ${rows}) g; ANALYZE t`,
  );
  for (let round = 0; round < rounds; round++) {
    const begun = performance.now();
    const client = await upstream.database.connect();
    await client.query({ text: 'SELECT * FROM t ORDER BY id', rowMode: 'array' });
    turns.bare.push(rows / ((performance.now() - begun) / 1000));
    await client.end();
    const queue = `bench-snapshot-${partitionBy}-${round}`;
    await upstream.put(queue, { tables: [{ table: 'public.t', queue, partitionBy }] });
    let first = 0;
    const ended = await upstream.reached(
      queue,
      ({ phase, messages = 0 }) => {
        if (first === 0 && phase === 'snapshot') first = performance.now();
        return phase === 'streaming' && messages >= rows;
      },
      lookMs(rows),
    );
    turns.source.push(rows / ((ended - first) / 1000));
    await upstream.remove(queue);
  }
  return turns;
}

/**
 * Milliseconds from the answer to a commit until a consumer has the message, and until a bare reader has the change. Those of
 * the warm-up are not among them.
 */
async function latency(
  upstream: BenchUpstream,
  rig: Rig,
  perSecond: number,
  { seconds, warmUpSeconds }: Pick<Scale, 'seconds' | 'warmUpSeconds'>,
): Promise<{ pops: number[]; reads: number[] }> {
  const queue = `bench-latency-${perSecond}`;
  await upstream.put(queue, { snapshot: 'never' });
  await upstream.reached(queue, ({ phase }) => phase === 'streaming');
  await upstream.slot('bare');
  const before = Math.round(perSecond * warmUpSeconds);
  const count = before + Math.round(perSecond * seconds);
  const committed = new Map<string, number>();
  const seen = { pops: new Map<string, number>(), reads: new Map<string, number>() };
  const reading = upstream.bareRead('bare', count, (id) => seen.reads.set(id, performance.now()));
  const connection = await HttpConnection.open(rig.broker.port);
  const popping = (async () => {
    const path = `/api/v1/pop/queue/${queue}?batch=1000&partitions=0&consumerGroup=bench&subscriptionMode=all&autoAck=true&wait=true&timeout=5000`;
    while (seen.pops.size < count) {
      const { status, body } = await connection.request('GET', path);
      const now = performance.now();
      if (status === 204) continue;
      const { messages } = JSON.parse(body.toString()) as { messages: { data: { key: { id: number } } }[] };
      for (const { data } of messages) seen.pops.set(String(data.key.id), now);
    }
  })();
  const client = await upstream.database.connect();
  const begun = performance.now();
  for (let i = 0; i < count; i++) {
    const due = begun + (i * 1000) / perSecond;
    const wait = due - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    const id = 1_000_000_000 + perSecond * 1_000_000 + i;
    await client.query(`INSERT INTO t VALUES (${id}, 1, 'k', 'v')`);
    if (i >= before) committed.set(String(id), performance.now());
  }
  await Promise.all([popping, reading]);
  await client.end();
  connection.close();
  await upstream.dropSlot('bare');
  await upstream.remove(queue);
  const since = (times: Map<string, number>) =>
    [...committed].map(([id, at]) => Math.max(0, times.get(id)! - at));
  return { pops: since(seen.pops), reads: since(seen.reads) };
}

function rates(what: string, { source, bare }: Turns): Row[] {
  const reader = median(bare);
  return [
    { what: `${what}: bare reader`, figures: { 'rows/s': reader, 'of the bare reader': 1 } },
    {
      what: `${what}: source`,
      figures: { 'rows/s': median(source), 'of the bare reader': median(source) / reader },
    },
  ];
}

async function measure(upstream: BenchUpstream, rig: Rig, scale: Scale): Promise<Result> {
  await upstream.table();
  const rounds = scale.quick ? 1 : 3;
  const n = scale.quick ? 8_000 : 200_000;
  const inserts = (count: number) => (from: number) =>
    `INSERT INTO t SELECT ${BenchUpstream.ROWS} FROM generate_series(${from}, ${from + count - 1}) g`;
  const commits = (count: number) => (from: number) =>
    `DO $$ BEGIN FOR g IN ${from}..${from + count - 1} LOOP INSERT INTO t SELECT ${BenchUpstream.ROWS}; COMMIT; END LOOP; END $$`;
  const few = n / 4;
  // A partition a row costs a row of the store a message, and the making of the partition.
  const fewer = scale.quick ? few : n / 20;
  // The first turn warms up the broker and this process.
  const turns = { rounds, warmUps: scale.quick ? 0 : 1 };
  const large = await changes(upstream, 'large', 'single', turns, n, inserts(n));
  await upstream.database.sql('TRUNCATE t');
  const wide = await changes(upstream, 'wide', 'key', { rounds }, fewer, inserts(fewer));
  await upstream.database.sql('TRUNCATE t');
  const small = await changes(upstream, 'small', 'single', { rounds }, few, commits(few));
  await upstream.database.sql('TRUNCATE t');
  const rows = [
    ...rates('one large transaction, one partition', large),
    ...rates('one large transaction, a partition a row', wide),
    ...rates('transactions of one row, one partition', small),
    ...rates('snapshot, one partition', await snapshot(upstream, 'single', rounds, n)),
    ...rates('snapshot, a partition a row', await snapshot(upstream, 'key', rounds, fewer)),
  ];
  const goals: Result['goals'] = [
    {
      what: 'source, one large transaction into one partition, against a bare reader of the slot',
      value: median(large.source) / median(large.bare),
      unit: '',
      target: 0.5,
      better: 'above',
    },
  ];
  for (const perSecond of [10, 500]) {
    const seconds = scale.quick ? 1 : 20;
    const { warmUpSeconds } = scale;
    const { pops, reads } = await latency(upstream, rig, perSecond, { seconds, warmUpSeconds });
    const figures = (values: number[]) => ({
      'p50 ms': percentile(values, 0.5),
      'p99 ms': percentile(values, 0.99),
    });
    rows.push(
      { what: `${perSecond} commits/s, to a bare reader`, figures: figures(reads) },
      { what: `${perSecond} commits/s, to a consumer`, figures: figures(pops) },
    );
    goals.push({
      what: `commit to pop, ${perSecond} commits/s, p99`,
      value: percentile(pops, 0.99),
      unit: 'ms',
      target: 50,
      better: 'below',
    });
  }
  return { rows, goals };
}

export const source: Workload = {
  name: 'source',
  about:
    'a table into a queue, against a reader of the same slot that decodes and throws away; its first copy, against a query that reads the table',
  async run(rig, scale): Promise<Result> {
    const upstream = await BenchUpstream.start(rig);
    try {
      return await measure(upstream, rig, scale);
    } finally {
      await upstream.close();
    }
  },
};
