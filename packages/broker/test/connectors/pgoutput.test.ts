/** What a server sends through its plug-in, decoded; and bytes that it would never send. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import fc from 'fast-check';
import pg from 'pg';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import { formatLsn, lsnDigits, parseLsn } from '../../src/connectors/postgres/replication/lsn.ts';
import {
  CELL,
  decodePgoutput,
  type PgoutputMessage,
  ProtocolViolation,
  type Tuple,
} from '../../src/connectors/postgres/replication/pgoutput.ts';

const UNCHANGED = Symbol('unchanged');

function cells(tuple: Tuple | null): (string | null | typeof UNCHANGED)[] | null {
  if (tuple === null) return null;
  return Array.from(tuple.kinds, (kind, i) => {
    if (kind === CELL.null) return null;
    return kind === CELL.unchanged ? UNCHANGED : tuple.bytes.toString('utf8', tuple.starts[i], tuple.ends[i]);
  });
}

suite('sent by a server', () => {
  let database: TestDatabase;
  let client: pg.Client;
  const sent: Buffer[] = [];

  before(async () => {
    database = await freshDatabase();
    const { hosts, user, database: name } = database.options;
    client = new pg.Client({ host: hosts[0]!.host, port: hosts[0]!.port, user, database: name });
    await client.connect();
    await client.query(`
      SET synchronous_commit = on;
      CREATE TYPE mood AS ENUM ('sad', 'happy');
      CREATE TABLE rows (id int, "Other" text, big text, feeling mood, PRIMARY KEY (id));
      ALTER TABLE rows ALTER big SET STORAGE EXTERNAL;
      CREATE TABLE whole (a int PRIMARY KEY, b text); ALTER TABLE whole REPLICA IDENTITY FULL;
      CREATE PUBLICATION all_of_it FOR TABLE rows, whole`);
    await client.query(
      "SELECT pg_create_logical_replication_slot('decode_' || pg_backend_pid(), 'pgoutput')",
    );
  });
  after(async () => {
    await client.query("SELECT pg_drop_replication_slot('decode_' || pg_backend_pid())");
    await client.end();
    await database.drop();
  });

  async function received(sql: string): Promise<PgoutputMessage[]> {
    await client.query(sql);
    const { rows } = await client.query(
      `SELECT data FROM pg_logical_slot_get_binary_changes('decode_' || pg_backend_pid(), NULL, NULL,
         'proto_version', '1', 'publication_names', 'all_of_it', 'messages', 'true')`,
    );
    return rows.map(({ data }) => {
      sent.push(data);
      // In the middle of other bytes, as it arrives.
      return decodePgoutput(
        Buffer.concat([Buffer.alloc(3, 1), data, Buffer.alloc(2, 1)]),
        3,
        3 + data.length,
      );
    });
  }

  test('a transaction: its begin, its relation, its changes, its commit', async () => {
    const before = Date.now() * 1000;
    const messages = await received("INSERT INTO rows VALUES (1, 'é', NULL, 'sad'), (2, '', 'x', NULL)");
    const [begin, type, relation, one, two, commit] = messages;
    assert.equal(messages.length, 6);
    assert.ok(begin?.kind === 'begin' && commit?.kind === 'commit' && relation?.kind === 'relation');
    assert.equal(type?.kind, 'type');
    assert.equal(begin.commitLsn, commit.commitLsn);
    assert.ok(commit.endLsn > commit.commitLsn);
    assert.equal(begin.commitMicros, commit.commitMicros);
    assert.ok(Number(begin.commitMicros) >= before - 1000 && Number(begin.commitMicros) <= Date.now() * 1000);
    const { rows } = await client.query(
      "SELECT xmin::text, 'public.rows'::regclass::oid::int AS oid FROM rows LIMIT 1",
    );
    assert.equal(begin.xid, Number(rows[0].xmin));
    assert.equal(relation.oid, rows[0].oid);
    assert.deepEqual([relation.schema, relation.name, relation.identity], ['public', 'rows', 'd']);
    assert.deepEqual(relation.columns.map(({ name, key, typeOid }) => [name, key, typeOid]).slice(0, 3), [
      ['id', true, 23],
      ['Other', false, 25],
      ['big', false, 25],
    ]);
    assert.ok(one?.kind === 'insert' && two?.kind === 'insert' && one.relation === relation.oid);
    assert.deepEqual(cells(one.after), ['1', 'é', null, 'sad']);
    assert.deepEqual(cells(two.after), ['2', '', 'x', null]);
  });

  test('updates and deletes say what was there before, as far as the identity goes', async () => {
    const big = 'y'.repeat(10_000);
    await received(`INSERT INTO rows VALUES (3, 'a', '${big}', NULL); INSERT INTO whole VALUES (1, 'old')`);
    const changes = async (sql: string) =>
      (await received(sql)).filter(({ kind }) => kind === 'update' || kind === 'delete') as Extract<
        PgoutputMessage,
        { kind: 'update' | 'delete' }
      >[];
    const [plain] = await changes('UPDATE rows SET "Other" = \'b\' WHERE id = 3');
    assert.ok(plain?.kind === 'update' && plain.identity === null && plain.before === null);
    assert.deepEqual(cells(plain.after), ['3', 'b', UNCHANGED, null]);
    const [moved] = await changes('UPDATE rows SET id = 4 WHERE id = 3');
    assert.ok(moved?.kind === 'update' && moved.identity === 'K');
    assert.deepEqual(cells(moved.before), ['3', null, null, null]);
    assert.deepEqual(cells(moved.after), ['4', 'b', UNCHANGED, null]);
    const [whole] = await changes("UPDATE whole SET b = 'new'");
    assert.ok(whole?.kind === 'update' && whole.identity === 'O');
    assert.deepEqual(
      [cells(whole.before), cells(whole.after)],
      [
        ['1', 'old'],
        ['1', 'new'],
      ],
    );
    const [key, row] = await changes('DELETE FROM rows WHERE id = 4; DELETE FROM whole');
    assert.ok(key?.kind === 'delete' && row?.kind === 'delete');
    assert.deepEqual([key.identity, cells(key.before)], ['K', ['4', null, null, null]]);
    assert.deepEqual([row.identity, cells(row.before)], ['O', ['1', 'new']]);
  });

  test('truncates and messages', async () => {
    const cleared = await received('TRUNCATE rows, whole RESTART IDENTITY CASCADE');
    const truncate = cleared.find(({ kind }) => kind === 'truncate');
    assert.ok(truncate?.kind === 'truncate');
    assert.equal(truncate.relations.length, 2);
    assert.deepEqual([truncate.cascade, truncate.restartIdentity], [true, true]);
    const [alone] = await received("SELECT pg_logical_emit_message(false, 'queen:1', 'lw:7', true)");
    assert.ok(alone?.kind === 'message');
    assert.deepEqual(
      [alone.transactional, alone.prefix, alone.content.toString()],
      [false, 'queen:1', 'lw:7'],
    );
    const { rows } = await client.query('SELECT pg_current_wal_lsn()::text AS lsn');
    assert.ok(alone.lsn <= parseLsn(rows[0].lsn)!);
  });

  test('a message that is cut off, goes on, or is not known is refused', () => {
    assert.ok(sent.length > 10);
    for (const bytes of sent) {
      for (let length = 0; length < Math.min(bytes.length, 200); length++) {
        assert.throws(() => decodePgoutput(bytes.subarray(0, length)), ProtocolViolation, `${length} bytes`);
      }
      assert.throws(() => decodePgoutput(Buffer.concat([bytes, Buffer.alloc(1)])), ProtocolViolation);
    }
    for (const kind of 'AEGHJKLNPQSVWXZabcdefghijklmnopqrstuvwxyz0\0') {
      assert.throws(() => decodePgoutput(Buffer.from(`${kind}abcdefgh`)), ProtocolViolation);
    }
  });
});

test('any bytes are a message or a violation', () => {
  const kinds = fc.constantFrom(...'BCRIUDTMYO');
  fc.assert(
    fc.property(kinds, fc.uint8Array({ maxLength: 60 }), (kind, bytes) => {
      try {
        decodePgoutput(Buffer.concat([Buffer.from(kind), bytes]));
      } catch (error) {
        assert.ok(error instanceof ProtocolViolation);
      }
    }),
    { numRuns: 3_000 },
  );
});

test('LSNs', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (lsn) => {
      assert.equal(parseLsn(formatLsn(lsn)), lsn);
      assert.equal(BigInt(`0x${lsnDigits(lsn)}`), lsn);
      assert.equal(lsnDigits(lsn).length, 16);
    }),
  );
  assert.equal(formatLsn(parseLsn('0/1570D68')!), '0/1570D68');
  assert.equal(formatLsn(0xa_0000_0bccn), 'A/BCC');
  for (const text of ['', '1', '0/', '/0', '0/123456789', 'g/0', '0/1 ', '0x1/1'])
    assert.equal(parseLsn(text), null);
});
