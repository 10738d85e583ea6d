/** One broker for all tests of a file, with something in it to look at. */
// First, so that its hook comes before that of the kit.
import '../../../test/kit/end.ts';

import { startBroker } from '../../../test/kit/broker.ts';
import { file } from '../../../test/kit/end.ts';
import { freshDatabase } from '../../../test/kit/postgres.ts';
import { Wire } from './stage.ts';

export interface Scene {
  readonly url: string;
  /** A call to the broker. Rejects with its refusal. */
  ask<T>(method: string, path: string, body?: unknown): Promise<T>;
}

interface Popped {
  messages: { transactionId: string; partitionId: string; leaseId: string }[];
}

/** What is in it. */
const ORDERS = 'orders';
export const CUSTOMERS = 60;
/** The payload of one message, which JSON.parse could not give back. */
export const EXACT =
  '{"b":1,"10":2,"2":12345678901234567890.123456789012345,"b":[true,null,"\\u00e9\\n"],"c":{}}';
export const EXACT_ID = 'order/exact?';
export const DEAD_ID = 'order-07-0';

const customer = (n: number) => `customer-${String(n).padStart(2, '0')}`;

let shared: Promise<Scene> | undefined;

export function scene(): Promise<Scene> {
  shared ??= open();
  return shared;
}

async function open(): Promise<Scene> {
  const database = await freshDatabase(file);
  const { url } = await startBroker({ database, alone: 'it is about the page' }, file);
  const wire = new Wire(url);
  const ask: Scene['ask'] = (method, path, body) => wire.ask(method, path, body);
  await fill(ask);
  return { url, ask };
}

/** Two orders for each customer; billing has worked off the first eight and failed once; nobody looks at the rest. */
async function fill(ask: Scene['ask']): Promise<void> {
  await ask('POST', '/api/v1/configure', {
    queue: ORDERS,
    options: { leaseTime: 60, retryLimit: 1, namespace: 'shop' },
  });
  const items = Array.from({ length: 2 * CUSTOMERS }, (_, n) => {
    const partition = customer(n % CUSTOMERS);
    const round = Math.floor(n / CUSTOMERS);
    const transactionId = `order-${partition.slice(-2)}-${round}`;
    const payload = { customer: partition, total: 12.5 + n, lines: [{ sku: 'A-1', quantity: round + 1 }] };
    return { queue: ORDERS, partition, transactionId, payload };
  });
  await ask('POST', '/api/v1/push', { items });
  for (const queue of ['invoices', 'audit', 'payments.settlement']) {
    await ask('POST', '/api/v1/push', {
      items: [{ queue, transactionId: `${queue}-1`, payload: { queue } }],
    });
  }
  for (let n = 0; n < 8; n++) {
    const path = `/api/v1/pop/queue/${ORDERS}/partition/${customer(n)}`;
    const { messages } = await ask<Popped>('GET', `${path}?consumerGroup=billing&subscriptionMode=all`);
    await ask('POST', '/api/v1/ack/batch', {
      consumerGroup: 'billing',
      acknowledgments: messages.map(({ transactionId, partitionId, leaseId }) => {
        const dead = transactionId === DEAD_ID;
        const outcome = dead
          ? { status: 'dlq', error: 'card declined by the issuer' }
          : { status: 'completed' };
        return { transactionId, partitionId, leaseId, ...outcome };
      }),
    });
  }
  const item = `{"queue":"${ORDERS}","partition":"${customer(0)}","transactionId":"${EXACT_ID}","payload":${EXACT}}`;
  await ask('POST', '/api/v1/push', `{"items":[${item}]}`);
  await ask('POST', '/api/v1/stats/refresh', {});
  await beside(ask);
}

/** Keys, timers, and a connector that waits to be let go. */
async function beside(ask: Scene['ask']): Promise<void> {
  const numbered = (count: number, name: string) =>
    Array.from({ length: count }, (_, n) => `${name}-${String(n).padStart(2, '0')}`);
  await ask('POST', '/api/v1/kv', {
    operations: numbered(60, 'session').map((key, n) => ({
      op: 'put',
      ns: 'sessions',
      key,
      value: { customer: customer(n), cart: ['book', 'lamp'] },
      ttlSeconds: 86_400,
    })),
  });
  await ask('POST', '/api/v1/timers', {
    operations: numbered(12, 'remind').map((timerKey) => ({
      op: 'schedule',
      queue: ORDERS,
      timerKey,
      delayMs: 7 * 86_400_000,
      txn: `${timerKey}-1`,
      payload: btoa(`{"remind":"${timerKey}"}`),
    })),
  });
  await ask('PUT', '/api/v1/connectors/orders-copy', {
    kind: 'sink',
    enabled: false,
    connection: { host: 'copy.example', database: 'shop', user: 'queen' },
    sink: { queue: ORDERS, table: 'public.orders_copy', mode: 'append' },
  });
}

/** Where a message is. */
export async function messagePath({ ask }: Scene, transactionId: string): Promise<string> {
  const query = new URLSearchParams({ transactionId });
  const { messages } = await ask<{ messages: { partitionId: string }[] }>(
    'GET',
    `/api/v1/messages/find?${query}`,
  );
  return `/messages/${messages[0]!.partitionId}/${encodeURIComponent(transactionId)}`;
}
