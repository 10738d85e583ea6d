/** Queues, partitions and messages: looked for, changed, replayed, deleted. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../../../test/kit/until.ts';
import { open, useBrowser } from './browser.ts';
import { CUSTOMERS, DEAD_ID, EXACT, EXACT_ID, messagePath, scene } from './scene.ts';

useBrowser();

test('queues are searched and sorted by the broker, and the address says how', async (t) => {
  const { url } = await scene();
  const { page } = await open(t, url);
  await page.goto('/queues');
  const names = page.locator('tbody').getByRole('rowheader');
  await page.getByRole('link', { name: 'audit' }).waitFor();
  assert.deepEqual(await names.allTextContents(), ['audit', 'invoices', 'orders', 'payments.settlement']);
  await page.getByRole('searchbox', { name: 'Search by name' }).fill('MENT');
  await page.waitForURL('**/queues?search=MENT');
  await page.getByText('1 queue', { exact: true }).waitFor();
  assert.deepEqual(await names.allTextContents(), ['payments.settlement']);
  await page.getByRole('searchbox').fill('');
  await page.getByText('4 queues').waitFor();
  await page.getByRole('button', { name: 'Pending' }).click();
  await page.waitForURL('**/queues?sort=pending&order=desc');
  await page.locator('tbody tr').first().getByRole('link', { name: 'orders' }).waitFor();
  await page.reload();
  await page.locator('tbody tr').first().getByRole('link', { name: 'orders' }).waitFor();
});

test('partitions come in pages, are searched, and the largest backlog comes first when asked', async (t) => {
  const { url } = await scene();
  const { page } = await open(t, url);
  await page.goto('/queues/orders');
  await page.getByText(`1 to 50 of ${CUSTOMERS} partitions`).waitFor();
  assert.equal(await page.locator('tbody tr').count(), 50);
  await page.getByRole('button', { name: 'Next' }).click();
  await page.getByText(`51 to ${CUSTOMERS} of`).waitFor();
  await page.getByRole('link', { name: 'customer-59' }).waitFor();
  await page.getByRole('button', { name: 'First' }).click();
  await page.getByRole('button', { name: 'Pending' }).click();
  await page.locator('tbody tr').first().getByRole('link', { name: 'customer-08' }).waitFor();
  await page.getByRole('searchbox').fill('-07');
  await page.getByText('1 partition', { exact: true }).waitFor();
  const cells = await page.locator('tbody tr td').allTextContents();
  assert.deepEqual(cells.slice(0, 5), ['customer-07', '1', '0', '1', '2']);
});

test('a message is found by its id, and its payload is what was sent, digit for digit', async (t) => {
  const here = await scene();
  const { page } = await open(t, here.url);
  await page.goto('/messages');
  await page.getByRole('textbox', { name: 'Transaction id' }).fill('no such id');
  await page.getByRole('button', { name: 'Find' }).click();
  await page.getByText('No message has this id').waitFor();
  await page.getByRole('textbox', { name: 'Transaction id' }).fill(EXACT_ID);
  await page.getByRole('button', { name: 'Find' }).click();
  await page.waitForURL(here.url + (await messagePath(here, EXACT_ID)));
  const payload = page.getByRole('region', { name: 'payload, as JSON' });
  await payload.waitFor();
  const tokens = (text: string | null) => text!.replaceAll(/\s/g, '');
  assert.equal(tokens(await payload.textContent()), tokens(EXACT));
  await page.getByRole('button', { name: 'As sent' }).click();
  assert.equal(await payload.textContent(), EXACT);
});

test('a message is found by its offset, and one can walk from there', async (t) => {
  const { url } = await scene();
  const { page } = await open(t, url);
  await page.goto('/messages');
  const form = page.getByRole('region', { name: 'Find by offset' });
  await form.getByLabel('Queue').fill('orders');
  await form.getByLabel('Partition').fill('customer-01');
  await form.getByLabel('Offset').fill('1');
  await form.getByRole('button', { name: 'Go' }).click();
  await page.waitForURL('**/queues/orders/partitions/customer-01?from=1&at=1');
  await page.getByRole('region', { name: 'payload, as JSON' }).getByText('73.5').waitFor();
  await page.getByRole('button', { name: 'Close the message at offset 1' }).click();
  await page.getByRole('region', { name: 'payload, as JSON' }).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Older' }).click();
  await page.getByRole('link', { name: 'order-01-0' }).waitFor();
  await page.goto('/queues/orders/partitions/customer-01?from=7');
  await page.getByText('There is nothing from that offset on').waitFor();
});

