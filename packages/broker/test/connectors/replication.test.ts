import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type pg from 'pg';
import { until } from '../../../../test/kit/until.ts';
import { Upstream, type UpstreamDatabase } from '../../../../test/kit/upstream.ts';
import type {
  ReplicationConnection,
  StreamHandler,
} from '../../src/connectors/postgres/replication/connection.ts';
import { parseLsn } from '../../src/connectors/postgres/replication/lsn.ts';
import { decodePgoutput, type PgoutputMessage } from '../../src/connectors/postgres/replication/pgoutput.ts';
import { PgDialler } from '../../src/connectors/postgres/session/dialler.ts';
import { cellText } from '../../src/connectors/postgres/source/rows.ts';

suite('a copy of a slot', () => {
  let upstream: Upstream;
  let database: UpstreamDatabase;
  let client: pg.Client;
  let slot: string;

  before(async () => {
    upstream = await Upstream.start({ major: 18 });
    database = await upstream.database();
    client = await database.connect();
    slot = `copy_${process.pid}`;
    await client.query(`SET synchronous_commit = on; CREATE TABLE t (id int PRIMARY KEY, v text);
      CREATE PUBLICATION "a 'publication'" FOR TABLE t`);
    await client.query('SELECT pg_create_logical_replication_slot($1, $2)', [slot, 'pgoutput']);
  });
  after(async () => {
    await client.query('SELECT pg_drop_replication_slot($1)', [slot]);
    await client.end();
    await upstream.remove();
  });

  function open(): Promise<ReplicationConnection> {
    const { host, port, user } = upstream;
    const connection = {
      host,
      port,
      user,
      database: database.name,
      passwordSealed: null,
      sslMode: 'disable' as const,
      sslRootCert: null,
      connectTimeoutMs: 5_000,
    };
    return new PgDialler({ connection, password: () => null, allowPrivate: true }).replication(
      'queen-pg test',
    );
  }

  class Copy implements StreamHandler {
    readonly messages: PgoutputMessage[] = [];
    readonly ids: string[] = [];
    walEnd = 0n;
    replies = 0;

    data(bytes: Buffer, from: number, to: number): void {
      const message = decodePgoutput(bytes, from, to);
      this.messages.push(message);
      if (message.kind === 'insert') this.ids.push(cellText(message.after, 0)!);
    }

    keepalive(walEnd: bigint, reply: boolean): void {
      this.walEnd = walEnd;
      if (reply) this.replies++;
    }

    get lastEnd(): bigint {
      const commit = this.messages.findLast((message) => message.kind === 'commit');
      return commit?.kind === 'commit' ? commit.endLsn : 0n;
    }
  }

  const START = { publication: "a 'publication'", from: 0n };
  const slotRow = async () => {
    const { rows } = await client.query(
      'SELECT active, confirmed_flush_lsn::text AS confirmed FROM pg_replication_slots WHERE slot_name = $1',
      [slot],
    );
    return rows[0] as { active: boolean; confirmed: string };
  };

  test('sends what is committed, from where it was confirmed; a stop frees the slot', async () => {
    const one = await open();
    const facts = await one.identify();
    const { rows } = await client.query(
      'SELECT system_identifier::text AS id, timeline_id AS timeline FROM pg_control_system(), pg_control_checkpoint()',
    );
    assert.deepEqual([facts.systemId, facts.timeline], [rows[0].id, rows[0].timeline]);
    const copy = new Copy();
    await one.start({ slot, ...START }, copy);
    await client.query("INSERT INTO t VALUES (1, 'a'), (2, 'b')");
    await until('both rows have come', () => copy.ids.length === 2);
    const confirmed = copy.lastEnd;
    one.confirm(confirmed, confirmed);
    await until('the slot has moved', async () => parseLsn((await slotRow()).confirmed)! >= confirmed);
    await client.query("INSERT INTO t VALUES (3, 'c')");
    await until('the third row has come', () => copy.ids.length === 3);
    await one.stop();
    assert.equal((await slotRow()).active, false);
    await one.close();

    const two = await open();
    const again = new Copy();
    await two.start({ slot, ...START, from: confirmed }, again);
    await until('what was not confirmed comes again', () => again.ids.length === 1);
    assert.deepEqual(again.ids, ['3']);
    await two.stop();
    await two.close();
  });

  test('a consumer that does not read holds the server up, and loses nothing', async () => {
    const connection = await open();
    const copy = new Copy();
    await connection.start({ slot, ...START }, copy);
    await until('it has begun', () => copy.ids.length > 0 || copy.walEnd > 0n);
    connection.pause();
    const before = copy.ids.length;
    await client.query("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1000, 20999) g");
    const { rows } = await client.query('SELECT pg_current_wal_lsn()::text AS lsn');
    await until('the server waits for us', async () => {
      const { rows: senders } = await client.query(
        "SELECT sent_lsn < $1::pg_lsn AS behind FROM pg_stat_replication WHERE application_name = 'queen-pg test'",
        [rows[0].lsn],
      );
      return senders[0]?.behind === true;
    });
    assert.ok(copy.ids.length - before < 1_000, `${copy.ids.length - before} rows came all the same`);
    connection.resume();
    await until('all have come', () => copy.ids.length - before >= 20_000);
    assert.deepEqual(copy.ids.slice(-2), ['20998', '20999']);
    await connection.stop();
    await connection.close();
  });

  test('a sender that is killed, a handler that throws, a slot that is taken', async () => {
    const connection = await open();
    const copy = new Copy();
    await connection.start({ slot, ...START }, copy);
    const taken = await open();
    await assert.rejects(taken.start({ slot, ...START }, new Copy()), { code: '55006' });
    await taken.close();
    const ended = assert.rejects(connection.ended());
    await client.query(
      'SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1',
      [slot],
    );
    await ended;
    await connection.close();

    await until('the slot is free', async () => !(await slotRow()).active);
    const broken = await open();
    const fault = new Error('not understood');
    await broken.start(
      { slot, ...START },
      {
        data() {
          throw fault;
        },
        keepalive() {},
      },
    );
    await client.query('INSERT INTO t VALUES (-1, NULL)');
    await assert.rejects(broken.ended(), fault);
    await broken.close();
    await until('the slot is free', async () => !(await slotRow()).active);
  });
});
