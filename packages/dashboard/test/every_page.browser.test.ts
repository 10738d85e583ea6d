/** What holds for every page: add a new one to the list. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open, useBrowser } from './browser.ts';
import { DEAD_ID, EXACT_ID, messagePath, scene } from './scene.ts';
import { fitForAll, settled } from './stage.ts';

useBrowser();

/** Its address, and a text that is there once its data is. */
const PAGES: readonly (readonly [string, string])[] = [
  ['/', 'Busiest queues'],
  ['/queues', 'payments.settlement'],
  ['/queues/orders', 'customer-07'],
  ['/queues/orders/settings', 'Delete this queue…'],
  ['/queues/orders/partitions/customer-00?at=2', 'billing'],
  ['/messages', EXACT_ID],
  [`/messages/${EXACT_ID}`, '12345678901234567890.123456789012345'],
  ['/groups', 'billing'],
  ['/groups/billing', 'orders'],
  ['/groups/billing/queues/orders', 'customer-05'],
  ['/dlq', DEAD_ID],
  ['/dlq?queue=orders', 'What went wrong'],
  ['/timers', 'orders'],
  ['/timers/orders', 'remind-11'],
  ['/timers/orders/timer?key=remind-03', 'remind-03-1'],
  ['/kv', 'sessions'],
  ['/kv/sessions', 'session-49'],
  ['/kv/sessions/entry?key=session-07', '"customer-07"'],
  ['/connectors', 'orders-copy'],
  ['/connectors/orders-copy', 'It is paused. Messages wait in the queue.'],
  ['/connectors/orders-copy/document', 'Apply'],
  ['/connectors/-/new', 'Create'],
  ['/brokers', 'Operations'],
  ['/postgres', 'log_segments'],
  ['/nothing/here', 'Nothing has this address'],
];

test('every page is accessible in both themes, fits a phone, and logs nothing', async (t) => {
  const here = await scene();
  const { page, faults } = await open(t, here.url);
  for (const [path, text] of PAGES) {
    await t.test(path, async () => {
      const exact = path === `/messages/${EXACT_ID}`;
      await page.goto(exact ? await messagePath(here, EXACT_ID) : path);
      await page.getByText(text, { exact: true }).first().waitFor();
      await settled(page);
      await fitForAll(page);
      assert.deepEqual(faults, []);
    });
  }
});