test('messages are narrowed by queue, partition and status', async (t) => {
  const { url } = await scene();
  const { page } = await open(t, url);
  await page.goto('/messages?queue=orders&partition=customer-07');
  await page.getByRole('link', { name: DEAD_ID }).waitFor();
  const list = page.getByRole('region', { name: 'Newest messages' });
  await list.getByLabel('Status').selectOption('pending');
  await page.waitForURL('**status=pending');
  await list.getByRole('link', { name: DEAD_ID }).waitFor({ state: 'detached' });
  await list.getByRole('link', { name: 'order-07-1' }).waitFor();
});

test('a dead letter is replayed from its page', async (t) => {
  const here = await scene();
  const { page } = await open(t, here.url);
  await page.goto(await messagePath(here, DEAD_ID));
  await page.getByText('card declined by the issuer').waitFor();
  await page.getByRole('button', { name: 'Replay…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Replay this message?' });
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'Replay…');
  await page.getByRole('button', { name: 'Replay…' }).click();
  await dialog.getByRole('button', { name: 'Replay', exact: true }).click();
  await page.getByRole('status').getByText('at the end of its partition').waitFor();
  await page.getByRole('button', { name: 'Replay…' }).waitFor({ state: 'detached' });
  const partition = await here.ask<{ messages: { total: number; deadLetter: number } }>(
    'GET',
    '/api/v1/status/queues/orders/partitions/customer-07',
  );
  assert.deepEqual([partition.messages.total, partition.messages.deadLetter], [3, 0]);
});

test('settings are changed, and a refusal is shown where it belongs', async (t) => {
  const here = await scene();
  const { page } = await open(t, here.url);
  await page.goto('/queues/invoices/settings');
  await page.getByLabel('Lease, s').fill('99999999999');
  await page.getByRole('button', { name: 'Save 1 change' }).click();
  await page.getByRole('alert').getByText('leaseTime').waitFor();
  await page.getByLabel('Lease, s').fill('77');
  await page.getByLabel('Delete old messages').check();
  await page.getByRole('button', { name: 'Save 2 changes' }).click();
  await page.getByRole('status').getByText('The settings of invoices are saved.').waitFor();
  const { queue } = await here.ask<{ queue: { options: Record<string, unknown> } }>(
    'GET',
    '/api/v1/status/queues/invoices?limit=1',
  );
  assert.deepEqual([queue.options.leaseTime, queue.options.retentionEnabled], [77, true]);
});

test('a queue is deleted by who has typed its name', async (t) => {
  const here = await scene();
  await here.ask('POST', '/api/v1/configure', { queue: 'doomed', options: {} });
  const { page } = await open(t, here.url);
  await page.goto('/queues/doomed/settings');
  await page.getByRole('button', { name: 'Delete this queue…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Delete doomed?' });
  const button = dialog.getByRole('button', { name: 'Delete the queue' });
  assert.ok(await button.isDisabled());
  await dialog.getByRole('textbox').fill('doomed');
  await button.click();
  await page.waitForURL('**/queues');
  await page.getByRole('link', { name: 'audit' }).waitFor();
  await page.getByRole('link', { name: 'doomed' }).waitFor({ state: 'detached' });
});

test('pops are paused and go on, for all brokers', async (t) => {
  const here = await scene();
  const { page } = await open(t, here.url);
  const paused = async () => {
    const answer = await here.ask<{ popMaintenanceMode: boolean }>('GET', '/api/v1/system/maintenance/pop');
    return answer.popMaintenanceMode;
  };
  await page.goto('/brokers');
  await page.getByRole('button', { name: 'Pops: pause' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click();
  await page.getByText('Paused: consumers get nothing').waitFor();
  assert.equal(await paused(), true);
  await page.goto('/');
  await page.getByText('Pops are paused: consumers get nothing.').waitFor();
  await page.goto('/brokers');
  await page.getByRole('button', { name: 'Pops: go on' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Go on' }).click();
  await page.getByText('Delivered').waitFor();
  assert.equal(await paused(), false);
});

test('a chart says in words and as a table what it draws, minute by minute in the last hour', async (t) => {
  const { url } = await scene();
  const { page } = await open(t, url);
  await page.goto('/');
  const chart = page.getByRole('figure', { name: /^Throughput\. Stored: now .*Delivered: now / });
  await chart.getByText('Values').click();
  const rows = chart.getByRole('table').locator('tbody tr');
  await rows.first().waitFor();
  const minutes = await rows.count();
  assert.ok(minutes >= 60 && minutes <= 61, `${minutes} bars`);
  await page.getByLabel('Range of time').selectOption('7d');
  await page.waitForURL('**/?range=7d');
  await until('bars of an hour', async () => [168, 169].includes(await rows.count()));
});
