/**
 * `npm run tour`: a table becomes a queue and a queue becomes a table, step by step, on a PostgreSQL and a broker that are
 * started for it and gone after it. Each step shows what one would type and what comes of it, and fails when that is not what it
 * should be.
 */
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import { Stage, type StageOptions } from './stage.ts';

interface Message {
  partition: string;
  transactionId: string;
  data: Event;
}

interface Event {
  op: string;
  key: Record<string, unknown>;
  after: Record<string, unknown> | null;
  before: Record<string, unknown> | null;
  lsn: string;
  xid?: number;
  seq: number;
}

const READER = '/api/v1/pop/queue/orders?batch=10&partitions=10&consumerGroup=reader&autoAck=true';

/** Throws when a step does not end as it should. */
export async function tour(options: StageOptions): Promise<void> {
  const stage = await Stage.open(options);
  try {
    stage.say(
      `PostgreSQL ${options.major} with wal_level=logical at ${stage.postgres}, a broker with QUEEN_ENCRYPTION_KEY at ${stage.brokerUrl}`,
    );
    await table(stage);
    await source(stage);
    await changes(stage);
    await copy(stage);
    await invoices(stage);
    await accounts(stage);
    stage.title('That was it');
  } catch (error) {
    options.print(stage.logs().slice(-4_000));
    throw error;
  } finally {
    await stage.close();
  }
}

async function table(stage: Stage): Promise<void> {
  stage.title('A table with a nested JSON column, and two rows in it');
  await stage.psql(`CREATE TABLE orders (
  id         bigint PRIMARY KEY,
  customer   jsonb NOT NULL,
  status     text NOT NULL,
  total      numeric(12,2) NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO orders (id, customer, status, total) VALUES
  (1, '{"name": "Ada", "tier": "gold"}', 'new', 42.00),
  (2, '{"name": "Linus", "tier": "silver"}', 'new', 17.50);`);
}

async function source(stage: Stage): Promise<void> {
  stage.title('A source: the table becomes a queue');
  await stage.put('orders-src', {
    kind: 'source',
    connection: stage.connection,
    source: { tables: [{ table: 'public.orders', queue: 'orders' }] },
  });
  await stage.statusUntil('orders-src', ['phase', 'pointerLsn', 'messages'], ({ phase, messages }) => {
    return phase === 'streaming' && messages === 2;
  });
  stage.say('\nThe two rows that were there are in the queue, each in the partition named after its key:');
  const [ada, linus] = (await stage.pop(`${READER}&subscriptionMode=all`, 2, [
    'partition',
    'data',
  ])) as unknown as Message[];
  const { op, key, before, seq, after } = ada!.data;
  assert.deepEqual([ada!.partition, op, key, before, seq], ['1', 'r', { id: 1 }, null, 0]);
  assert.deepEqual(after!.customer, { name: 'Ada', tier: 'gold' });
  assert.equal(linus!.partition, '2');
  assert.ok(!('xid' in ada!.data));
}

async function changes(stage: Stage): Promise<void> {
  stage.title('Changes: one update, then an insert and a delete in one transaction');
  await stage.psql(`UPDATE orders SET status = 'paid' WHERE id = 1;
BEGIN;
INSERT INTO orders (id, customer, status, total) VALUES (3, '{"name": "Grace", "tier": "gold"}', 'new', 99.90);
DELETE FROM orders WHERE id = 2;
COMMIT;`);
  const fields = ['partition', 'transactionId', 'data'];
  const [update, remove, insert] = (await stage.pop(READER, 3, fields)) as unknown as Message[];
  assert.deepEqual([update!.data.op, remove!.data.op, insert!.data.op], ['u', 'd', 'c']);
  assert.equal(update!.data.after!.status, 'paid');
  assert.deepEqual([remove!.data.after, remove!.data.before, remove!.data.seq], [null, { id: 2 }, 1]);
  assert.deepEqual([insert!.data.after!.total, insert!.data.seq], [99.9, 0]);
  assert.deepEqual([insert!.data.lsn, insert!.data.xid], [remove!.data.lsn, remove!.data.xid]);
  assert.match(insert!.transactionId, /^pg:[0-9a-f]{8}:[0-9A-F]{16}:0$/);
  stage.say(
    '\nThe last two came from one transaction: the same lsn and xid, and they became visible together.',
  );
}

