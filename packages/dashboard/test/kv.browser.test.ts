/** Keys and values in the browser: created, read to the last digit, edited against somebody else, deleted. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBroker } from '../../../test/kit/broker.ts';
import { freshDatabase } from '../../../test/kit/postgres.ts';
import { open, useBrowser } from './browser.ts';
import { fitForAll, Wire } from './stage.ts';

useBrowser();

const BIG = '90071992547409931234.50';

test('an entry is created, edited over a conflict, and deleted', async (t) => {
  const broker = await startBroker({ database: await freshDatabase(t), alone: 'it is about the page' }, t);
  const wire = new Wire(broker.url);
  const put = (value: string) =>
    wire.text(
      'POST',
      '/api/v1/kv',
      `{"operations":[{"op":"put","ns":"billing","key":"../a b","value":${value},"forever":true}]}`,
    );
  const stored = () => wire.text('POST', '/api/v1/resources/kv/list', { namespace: 'billing' });
  const { page, faults } = await open(t, broker.url);
  await page.goto('/kv');
  await page.getByText('There are no entries yet').waitFor();
  await page.getByRole('button', { name: 'New entry…' }).click();
  await page.getByRole('textbox', { name: 'Namespace' }).fill('billing');
  await page.getByRole('textbox', { name: 'Key' }).fill('../a b');
  const value = page.getByLabel('Value (JSON)');
  const create = page.getByRole('button', { name: 'Create', exact: true });
  await value.fill('{"n":');
  await create.click();
  assert.equal(await value.getAttribute('aria-invalid'), 'true');
  await fitForAll(page);
  await value.fill(`{"n":${BIG}}`);
  await create.click();
  await page.getByRole('heading', { name: '../a b', level: 1 }).waitFor();
  assert.equal(
    await page.getByRole('region', { name: 'value, as JSON' }).textContent(),
    `{\n  "n": ${BIG}\n}`,
  );
  assert.ok((await stored()).includes(`"value":{"n":${BIG}}`));
  await fitForAll(page);

  await page.getByRole('button', { name: 'Edit…' }).click();
  await put(`{"theirs":${BIG}}`);
  await value.fill('{"mine":1}');
  await page.getByLabel('Expires after').check();
  await page.getByRole('spinbutton', { name: 'Seconds' }).fill('600');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Nothing was written.').waitFor();
  assert.match(
    (await page.getByRole('region', { name: 'value that is there, as JSON' }).textContent())!,
    new RegExp(BIG),
  );
  assert.ok((await stored()).includes('theirs'));
  await fitForAll(page);
  await page.getByRole('button', { name: /^Write mine over version/ }).click();
  await page.getByText(/^Saved version/).waitFor();
  await page.getByText('"mine"').waitFor();
  assert.match(await stored(), /"mine":\s*1.*"expiresAt":"2/);

  await page.getByRole('link', { name: 'billing' }).click();
  await page.getByRole('rowheader', { name: '../a b' }).waitFor();
  await page.getByLabel('Key begins with').fill('nothing');
  await page.getByText('No key begins like that').waitFor();
  await page.getByRole('link', { name: 'Show all of them' }).click();
  await page.getByRole('link', { name: '../a b' }).click();
  await page.getByRole('button', { name: 'Delete…' }).click();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByText('Nothing is in this namespace').waitFor();
  assert.deepEqual(faults, []);
});

test('pages of many keys, forward and back, also by the browser', async (t) => {
  const broker = await startBroker({ database: await freshDatabase(t), alone: 'it is about the page' }, t);
  const wire = new Wire(broker.url);
  const operations = Array.from({ length: 120 }, (_, index) => ({
    op: 'put',
    ns: 'many',
    key: `k${String(index).padStart(3, '0')}`,
    value: index,
    forever: true,
  }));
  await wire.ask('POST', '/api/v1/kv', { operations });
  const { page } = await open(t, broker.url);
  await page.goto('/kv/many?prefix=k');
  const row = (key: string) => page.getByRole('rowheader', { name: key });
  await row('k000').waitFor();
  await page.getByRole('button', { name: 'Next' }).click();
  await row('k050').waitFor();
  await page.getByRole('button', { name: 'Next' }).click();
  await row('k119').waitFor();
  await page.getByText('Page 3').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Next' }).getAttribute('aria-disabled'), 'true');
  await page.goBack();
  await row('k050').waitFor();
  await page.getByText('Page 2').waitFor();
  await page.getByRole('button', { name: 'Previous' }).click();
  await row('k000').waitFor();
  await page.getByText('Page 1').waitFor();
});
