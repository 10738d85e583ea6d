/** Tables that nobody writes to, on a server that others keep busy: its log must not pile up behind the slot. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Upstream, type UpstreamDatabase } from '../kit/upstream.ts';
import { Connected, type Trial } from './connected.ts';

export interface ForeignPlan {
  /** Of log that others write. */
  megabytes: number;
  /** As fast as that, so that the server itself can follow with its decoding. */
  megabytesASecond: number;
  heartbeatSeconds: number;
}

const MEGABYTE = 1024 * 1024;
const BACK_BYTES = 16 * MEGABYTE;
const ROWS = 4_000;

export async function foreignLog(t: Trial, plan: ForeignPlan): Promise<void> {
  const server = await Upstream.start({ major: 18 }, t);
  const scene = await Connected.open(t, server);
  const elsewhere = await server.database(t);
  await scene.upstream.sql('CREATE TABLE quiet (id int PRIMARY KEY)');
  const broker = await scene.broker();
  const { heartbeatSeconds } = plan;
  await scene.source(broker, {
    tables: [{ table: 'quiet', queue: 'q' }],
    snapshot: 'never',
    heartbeatSeconds,
  });
  await scene.reaches(broker, 'streaming');
  const look = async () => {
    const [row] = await scene.upstream.sql(
      `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 AS written,
              pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::float8 AS lag,
              pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::float8 AS kept
         FROM pg_replication_slots WHERE slot_name = $1`,
      [scene.slot],
    );
    return row as { written: number; lag: number; kept: number };
  };

  const begun = performance.now();
  const start = (await look()).written;
  const end = start + plan.megabytes * MEGABYTE;
  let written = start;
  // One in the same database, which is decoded and found to be nobody's, and one in another, which is not even that.
  const write = async (database: UpstreamDatabase) => {
    await database.sql('CREATE TABLE busy (v text)');
    const client = await database.connect();
    for (let n = 1; written < end; n++) {
      await client.query(
        `INSERT INTO busy SELECT repeat(md5(random()::text), 32) FROM generate_series(1, ${ROWS})`,
      );
      if (n % 25 === 0) await client.query('TRUNCATE busy');
      const due = ((written - start) / MEGABYTE / plan.megabytesASecond) * 1_000;
      await sleep(Math.max(0, begun + due - performance.now()));
    }
    await client.end();
  };
  let most = 0;
  const watch = async () => {
    while (written < end) {
      const now = await look();
      written = now.written;
      most = Math.max(most, now.lag);
      await sleep(100);
    }
  };
  await Promise.all([write(scene.upstream), write(elsewhere), watch()]);
  const quiet = performance.now();
  let state = await look();
  const atEnd = state.lag;
  while (state.lag >= BACK_BYTES) {
    const sinceMs = performance.now() - quiet;
    assert.ok(
      sinceMs < 2 * heartbeatSeconds * 1_000,
      `${Math.round(state.lag / MEGABYTE)} MB behind after ${Math.round(sinceMs)} ms`,
    );
    await sleep(100);
    state = await look();
  }
  const megabytes = (bytes: number) => Math.round(bytes / MEGABYTE);
  t.diagnostic(
    `${megabytes(state.written - start)} MB in ${Math.round((quiet - begun) / 1_000)} s; behind by ${megabytes(most)} MB at most, ${megabytes(atEnd)} MB at the end, ${megabytes(state.lag)} MB ${Math.round(performance.now() - quiet)} ms later, with ${megabytes(state.kept)} MB kept`,
  );
  assert.equal(await scene.stored(), 0, 'nothing of it is in the queue');
  assert.equal(await scene.errors(broker), 0);
  await scene.upstream.sql('INSERT INTO quiet VALUES (1)');
  await scene.arrived(broker, 1, 30_000);
  assert.equal((await broker.stop()).code, 0);
}