async function copy(stage: Stage): Promise<void> {
  stage.title('A sink in mode cdc: the events are applied to a second table');
  await stage.psql('CREATE TABLE orders_copy (LIKE orders INCLUDING ALL);');
  await stage.put('orders-copy', {
    kind: 'sink',
    connection: stage.connection,
    sink: { queue: 'orders', table: 'public.orders_copy', mode: 'cdc' },
  });
  await stage.psqlUntil('SELECT id, customer, status, total FROM orders_copy ORDER BY id;', [
    { id: '1', customer: '{"name": "Ada", "tier": "gold"}', status: 'paid', total: '42.00' },
    { id: '3', customer: '{"name": "Grace", "tier": "gold"}', status: 'new', total: '99.90' },
  ]);
  const [difference] = await stage.psql(
    'SELECT count(*) AS differences FROM ((TABLE orders EXCEPT TABLE orders_copy) UNION ALL (TABLE orders_copy EXCEPT TABLE orders)) AS d;',
  );
  assert.deepEqual(difference, { differences: '0' });
}

async function invoices(stage: Stage): Promise<void> {
  stage.title(
    'A sink in mode upsert: messages of your own become rows, and generated columns take them apart',
  );
  await stage.psql(`CREATE TABLE invoices (
  id            bigint PRIMARY KEY,
  customer      jsonb,
  lines         jsonb,
  total         numeric(12,2),
  customer_tier text GENERATED ALWAYS AS (customer->>'tier') STORED,
  city          text GENERATED ALWAYS AS (customer->'address'->>'city') STORED,
  queen_offset  bigint
);`);
  await stage.put('invoices-sink', {
    kind: 'sink',
    connection: stage.connection,
    sink: {
      queue: 'invoices',
      table: 'public.invoices',
      mode: 'upsert',
      metadata: { offset: 'queen_offset' },
    },
  });
  const first = {
    id: 7,
    customer: { name: 'Ada', tier: 'gold', address: { city: 'Turin' } },
    lines: [{ sku: 'A1', qty: 2 }],
    total: '12.50',
    note: 'no column, ignored',
  };
  const push = [first, { id: 7, total: 15 }].map((payload) => ({
    queue: 'invoices',
    partition: '7',
    payload,
  }));
  await stage.post('/api/v1/push', { items: push });
  await stage.psqlUntil(
    'SELECT id, customer, lines, total, customer_tier, city, queen_offset FROM invoices;',
    [
      {
        id: '7',
        customer: '{"name": "Ada", "tier": "gold", "address": {"city": "Turin"}}',
        lines: '[{"qty": 2, "sku": "A1"}]',
        total: '15.00',
        customer_tier: 'gold',
        city: 'Turin',
        queen_offset: '1',
      },
    ],
  );
}

async function accounts(stage: Stage): Promise<void> {
  stage.title('A sink in mode sql: a statement of your own, exactly once for each message');
  await stage.psql(`CREATE TABLE accounts (id bigint PRIMARY KEY, balance numeric NOT NULL);
INSERT INTO accounts VALUES (1, 100), (2, 100);`);
  await stage.put('payments', {
    kind: 'sink',
    connection: stage.connection,
    sink: {
      queue: 'payments',
      table: 'public.accounts',
      mode: 'sql',
      statement: 'UPDATE accounts SET balance = balance + $1::numeric WHERE id = $2::bigint',
      params: ['$.amount', '$.accountId'],
    },
  });
  const payments = [
    [1, -25.5],
    [2, 25.5],
    [1, 10],
  ].map(([accountId, amount]) => ({
    queue: 'payments',
    partition: String(accountId),
    payload: { accountId, amount },
  }));
  await stage.post('/api/v1/push', { items: payments });
  await stage.psqlUntil('SELECT id, balance FROM accounts ORDER BY id;', [
    { id: '1', balance: '84.5' },
    { id: '2', balance: '125.5' },
  ]);
}

if (import.meta.main) {
  const { values } = parseArgs({ options: { postgres: { type: 'string', default: '18' } } });
  const { postgres } = values;
  if (postgres !== '17' && postgres !== '18') throw new Error('--postgres is 17 or 18');
  const begun = performance.now();
  await tour({ major: postgres === '17' ? 17 : 18, print: (line) => console.log(line) });
  console.log(`${((performance.now() - begun) / 1000).toFixed(1)} s`);
}
