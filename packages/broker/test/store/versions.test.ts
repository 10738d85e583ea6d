import assert from 'node:assert/strict';
import { test } from 'node:test';
import pg from 'pg';
import { atEnd, type Cleanup } from '../../../../test/kit/cleanup.ts';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';

/** Row versions that the snapshot keeps; some sixty fit a page, so a look-up that visits them all touches fifty pages. */
const VERSIONS = 3_000;
/** What one more message or another page split may cost. */
const SLACK_PAGES = 15;
const ROUNDS = 4;

async function connect(t: Cleanup, database: TestDatabase): Promise<pg.Client> {
  const { hosts, user, database: name } = database.options;
  const client = new pg.Client({ host: hosts[0]!.host, port: hosts[0]!.port, user, database: name });
  client.on('error', () => {});
  await client.connect();
  atEnd(t, () => client.end());
  return client;
}

const PUSH = `queen.log_push(ARRAY[1]::bigint[], ARRAY[1], ARRAY[-1]::bigint[], ARRAY[0], ARRAY[repeat('h', 16)::bytea],
                             ARRAY['blob'::bytea], ARRAY[false])`;
const CLAIM = `queen.log_pop_claim('g', ARRAY[1]::bigint[], ARRAY[0]::bigint[], 'w', 10, 1, 1000000, 60, false, 0)`;
const ack = (offset: number) => `queen.log_ack(ARRAY['00000000-0000-0000-0000-000000000001']::uuid[],
  ARRAY[1]::bigint[], ARRAY['g'], ARRAY['w'], ARRAY[1], ARRAY[0], ARRAY[${offset}]::bigint[], repeat('h', 16)::bytea, 0)`;

const ackWhole = (offset: number) => `queen.log_ack_whole(ARRAY[1]::bigint[], ARRAY['g'], ARRAY['w'],
  ARRAY[${offset}]::bigint[], ARRAY[${offset}]::bigint[])`;

test('row versions that somebody keeps do not make push, claim and ack visit more pages', async (t) => {
  const database = await freshDatabase(t);
  const client = await connect(t, database);
  await client.query(`INSERT INTO queen.queues (name, dedup_window_seconds) VALUES ('q', 0)`);
  await client.query(`INSERT INTO queen.log_partitions (queue_id, name) SELECT id, 'p' FROM queen.queues`);
  await client.query(
    `INSERT INTO queen.log_consumers (partition_id, consumer_group) VALUES (1, 'g'), (1, 'h')`,
  );

  const pages = async (call: string): Promise<number> => {
    const { rows } = await client.query(
      `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) SELECT * FROM ${call}`,
    );
    const text = rows.map((row) => row['QUERY PLAN']).join('\n');
    const buffers = /Buffers: shared([^\n]*)/.exec(text)?.[1] ?? '';
    return [...buffers.matchAll(/(?:hit|read)=(\d+)/g)].reduce((sum, [, n]) => sum + Number(n), 0);
  };
  let offset = 0;
  const round = async () => ({
    push: await pages(PUSH),
    claim: await pages(CLAIM),
    ack: await pages(ack(offset++)),
    pushAgain: await pages(PUSH),
    claimAgain: await pages(CLAIM),
    ackWhole: await pages(ackWhole(offset++)),
  });
  /**
   * What each call visits at least. A call that finds its plans or its look-ups of the catalogs outdated, since the
   * session is new or autovacuum has come to a table, reads a hundred pages more, once; versions are visited every time.
   */
  const least = async () => {
    const rounds: Awaited<ReturnType<typeof round>>[] = [];
    for (let i = 0; i < ROUNDS; i++) rounds.push(await round());
    return (call: keyof (typeof rounds)[number]) => Math.min(...rounds.map((each) => each[call]));
  };
  const before = await least();

  const reporter = await connect(t, database);
  await reporter.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  await reporter.query('SELECT count(*) FROM queen.log_partitions');
  await client.query(`DO $$ BEGIN
    FOR i IN 1..${VERSIONS} LOOP
      UPDATE queen.log_partitions SET last_created_at = queen.clock();
      UPDATE queen.log_consumers SET total_consumed = total_consumed + 1 WHERE consumer_group = 'g';
      COMMIT;
    END LOOP;
  END $$`);
  const kept = await pages('(SELECT * FROM queen.log_partitions WHERE id = 1) x');
  assert.ok(kept > 30, `the versions are there: ${kept} pages`);

  const during = await least();
  for (const call of ['push', 'claim', 'ack', 'ackWhole'] as const) {
    const [now, then] = [during(call), before(call)];
    t.diagnostic(`${call}: ${now} pages, before ${then}, of ${kept}`);
    assert.ok(now <= then + SLACK_PAGES, `${call}: ${now}, before ${then}`);
  }
  const { rows } = await client.query(
    'SELECT committed, last_offset FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id WHERE consumer_group = $1',
    ['g'],
  );
  const last = String(offset - 1);
  assert.deepEqual(rows, [{ committed: last, last_offset: last }]);
});
