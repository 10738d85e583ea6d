import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open, useBrowser } from './browser.ts';
import { EXACT_ID, messagePath, scene } from './scene.ts';
import { difference, resembles } from './screenshots.ts';
import { settled } from './stage.ts';

useBrowser();

const DESK = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };

/** Name, address, window, theme, and a text that is there once the page is. */
const PICTURES = [
  ['overview-light', '/', DESK, 'light', 'Busiest queues'],
  ['overview-dark', '/', DESK, 'dark', 'Busiest queues'],
  ['overview-phone', '/', PHONE, 'light', 'Busiest queues'],
  ['queue-light', '/queues/orders', DESK, 'light', 'customer-00'],
  ['queues-phone-dark', '/queues', PHONE, 'dark', 'payments.settlement'],
  ['message-dark', EXACT_ID, DESK, 'dark', 'billing'],
  ['groups-light', '/groups', DESK, 'light', 'billing'],
  ['group-dark', '/groups/billing/queues/orders', DESK, 'dark', 'customer-05'],
  ['dead-letters-phone', '/dlq?queue=orders', PHONE, 'light', 'What went wrong'],
  ['entries-dark', '/kv/sessions', DESK, 'dark', 'session-07'],
  ['timers-light', '/timers/orders', DESK, 'light', 'remind-07'],
  ['connector-light', '/connectors/orders-copy', DESK, 'light', 'It is paused. Messages wait in the queue.'],
  ['messages-light', '/messages?queue=orders', DESK, 'light', EXACT_ID],
] as const;

test('pages look as they looked when somebody looked', async (t) => {
  const here = await scene();
  for (const [name, path, viewport, colorScheme, text] of PICTURES) {
    await t.test(name, async (each) => {
      const { page } = await open(each, here.url, { viewport, colorScheme, once: true });
      await page.goto(path === EXACT_ID ? await messagePath(here, EXACT_ID) : path);
      await page.getByText(text, { exact: true }).first().waitFor();
      await settled(page);
      await resembles(page, name);
    });
  }
});

test('the comparison sees what is missing, and not what a clock shows', async (t) => {
  const here = await scene();
  const { page } = await open(t, here.url, { viewport: DESK, colorScheme: 'light' });
  await page.goto('/queues/orders');
  await page.getByText('customer-00', { exact: true }).waitFor();
  await settled(page);
  const before = await page.screenshot();
  assert.equal(await difference(page, before, before), 0);
  await page
    .locator('time')
    .first()
    .evaluate((element) => {
      element.textContent = '7 min. ago';
    });
  assert.ok((await difference(page, before, await page.screenshot())) < 0.02);
  await page.locator('.side').evaluate((element) => element.remove());
  assert.ok((await difference(page, before, await page.screenshot())) > 0.12);
});
