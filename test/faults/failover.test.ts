import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Database, statement } from '../../packages/broker/src/store/database.ts';
import { StoreError } from '../../packages/broker/src/store/errors.ts';
import { until } from '../kit/until.ts';
import { failover } from './failover.ts';
import { OwnServer } from './outages.ts';

test('the standby takes over under load', { timeout: 240_000 }, (t) =>
  failover(t, { rounds: 1, messages: 80 }),
);

test('a commit that somebody told not to wait for its standby is in doubt', {
  timeout: 60_000,
}, async (t) => {
  const server = await OwnServer.start(t);
  await server.sql('CREATE TABLE public.t (n int)');
  await server.sql(`ALTER SYSTEM SET synchronous_standby_names = 'nobody'`);
  await server.sql('SELECT pg_reload_conf()');
  const db = await Database.open({ ...server.options, applicationName: 'waits' });
  t.after(() => db.close());
  const insert = statement('alone', 'INSERT INTO public.t VALUES (1)');
  const cancelled = async (work: Promise<unknown>) => {
    const told = assert.rejects(work, (error) => error instanceof StoreError && error.kind === 'in_doubt');
    await until('it waits for the standby', async () => {
      const rows = await server.sql(
        `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'waits' AND wait_event = 'SyncRep'`,
      );
      return rows.length > 0;
    });
    await told;
  };
  await cancelled(db.query(insert));
  await cancelled(db.transaction(async (tx) => tx.query(insert)));
  const [row] = await server.sql('SELECT count(*)::int AS n FROM public.t');
  assert.equal(row!.n, 2, 'committed they are');
  // The connection is as good as before.
  await db.query(statement('reads', 'SELECT 1 AS one'), [], { readOnly: true });
  await server.sql('ALTER SYSTEM RESET synchronous_standby_names');
  await server.sql('SELECT pg_reload_conf()');
  await db.query(insert);
});
