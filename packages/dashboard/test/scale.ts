/** A queue of very many partitions, put into the database as brokers would have left it. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { sql } from '../../../test/broker/live.ts';
import { startBroker } from '../../../test/kit/broker.ts';
import { freshDatabase } from '../../../test/kit/postgres.ts';
import { open } from './browser.ts';

/** What one page may make the broker send, whatever the number of partitions. */
const ANSWER_BYTES_MAX = 60_000;
/** What each look may take, on a machine that may be busy with other tests. */
const WITHIN_MS = 30_000;

/** Opens the pages about the queue, which are there in time whatever the number of its partitions. */
export async function lookAtMany(t: TestContext, partitions: number): Promise<void> {
  const database = await freshDatabase(t);
  const db = await database.open({ statementTimeoutMs: 300_000 });
  await sql(db, `INSERT INTO queen.queues (name) VALUES ('many')`);
  await sql(
    db,
    `INSERT INTO queen.log_partitions (queue_id, name, last_offset, oldest_live_at, last_created_at)
           SELECT q.id, 'device-' || lpad(g::text, 7, '0'), 4, queen.clock(), queen.clock()
             FROM generate_series(1, ${partitions}) AS g, queen.queues q`,
  );
  await sql(
    db,
    `INSERT INTO queen.log_consumers (partition_id, consumer_group, committed)
           SELECT p.id, 'readers', CASE WHEN p.name LIKE '%777' THEN -1 ELSE 4 END FROM queen.log_partitions p`,
  );
  await sql(db, 'ANALYZE');
  await db.close();
  const { url } = await startBroker({ database, alone: 'it is about the page' }, t);
  await fetch(`${url}/api/v1/stats/refresh`, { method: 'POST' });

  const { page, context } = await open(t, url);
  context.setDefaultTimeout(WITHIN_MS);
  let largest = 0;
  page.on('response', (response) => {
    const { pathname } = new URL(response.url());
    if (!pathname.startsWith('/api/')) return;
    largest = Math.max(largest, Number(response.headers()['content-length'] ?? Number.NaN));
  });
  const last = `device-${String(partitions).padStart(7, '0')}`;
  const count = new Intl.NumberFormat('en').format(partitions);
  const took: Record<string, number> = {};
  const step = async (name: string, work: () => Promise<unknown>) => {
    const begun = performance.now();
    await work();
    took[name] = Math.round(performance.now() - begun);
  };
  await step('overview', async () => {
    await page.goto('/');
    await page.getByText(`${count} partitions`).waitFor();
  });
  await step('queue', async () => {
    await page.goto('/queues/many');
    await page.getByText(`1 to 50 of ${count} partitions`).waitFor();
  });
  await step('last page', async () => {
    await page.getByRole('button', { name: 'Last', exact: true }).click();
    await page.getByRole('link', { name: last }).waitFor();
  });
  await step('by pending', async () => {
    await page.getByRole('button', { name: 'Pending' }).click();
    await page.getByRole('link', { name: 'device-0000777' }).waitFor();
  });
  await step('search', async () => {
    await page.getByRole('searchbox').fill('0000778');
    await page.getByText('1 partition', { exact: true }).waitFor();
  });
  await step('partition', async () => {
    await page.getByRole('link', { name: 'device-0000778' }).click();
    await page.getByText('offsets 0 to 4').waitFor();
  });
  t.diagnostic(`${JSON.stringify(took)} ms, the largest answer has ${largest} bytes`);
  for (const [name, ms] of Object.entries(took)) assert.ok(ms < WITHIN_MS, `${name}: ${ms} ms`);
  assert.ok(largest > 1_000 && largest < ANSWER_BYTES_MAX, `an answer of ${largest} bytes`);
}
