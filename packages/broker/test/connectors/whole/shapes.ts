/** Every shape of event, as it reaches a consumer, byte for byte. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { UpstreamDatabase } from '../../../../../test/kit/upstream.ts';
import { Consumer, lsnOf, type Popped, type SourceRig } from './rig.ts';

/** Registers its tests; the rig is there when they run. */
export function shapes(rigOf: () => SourceRig, major: 17 | 18): void {
  let database: UpstreamDatabase;

  /** A database whose only table has a source. `q`: the name of connector and queue. */
  async function source(q: string, ddl: string, settings: Record<string, unknown> = {}): Promise<Consumer> {
    database = await rigOf().upstream.database();
    await database.sql(ddl);
    await rigOf().put(q, database, { tables: [{ table: 'public.t', queue: q }], ...settings });
    await rigOf().streaming(q);
    return new Consumer(rigOf(), q);
  }

  async function finish(q: string): Promise<void> {
    await rigOf().remove(q);
    await database.drop();
  }

  /** The end of an event, whose place only the upstream knows; checked for being one. */
  function split({ text, transactionId }: Popped): {
    body: string;
    seq: number;
    id: string;
    xid: number | null;
  } {
    const match =
      /^(.*),"lsn":"([0-9A-F]+\/[0-9A-F]+)"(?:,"xid":(\d+))?,"ts":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)","seq":(\d+)\}$/.exec(
        text,
      );
    assert.ok(match, text);
    const [, body, lsn, xid, , seq] = match as unknown as [
      string,
      string,
      string,
      string | undefined,
      string,
      string,
    ];
    const digits = lsnOf(lsn).toString(16).toUpperCase().padStart(16, '0');
    const id = /^pg:[0-9a-f]{8}:(.*)$/.exec(transactionId)![1]!;
    return {
      body: `${body}}`,
      seq: Number(seq),
      id: id.replace(digits, 'LSN'),
      xid: xid === undefined ? null : Number(xid),
    };
  }

  async function taken(
    consumer: Consumer,
    count: number,
  ): Promise<[partition: string, id: string, body: string][]> {
    const messages = await consumer.take(count);
    return messages.map((message) => {
      const { body, id, seq, xid } = split(message);
      assert.match(id, new RegExp(`^(LSN:${seq}(\\.\\d+)?|s:LSN:f?${seq})$`));
      assert.equal(xid === null, id.startsWith('s:'));
      return [message.partition, id, body];
    });
  }

  test('of the orders of the first page', async () => {
    const consumer = await source(
      'orders',
      `CREATE TABLE t (id bigint PRIMARY KEY, customer jsonb NOT NULL, status text NOT NULL, total numeric(12,2) NOT NULL,
           created_at timestamptz NOT NULL);
         INSERT INTO t VALUES (1, '{"name": "Ada", "tier": "gold"}', 'new', 42.00, '2026-10-03 06:14:39.365472+00'),
           (2, '{"name": "Linus", "tier": "silver"}', 'new', 17.50, '2026-10-03 06:14:39+00')`,
    );
    assert.deepEqual(await taken(consumer, 2), [
      [
        '1',
        's:LSN:0',
        '{"op":"r","table":"public.t","key":{"id":1},"after":{"id":1,"customer":{"name": "Ada", "tier": "gold"},"status":"new","total":42.00,"created_at":"2026-10-03T06:14:39.365472+00:00"},"before":null}',
      ],
      [
        '2',
        's:LSN:1',
        '{"op":"r","table":"public.t","key":{"id":2},"after":{"id":2,"customer":{"name": "Linus", "tier": "silver"},"status":"new","total":17.50,"created_at":"2026-10-03T06:14:39+00:00"},"before":null}',
      ],
    ]);
    await database.sql("UPDATE t SET status = 'paid' WHERE id = 1");
    await database.sql(`BEGIN; INSERT INTO t VALUES (3, '{"name": "Grace"}', 'new', 99.90, '2026-10-03 06:15:03.5+00');
        DELETE FROM t WHERE id = 2; COMMIT`);
    assert.deepEqual(await taken(consumer, 3), [
      [
        '1',
        'LSN:0',
        '{"op":"u","table":"public.t","key":{"id":1},"after":{"id":1,"customer":{"name": "Ada", "tier": "gold"},"status":"paid","total":42.00,"created_at":"2026-10-03T06:14:39.365472+00:00"},"before":null}',
      ],
      [
        '3',
        'LSN:0',
        '{"op":"c","table":"public.t","key":{"id":3},"after":{"id":3,"customer":{"name": "Grace"},"status":"new","total":99.90,"created_at":"2026-10-03T06:15:03.5+00:00"},"before":null}',
      ],
      ['2', 'LSN:1', '{"op":"d","table":"public.t","key":{"id":2},"after":null,"before":{"id":2}}'],
    ]);
    const [insert, remove] = consumer.events.filter(({ seq, op }) => op === 'd' || (op === 'c' && seq === 0));
    assert.deepEqual([insert!.lsn, insert!.xid, insert!.ts], [remove!.lsn, remove!.xid, remove!.ts]);
    const [row] = await database.sql(`SELECT xmin::text AS xid FROM t WHERE id = 3`);
    assert.equal(String(insert!.xid), row!.xid);
    await finish('orders');
  });

  test('keys that move, unchanged large columns, and deletes', async () => {
    const long = 'x'.repeat(10_000);
    const consumer = await source(
      'moves',
      `CREATE TABLE t ("B b" text, a int, note text, PRIMARY KEY ("B b", a));
         ALTER TABLE t ALTER note SET STORAGE EXTERNAL`,
    );
    await database.sql(`INSERT INTO t VALUES (E'x|\\\\y', 1, '${long}')`);
    await database.sql(`UPDATE t SET a = a WHERE a = 1`);
    await database.sql(`UPDATE t SET "B b" = 'z', a = 2`);
    const key = '{"B b":"x|\\\\y","a":1}';
    assert.deepEqual(await taken(consumer, 4), [
      [
        'x\\|\\\\y|1',
        'LSN:0',
        `{"op":"c","table":"public.t","key":${key},"after":{"B b":"x|\\\\y","a":1,"note":"${long}"},"before":null}`,
      ],
      [
        'x\\|\\\\y|1',
        'LSN:0',
        `{"op":"u","table":"public.t","key":${key},"after":{"B b":"x|\\\\y","a":1},"before":null,"unchanged":["note"]}`,
      ],
      ['x\\|\\\\y|1', 'LSN:0', `{"op":"d","table":"public.t","key":${key},"after":null,"before":${key}}`],
      [
        'z|2',
        'LSN:0.1',
        `{"op":"c","table":"public.t","key":{"B b":"z","a":2},"after":{"B b":"z","a":2,"note":"${long}"},"before":null}`,
      ],
    ]);
    // Only now: what is gone cannot be read any more, and its event would stay without it.
    await database.sql('DELETE FROM t');
    assert.deepEqual(await taken(consumer, 1), [
      [
        'z|2',
        'LSN:0',
        '{"op":"d","table":"public.t","key":{"B b":"z","a":2},"after":null,"before":{"B b":"z","a":2}}',
      ],
    ]);
    await finish('moves');
  });

  test('one partition for a table, with truncates', async () => {
    const consumer = await source('single', 'CREATE TABLE t (id int PRIMARY KEY, v text)', {
      tables: [{ table: 'public.t', queue: 'single', partitionBy: 'single' }],
      onTruncate: 'emit',
    });
    await database.sql("INSERT INTO t VALUES (1, 'a')");
    await database.sql('UPDATE t SET id = 2');
    await database.sql('BEGIN; DELETE FROM t; TRUNCATE t RESTART IDENTITY CASCADE; COMMIT');
    const messages = await consumer.take(4);
    const truncate = messages.pop()!;
    assert.match(
      truncate.text,
      /^\{"op":"t","table":"public\.t","key":null,"after":null,"before":null,"lsn":"[^"]+","xid":\d+,"ts":"[^"]+","seq":1,"cascade":true,"restartIdentity":true\}$/,
    );
    assert.deepEqual(
      messages.map((message) => [message.partition, split(message).id, split(message).body]),
      [
        [
          'all',
          'LSN:0',
          '{"op":"c","table":"public.t","key":{"id":1},"after":{"id":1,"v":"a"},"before":null}',
        ],
        [
          'all',
          'LSN:0',
          '{"op":"u","table":"public.t","key":{"id":2},"after":{"id":2,"v":"a"},"before":{"id":1}}',
        ],
        ['all', 'LSN:0', '{"op":"d","table":"public.t","key":{"id":2},"after":null,"before":{"id":2}}'],
      ],
    );
    await finish('single');
  });

  test('the whole old row under full identity, by a column that is not in the key', async () => {
    const consumer = await source(
      'full',
      `CREATE TABLE t (id int PRIMARY KEY, owner text, note text); ALTER TABLE t REPLICA IDENTITY FULL;
         ALTER TABLE t ALTER note SET STORAGE EXTERNAL`,
      { tables: [{ table: 'public.t', queue: 'full', partitionBy: ['owner'] }] },
    );
    const long = 'y'.repeat(9_000);
    await database.sql(`INSERT INTO t VALUES (1, 'Ada', '${long}')`);
    await database.sql('UPDATE t SET owner = owner');
    await database.sql('UPDATE t SET owner = NULL');
    await database.sql('DELETE FROM t');
    const ada = `{"id":1,"owner":"Ada","note":"${long}"}`;
    const nobody = `{"id":1,"owner":null,"note":"${long}"}`;
    assert.deepEqual(await taken(consumer, 5), [
      ['Ada', 'LSN:0', `{"op":"c","table":"public.t","key":{"id":1},"after":${ada},"before":null}`],
      ['Ada', 'LSN:0', `{"op":"u","table":"public.t","key":{"id":1},"after":${ada},"before":${ada}}`],
      ['Ada', 'LSN:0', `{"op":"d","table":"public.t","key":{"id":1},"after":null,"before":${ada}}`],
      ['\\N', 'LSN:0.1', `{"op":"c","table":"public.t","key":{"id":1},"after":${nobody},"before":null}`],
      ['\\N', 'LSN:0', `{"op":"d","table":"public.t","key":{"id":1},"after":null,"before":${nobody}}`],
    ]);
    await finish('full');
  });

  test('names of 63 bytes, columns with any characters, an identity by an index, generated columns', async () => {
    const table = `T${'x'.repeat(62)}`;
    const column = `"${'ü'.repeat(31)}q"`;
    database = await rigOf().upstream.database();
    await database.sql(`CREATE TABLE "${table}" (${column} int NOT NULL, " ""quoted"" . blank" text NOT NULL, "日本" text,
          gen int GENERATED ALWAYS AS (1) STORED${major === 18 ? ', virt int GENERATED ALWAYS AS (2) VIRTUAL' : ''},
          auto int GENERATED ALWAYS AS IDENTITY);
        CREATE UNIQUE INDEX named ON "${table}" (" ""quoted"" . blank", ${column});
        ALTER TABLE "${table}" REPLICA IDENTITY USING INDEX named;
        INSERT INTO "${table}" VALUES (1, 'é "', 'v')`);
    await rigOf().put('names', database, { tables: [{ table: `public.${table}`, queue: 'names' }] });
    await rigOf().streaming('names');
    await database.sql(`INSERT INTO "${table}" VALUES (2, 'b', NULL)`);
    const consumer = new Consumer(rigOf(), 'names');
    const [read, created] = await taken(consumer, 2).then((list) => list.reverse());
    const name = `${'ü'.repeat(31)}q`;
    assert.deepEqual(read, [
      'é "|1',
      's:LSN:0',
      `{"op":"r","table":"public.${table}","key":{" \\"quoted\\" . blank":"é \\"","${name}":1},"after":{"${name}":1," \\"quoted\\" . blank":"é \\"","日本":"v","auto":1},"before":null}`,
    ]);
    assert.deepEqual(created, [
      'b|2',
      'LSN:0',
      `{"op":"c","table":"public.${table}","key":{" \\"quoted\\" . blank":"b","${name}":2},"after":{"${name}":2," \\"quoted\\" . blank":"b","日本":null,"auto":2},"before":null}`,
    ]);
    await finish('names');
  });
}
