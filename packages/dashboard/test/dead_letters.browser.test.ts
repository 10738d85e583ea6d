/** Dead letters in the browser: found, read, pushed again, removed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBroker } from '../../../test/kit/broker.ts';
import { freshDatabase } from '../../../test/kit/postgres.ts';
import { open, useBrowser } from './browser.ts';
import { fitForAll, Wire } from './stage.ts';

useBrowser();

const DIGITS = '123456789012345678901234567890.10';

test('a dead letter is read, replayed into another queue, and is there', async (t) => {
  const broker = await startBroker({ database: await freshDatabase(t), alone: 'it is about the page' }, t);
  const wire = new Wire(broker.url);
  await wire.push('orders', 'a', ['charge-1', 'charge-2'], `{"amount":${DIGITS},"amount":1}`);
  await wire.push('mails', 'b', ['mail-1']);
  await wire.bury('orders', 'billing', 'card declined');
  await wire.bury('orders', 'billing', 'card declined');
  await wire.bury('mails', 'mailer', 'no such mailbox');
  const { page, faults } = await open(t, broker.url);

  await page.goto('/dlq');
  await page.getByRole('rowheader', { name: 'mail-1' }).waitFor();
  await page.getByRole('combobox', { name: 'Queue' }).fill('orders');
  await page.getByRole('rowheader', { name: 'mail-1' }).waitFor({ state: 'detached' });
  assert.match(page.url(), /queue=orders/);
  await page.getByRole('heading', { name: 'What went wrong' }).waitFor();
  await page.getByRole('cell', { name: '100%' }).waitFor();

  await page.getByRole('link', { name: 'charge-1' }).click();
  await page.getByRole('heading', { name: 'charge-1', level: 1 }).waitFor();
  const payload = await page.getByRole('region', { name: 'payload, as JSON' }).textContent();
  assert.equal(payload, `{\n  "amount": ${DIGITS},\n  "amount": 1\n}`);
  assert.equal(await page.getByRole('group', { name: 'error' }).textContent(), 'card declined');
  await fitForAll(page);
  await page.getByRole('button', { name: 'Replay…' }).click();
  await page.getByLabel('Somewhere else').check();
  await page.getByLabel('Queue', { exact: true }).fill('orders-again');
  await fitForAll(page);
  await page.getByRole('button', { name: 'Replay', exact: true }).click();
  await page.getByText('Pushed into orders-again, partition a, at offset 0.').waitFor();
  await page.getByRole('heading', { name: 'Dead letters', level: 1 }).waitFor();
  const { messages } = await wire.ask<{ messages: { transactionId: string }[] }>(
    'GET',
    '/api/v1/messages?queue=orders-again',
  );
  assert.equal(messages.length, 1);
  await page.getByRole('rowheader', { name: 'charge-2' }).waitFor();
  await page.getByRole('rowheader', { name: 'charge-1' }).waitFor({ state: 'detached' });
  assert.equal(await page.getByRole('rowheader').filter({ hasText: 'charge' }).count(), 1);
  assert.deepEqual(faults, []);
});

test('many at once: the oldest first, those that cannot be replayed are named, the rest is deleted by name', async (t) => {
  const broker = await startBroker({ database: await freshDatabase(t), alone: 'it is about the page' }, t);
  const wire = new Wire(broker.url);
  const ids = Array.from({ length: 120 }, (_, index) => `m${index}`);
  await wire.push('orders', 'a', ids);
  for (const _ of ids) await wire.bury('orders', 'billing', 'broken');
  // What a replay of the first one would be called is in the queue already.
  const { messages } = await wire.ask<{ messages: { id: string; transactionId: string }[] }>(
    'GET',
    '/api/v1/dlq?limit=1000&data=false',
  );
  const oldest = messages.at(-1)!;
  assert.equal(oldest.transactionId, 'm0');
  await wire.push('orders', 'a', [`dlq:${oldest.id}`]);
  const { page } = await open(t, broker.url);
  await page.goto('/dlq?queue=orders');
  await page.getByRole('button', { name: 'Replay all…' }).click();
  await page.getByRole('heading', { name: 'Replay 120 dead letters' }).waitFor();
  await page.getByRole('button', { name: 'Replay', exact: true }).click();
  await page.getByText('119 of 120 pushed again, 1 kept').waitFor({ timeout: 60_000 });
  await page.getByText('1: The destination holds it already').waitFor();
  await fitForAll(page);
  await page.getByRole('button', { name: 'Close', exact: true }).click();
  const replayed = await wire.ask<{ entries: { records: { transactionId: string }[] }[] }>(
    'POST',
    '/api/v1/fetch',
    {
      entries: [{ queue: 'orders', partition: 'a', offset: 121 }],
    },
  );
  const order = messages
    .toReversed()
    .slice(1)
    .map(({ id }) => `dlq:${id}`);
  assert.deepEqual(
    replayed.entries[0]!.records.map(({ transactionId }) => transactionId),
    order,
  );

  await page.getByText('1 dead letter', { exact: true }).first().waitFor();
  await page.getByRole('button', { name: 'Delete all…' }).click();
  const go = page.getByRole('button', { name: 'Delete all', exact: true });
  assert.equal(await go.isDisabled(), true);
  await page.getByLabel('Type orders to go on').fill('orders');
  await go.click();
  await page.getByText('Deleted 1 dead letter of orders.').waitFor();
  await page.getByText('No dead letter is like that').waitFor();
});
