/**
 * From a row's insert in a source table to the same row in the copy that a sink keeps, at a steady rate. Both tables lie in
 * one database, so one clock dates both ends: the insert when its statement begins, the copy when its row is written, some
 * tenths of a millisecond before the commit. Rows of the warm-up are not counted.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Rig } from '../rig.ts';
import { ConnectorTarget } from '../target.ts';
import type { Result, Row, Scale, Workload } from '../workload.ts';

const RATES = [50, 500];
const TABLES = `CREATE TABLE IF NOT EXISTS lag_source (id bigint PRIMARY KEY, note text, sent timestamptz NOT NULL);
  CREATE TABLE IF NOT EXISTS lag_copy (LIKE lag_source INCLUDING ALL);
  ALTER TABLE lag_copy ADD arrived timestamptz NOT NULL DEFAULT clock_timestamp()`;

async function inPhase(rig: Rig, name: string, phase: string): Promise<void> {
  for (let n = 0; n < 600; n++) {
    const { status } = (await rig.ask('GET', `/api/v1/connectors/${name}`)) as { status: { phase: string } };
    if (status.phase === phase) return;
    await sleep(50);
  }
  throw new Error(`${name} is not ${phase}`);
}

async function measure(rig: Rig, scale: Scale, target: ConnectorTarget): Promise<Result> {
  const session = await target.session();
  for (const text of TABLES.split(';\n')) await session.query(text);
  const { connection } = target;
  await rig.ask('PUT', '/api/v1/connectors/lag-source', {
    kind: 'source',
    connection,
    source: { tables: [{ table: 'public.lag_source', queue: 'bench-lag' }] },
  });
  await rig.ask('PUT', '/api/v1/connectors/lag-copy', {
    kind: 'sink',
    connection,
    sink: { queue: 'bench-lag', table: 'public.lag_copy', mode: 'cdc' },
  });
  await inPhase(rig, 'lag-source', 'streaming');
  await inPhase(rig, 'lag-copy', 'running');
  const rows: Row[] = [];
  let id = 0;
  for (const rate of RATES) {
    const from = id + Math.round(rate * scale.warmUpSeconds);
    const count = Math.round(rate * Math.max(0.5, scale.seconds));
    const last = from + count;
    const begun = performance.now();
    for (let n = 0; id < last; n++) {
      const wait = begun + (n * 1000) / rate - performance.now();
      if (wait > 0) await sleep(wait);
      void session
        .query("INSERT INTO lag_source VALUES ($1, 'a note of some length', clock_timestamp())", [
          String(++id),
        ])
        .catch(() => {});
    }
    for (let n = 0; ; n++) {
      const { rows: found } = await session.query('SELECT count(*) FROM lag_copy WHERE id > $1', [
        String(from),
      ]);
      if (Number(found[0]![0]) === count) break;
      if (n === 600) throw new Error(`${found[0]![0]} of ${count} rows arrived`);
      await sleep(50);
    }
    const { rows: quantiles } = await session.query(
      `SELECT percentile_cont(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (ORDER BY extract(epoch FROM arrived - sent) * 1000)::text
         FROM lag_copy WHERE id > $1`,
      [String(from)],
    );
    const [p50, p99, max] = quantiles[0]![0]!.slice(1, -1).split(',').map(Number);
    rows.push({ what: `${rate} rows/s`, figures: { 'p50 ms': p50!, 'p99 ms': p99!, 'max ms': max! } });
  }
  await session.close();
  await rig.ask('DELETE', '/api/v1/connectors/lag-copy');
  await rig.ask('DELETE', '/api/v1/connectors/lag-source');
  return { rows, goals: [] };
}

export const copyLag: Workload = {
  name: 'copy lag',
  about: 'source table to queue to the copy in another table, single-row transactions at a steady rate',
  async run(rig, scale): Promise<Result> {
    const target = await ConnectorTarget.start();
    try {
      return await measure(rig, scale, target);
    } finally {
      await target.stop();
    }
  },
};
