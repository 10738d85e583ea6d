/** Connectors in the browser: written, seen at work, paused, taken down. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBroker } from '../../../test/kit/broker.ts';
import { freshDatabase } from '../../../test/kit/postgres.ts';
import { until } from '../../../test/kit/until.ts';
import { Upstream } from '../../../test/kit/upstream.ts';
import { open, useBrowser } from './browser.ts';
import { fitForAll, Wire } from './stage.ts';

useBrowser();

test('a source is created, refused, seen streaming, paused and deleted with its slot; a sink says its error', async (t) => {
  const upstream = await Upstream.start({ major: 18 }, t);
  const database = await upstream.database(t);
  await database.sql('CREATE TABLE orders (id int PRIMARY KEY, total numeric)');
  await database.sql('INSERT INTO orders VALUES (1, 12.50)');
  const broker = await startBroker({ database: await freshDatabase(t), alone: 'it is about the page' }, t);
  const wire = new Wire(broker.url);
  const { page, faults } = await open(t, broker.url);
  page.setDefaultTimeout(60_000);
  const connection = {
    host: upstream.host,
    port: upstream.port,
    database: database.name,
    user: upstream.user,
  };
  const document = (table: string) =>
    JSON.stringify({ kind: 'source', connection, source: { tables: [{ table, queue: 'orders' }] } });

  await page.goto('/connectors');
  await page.getByText('There are no connectors yet').waitFor();
  await page.getByRole('link', { name: 'New connector' }).click();
  await page.getByRole('textbox', { name: 'Name' }).fill('orders-src');
  const text = page.getByRole('textbox', { name: 'Document (JSON)' });
  await text.fill(document('public.orders; drop'));
  const create = page.getByRole('button', { name: 'Create' });
  await create.click();
  await page
    .getByRole('alert')
    .filter({ hasText: /^source\.tables\[0\]\.table/ })
    .waitFor();
  await fitForAll(page);
  await text.fill(document('public.orders'));
  await create.click();
  await page.getByRole('heading', { name: 'orders-src', level: 1 }).waitFor();
  await page.getByText('Streaming', { exact: true }).waitFor();
  await page.getByText('Changes come into the queues as they are committed.').waitFor();
  await database.sql('INSERT INTO orders VALUES (2, 99999999999999999999.10)');
  await until('the change is in the queue', async () => {
    const events = await wire.text('GET', '/api/v1/messages?queue=orders');
    return events.includes('"total":99999999999999999999.10') && events.includes('"op":"r"');
  });
  await page
    .locator('.tile', { hasText: 'Messages' })
    .filter({ hasText: /Messages2/ })
    .waitFor();
  await page.locator('.plot canvas').waitFor();
  await fitForAll(page);

  await page.getByRole('button', { name: 'Pause…' }).click();
  await page.getByText('takes room on the disk of the database').first().waitFor();
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await page.getByText('Paused', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Edit' }).click();
  await page.getByRole('heading', { name: 'Document of orders-src' }).waitFor();
  const shown = await text.inputValue();
  assert.match(shown, /"enabled": false/);
  await text.fill(
    shown.replace('"enabled": false', '"enabled": true').replace(/"lingerMs": \d+/, '"lingerMs": 7'),
  );
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('Streaming', { exact: true }).waitFor();
  await page.getByRole('region', { name: 'document, as JSON' }).getByText('"lingerMs"').waitFor();

  await wire.ask('PUT', '/api/v1/connectors/ledger', {
    kind: 'sink',
    connection,
    sink: { queue: 'orders', table: 'public.ledger', mode: 'append' },
  });
  await page.getByRole('link', { name: 'Connectors' }).first().click();
  await page.getByRole('cell', { name: 'table_missing' }).waitFor();
  await page.getByRole('rowheader', { name: 'orders-src' }).waitFor();
  await fitForAll(page);
  await page.getByRole('link', { name: 'ledger' }).click();
  await page.getByRole('alert').filter({ hasText: 'table_missing' }).waitFor();
  await database.sql('CREATE TABLE ledger (op text)');
  await fitForAll(page);

  await page.goto('/connectors/orders-src');
  await page.getByRole('button', { name: 'Delete…' }).click();
  await page.getByRole('radio', { name: 'Drop it' }).waitFor();
  await page.getByRole('textbox', { name: /^Type/ }).fill('orders-src');
  await fitForAll(page);
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByText('There is no such connector').waitFor();
  assert.deepEqual(await database.sql('SELECT slot_name FROM pg_replication_slots'), []);
  assert.deepEqual(
    faults.filter((fault) => !/404|400/.test(fault)),
    [],
  );
});
