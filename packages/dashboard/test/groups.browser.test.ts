/** Consumer groups in the browser: found by their lag, moved, deleted. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBroker } from '../../../test/kit/broker.ts';
import { freshDatabase } from '../../../test/kit/postgres.ts';
import { open, useBrowser } from './browser.ts';
import { fitForAll, Wire } from './stage.ts';

useBrowser();

test('a group is found, moved on a queue and on a partition, and deleted', async (t) => {
  const broker = await startBroker({ database: await freshDatabase(t), alone: 'it is about the page' }, t);
  const wire = new Wire(broker.url);
  const ids = (count: number, name: string) => Array.from({ length: count }, (_, index) => `${name}${index}`);
  await wire.push('orders', 'p0', ids(1, 'p0-'));
  await wire.text('GET', '/api/v1/pop/queue/orders?consumerGroup=billing&subscriptionMode=all&autoAck=true');
  for (let part = 1; part < 60; part++) await wire.push('orders', `p${part}`, ids(1, `p${part}-`));
  await wire.push('orders', 'deep', ids(7, 'deep'));
  const { page, faults } = await open(t, broker.url);
  const tile = (name: string) => page.locator('.tile', { hasText: name }).locator('dd').first();

  await page.goto('/groups');
  await page.getByRole('link', { name: 'billing' }).waitFor();
  await page.getByRole('searchbox').fill('nothing');
  await page.getByText('No group is like that').waitFor();
  await page.getByRole('link', { name: 'Show all of them' }).click();
  await page.getByRole('link', { name: 'billing' }).click();
  await page.getByRole('heading', { name: 'billing on orders', level: 1 }).waitFor();
  await page.getByRole('rowheader', { name: 'deep' }).waitFor();
  assert.equal(
    await page.getByRole('rowheader').first().textContent(),
    'deep',
    'the furthest behind comes first',
  );
  assert.equal(await page.getByRole('rowheader').count(), 50, 'one page of them');
  await tile('Lag').filter({ hasText: /^66$/ }).waitFor();

  await page.getByRole('button', { name: 'Move on partition deep' }).click();
  await page.getByRole('heading', { name: 'Move billing' }).waitFor();
  await page.getByLabel('At offset').check();
  await page.getByRole('spinbutton', { name: 'Offset' }).fill('5');
  await page.getByText('It never gets 5 messages that wait for it now.').waitFor();
  await fitForAll(page);
  await page.getByRole('button', { name: 'Move the group' }).click();
  await page.getByText('Moved billing: it goes on with offset 5.').waitFor();
  await page.locator('.tile dd', { hasText: /^61$/ }).waitFor();

  const move = page.getByRole('button', { name: 'Move…', exact: true }).first();
  await move.click();
  await page.getByText('It never gets the 61 messages that are left now').waitFor();
  await page.getByRole('button', { name: 'Move the group' }).click();
  await page.getByText('Moved billing on 61 partitions of orders.').waitFor();
  await page.locator('.tile dd', { hasText: /^0$/ }).first().waitFor();
  await move.click();
  await page.getByLabel('At the oldest message that is there').check();
  await page.getByRole('button', { name: 'Move the group' }).click();
  await page.locator('.tile dd', { hasText: /^67$/ }).waitFor();
  await move.click();
  await page.getByLabel('Date and time, yours').locator('..').getByRole('radio').check();
  await page.getByLabel('Date and time, yours').fill('2999-01-01T00:00:00');
  await page.getByRole('button', { name: 'Move the group' }).click();
  await page.locator('.tile dd', { hasText: /^0$/ }).first().waitFor();

  await page.getByRole('link', { name: 'billing', exact: true }).click();
  await page.getByRole('rowheader', { name: 'orders' }).waitFor();
  await page.getByRole('button', { name: 'Delete the group…' }).click();
  await page.getByLabel('Type billing to go on').fill('billing');
  await page.getByRole('button', { name: 'Delete the group', exact: true }).click();
  await page.getByText('Deleted billing: it was on 61 partitions.').waitFor();
  await page.getByText('There are no consumer groups yet').waitFor();
  assert.deepEqual(await wire.ask('GET', '/api/v1/consumer-groups'), []);
  assert.deepEqual(faults, []);
});
