/** What the guide shows, to the letter. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { SinkRig, sharedServer } from './rig.ts';

const server = sharedServer({ before, after });

const ORDERS = `CREATE TABLE orders_copy (
  id         bigint PRIMARY KEY,
  customer   jsonb NOT NULL,
  status     text NOT NULL,
  total      numeric(12,2) NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
)`;

const EVENTS = [
  [
    '1',
    '{"op":"r","table":"public.orders","key":{"id":1},"after":{"id":1,"customer":{"name":"Ada","tier":"gold"},"status":"new","total":42.00,"created_at":"2026-10-03T06:14:39.365472+00:00"},"before":null,"lsn":"0/1526990","ts":"2026-10-03T06:14:43.797508Z","seq":0}',
  ],
  [
    '2',
    '{"op":"r","table":"public.orders","key":{"id":2},"after":{"id":2,"customer":{"name":"Linus","tier":"silver"},"status":"new","total":17.50,"created_at":"2026-10-03T06:14:39.365472+00:00"},"before":null,"lsn":"0/1526990","ts":"2026-10-03T06:14:43.797508Z","seq":1}',
  ],
  [
    '1',
    '{"op":"u","table":"public.orders","key":{"id":1},"after":{"id":1,"customer":{"name":"Ada","tier":"gold"},"status":"paid","total":42.00,"created_at":"2026-10-03T06:14:39.365472+00:00"},"before":null,"lsn":"0/1570D68","xid":753,"ts":"2026-10-03T06:15:03.583036Z","seq":0}',
  ],
  [
    '2',
    '{"op":"d","table":"public.orders","key":{"id":2},"after":null,"before":{"id":2},"lsn":"0/1570EA0","xid":754,"ts":"2026-10-03T06:15:03.591716Z","seq":1}',
  ],
  [
    '3',
    '{"op":"c","table":"public.orders","key":{"id":3},"after":{"id":3,"customer":{"name":"Grace","tier":"gold"},"status":"new","total":99.90,"created_at":"2026-10-03T06:15:03.591416+00:00"},"before":null,"lsn":"0/1570EA0","xid":754,"ts":"2026-10-03T06:15:03.591716Z","seq":0}',
  ],
] as const;

suite('the examples of the guide', () => {
  test('orders to orders_copy', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(ORDERS);
    await rig.push(EVENTS, 'orders');
    const sink = rig.start(
      { queue: 'orders', table: 'public.orders_copy', mode: 'cdc' },
      { name: 'orders-copy' },
    );
    await rig.drained('orders', 'pg-orders-copy');
    assert.deepEqual(
      await rig.sql(
        'SELECT id::text, customer::text, status, total::text, created_at::text FROM orders_copy ORDER BY id',
      ),
      [
        {
          id: '1',
          customer: '{"name": "Ada", "tier": "gold"}',
          status: 'paid',
          total: '42.00',
          created_at: '2026-10-03 06:14:39.365472+00',
        },
        {
          id: '3',
          customer: '{"name": "Grace", "tier": "gold"}',
          status: 'new',
          total: '99.90',
          created_at: '2026-10-03 06:15:03.591416+00',
        },
      ],
    );
    assert.equal(sink.status.of('applied'), 5);
    assert.equal(sink.status.phase, 'running');
  });

  test('invoices: generated columns, metadata, a message that names a part', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(`CREATE TABLE invoices (
      id            bigint PRIMARY KEY,
      customer      jsonb,
      lines         jsonb,
      total         numeric(12,2),
      customer_tier text GENERATED ALWAYS AS (customer->>'tier') STORED,
      city          text GENERATED ALWAYS AS (customer->'address'->>'city') STORED,
      queen_offset  bigint
    )`);
    await rig.push(
      [
        [
          '7',
          '{"id":7,"customer":{"name":"Ada","tier":"gold","address":{"city":"Turin"}},"lines":[{"sku":"A1","qty":2}],"total":"12.50","note":"no column, ignored"}',
        ],
        ['7', '{"id":7,"total":15}'],
      ],
      'invoices',
    );
    rig.start(
      { queue: 'invoices', table: 'public.invoices', mode: 'upsert', metadata: { offset: 'queen_offset' } },
      { name: 'invoices-sink' },
    );
    await rig.drained('invoices', 'pg-invoices-sink');
    assert.deepEqual(
      await rig.sql(
        'SELECT id::text, customer::text, lines::text, total::text, customer_tier, city, queen_offset::text FROM invoices',
      ),
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
  });

  test('accounts: a statement that is not idempotent', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(`CREATE TABLE accounts (id bigint PRIMARY KEY, balance numeric NOT NULL);
      INSERT INTO accounts VALUES (1, 0), (2, 100)`);
    await rig.push(
      [
        ['a', '{"accountId":1,"amount":10.25}'],
        ['b', '{"accountId":"2","amount":"-0.75"}'],
        ['a', '{"accountId":1,"amount":1e2}'],
        ['a', '{"accountId":99,"amount":1}'],
      ],
      'payments',
    );
    rig.start(
      {
        queue: 'payments',
        table: 'public.accounts',
        mode: 'sql',
        statement: 'UPDATE accounts SET balance = balance + $1::numeric WHERE id = $2::bigint',
        params: ['$.amount', '$.accountId'],
      },
      { name: 'payments' },
    );
    await rig.drained('payments', 'pg-payments');
    assert.deepEqual(await rig.sql('SELECT id::text, balance::text FROM accounts ORDER BY id'), [
      { id: '1', balance: '110.25' },
      { id: '2', balance: '99.25' },
    ]);
    assert.deepEqual(await rig.letters('payments'), []);
  });
});
