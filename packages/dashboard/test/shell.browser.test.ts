/** The frame around the pages: addresses, focus, themes, the keyboard, tokens, a broker that is away. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SignJWT } from 'jose';
import { startBroker } from '../../../test/kit/broker.ts';
import { freshDatabase } from '../../../test/kit/postgres.ts';
import { until } from '../../../test/kit/until.ts';
import { open, useBrowser } from './browser.ts';
import { scene } from './scene.ts';

useBrowser();

const FIRST_LOAD_BYTES_MAX = 100_000;

test('the first load is small, and files are not asked for twice', async (t) => {
  const { url } = await scene();
  const { page, context, faults } = await open(t, url, { once: true });
  const session = await context.newCDPSession(page);
  await session.send('Network.enable');
  let bytes = 0;
  session.on('Network.loadingFinished', ({ encodedDataLength }) => {
    bytes += encodedDataLength;
  });
  await page.goto('/');
  await page.locator('canvas').first().waitFor();
  await page.getByRole('link', { name: 'payments.settlement' }).waitFor();
  t.diagnostic(`${bytes} bytes`);
  assert.ok(bytes > 20_000 && bytes < FIRST_LOAD_BYTES_MAX, `${bytes} bytes`);

  const files = new Set<string>();
  session.on('Network.requestWillBeSent', ({ requestId, request }) => {
    if (new URL(request.url).pathname.startsWith('/assets/')) files.add(requestId);
  });
  const cached = new Set<string>();
  session.on('Network.requestServedFromCache', ({ requestId }) => cached.add(requestId));
  await page.reload();
  await page.locator('canvas').first().waitFor();
  await until(
    'every file is from the cache',
    () => files.size > 0 && [...files].every((each) => cached.has(each)),
  );
  assert.deepEqual(faults, []);
});

test('links change the address, the title and the focus; the way back is the same', async (t) => {
  const { url } = await scene();
  const { page } = await open(t, url);
  await page.goto('/');
  const heading = page.getByRole('heading', { level: 1 });
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Queues' }).click();
  await page.getByRole('link', { name: 'orders', exact: true }).click();
  await page.getByRole('link', { name: 'customer-00' }).click();
  await page.getByRole('link', { name: 'order-00-0' }).click();
  await page.waitForURL('**/messages/*/order-00-0');
  await page.getByText('"quantity"').waitFor();
  assert.equal(await page.title(), 'order-00-0 – Queen');
  assert.ok(
    await heading.evaluate((element) => element === document.activeElement),
    'the heading has the focus',
  );
  const current = page.locator('.side [aria-current]');
  assert.deepEqual(await current.allTextContents(), ['Messages']);
  for (const [path, title] of [
    ['/queues/orders/partitions/customer-00', 'customer-00'],
    ['/queues/orders', 'orders'],
    ['/queues', 'Queues'],
    ['/', 'Overview'],
  ] as const) {
    await page.goBack();
    await page.waitForURL(url + path);
    await page.getByRole('heading', { name: title, level: 1, exact: true }).waitFor();
  }
  // An address of the page is one for the browser too.
  await page.goto('/queues/orders?search=-07');
  await page.getByRole('link', { name: 'customer-07' }).waitFor();
  assert.equal(await page.getByRole('link', { name: /^customer-/ }).count(), 1);
});

test('the keyboard is enough', async (t) => {
  const { url } = await scene();
  const { page } = await open(t, url);
  await page.goto('/queues');
  await page.getByRole('link', { name: 'audit' }).waitFor();
  await page.keyboard.press('Tab');
  const focused = () => page.evaluate(() => document.activeElement?.textContent);
  assert.equal(await focused(), 'Skip to the content');
  assert.ok(await page.locator(':focus').isVisible());
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'main');
  // Search, then the heads of the table, then its rows.
  await page.keyboard.press('Tab');
  assert.equal(
    await page.evaluate(() => document.activeElement?.getAttribute('aria-label')),
    'Search by name',
  );
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'Partitions');
  await page.keyboard.press('Enter');
  await page
    .getByRole('columnheader', { name: 'Partitions' })
    .and(page.locator('[aria-sort=descending]'))
    .waitFor();
  await page.locator('tbody tr').first().getByRole('link', { name: 'orders' }).waitFor();
  await page.getByRole('link', { name: 'orders', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'orders', level: 1 }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.tagName), 'H1');
});

test('the theme is chosen by keyboard, kept, and follows the system when told so', async (t) => {
  const { url } = await scene();
  const { page } = await open(t, url, { colorScheme: 'light' });
  await page.goto('/');
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await ground();
  await page.getByRole('radio', { name: 'System' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await page.locator('html[data-theme=dark]').waitFor();
  const dark = await ground();
  assert.notEqual(dark, light);
  await page.reload();
  await page.locator('html[data-theme=dark]').waitFor();
  assert.equal(await ground(), dark);
  await page.getByRole('radio', { name: 'System' }).check({ force: true });
  assert.equal(await ground(), light);
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.equal(await ground(), dark);
});

test('on a phone the pages are behind a button', async (t) => {
  const { url } = await scene();
  const { page } = await open(t, url, { viewport: { width: 390, height: 844 } });
  await page.goto('/');
  const menu = page.getByRole('button', { name: 'Menu' });
  const links = page.getByRole('navigation', { name: 'Pages' });
  assert.equal(await links.isVisible(), false);
  await menu.click();
  assert.equal(await menu.getAttribute('aria-expanded'), 'true');
  await links.getByRole('link', { name: 'Queues' }).click();
  await page.getByRole('heading', { name: 'Queues', level: 1 }).waitFor();
  assert.equal(await links.isVisible(), false);
});

test('a broker that is away is said, what was there stays, and it goes on by itself', async (t) => {
  const { url } = await scene();
  const { page, context } = await open(t, url);
  await page.goto('/queues');
  await page.getByRole('link', { name: 'audit' }).waitFor();
  await context.setOffline(true);
  await page.getByRole('alert').getByText('The broker does not answer.').waitFor();
  assert.ok(await page.getByRole('link', { name: 'audit' }).isVisible());
  await context.setOffline(false);
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByRole('alert').waitFor({ state: 'detached' });
});

test('a tab that nobody sees asks for nothing', async (t) => {
  const { url } = await scene();
  const { page } = await open(t, url);
  await page.clock.install();
  await page.goto('/queues');
  await page.getByRole('link', { name: 'audit' }).waitFor();
  let asked = 0;
  page.on('request', () => asked++);
  const see = (hidden: boolean) =>
    page.evaluate((now) => {
      Object.defineProperty(document, 'hidden', { configurable: true, value: now });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
  await page.clock.runFor(6_000);
  assert.ok(asked > 0);
  await see(true);
  asked = 0;
  await page.clock.runFor(120_000);
  assert.equal(asked, 0);
  const again = page.waitForRequest('**/api/v1/status/queues*');
  await see(false);
  await again;
});

const SECRET = 'a secret of the test that is long enough';
const tokenOf = (role: string, sub: string) =>
  new SignJWT({ role, sub }).setProtectedHeader({ alg: 'HS256' }).sign(Buffer.from(SECRET));

test('a broker with tokens is asked with one, which is kept for the tab only', async (t) => {
  const database = await freshDatabase(t);
  const env = { JWT_ENABLED: 'true', JWT_SECRET: SECRET };
  const { url } = await startBroker({ database, env, alone: 'it is about the page' }, t);
  const admin = await tokenOf('admin', 'ada');
  const push = { method: 'POST', body: '{"items":[{"queue":"q","payload":1}]}' };
  assert.equal(
    (await fetch(`${url}/api/v1/push`, { ...push, headers: { authorization: admin } })).status,
    201,
  );

  const { page, context } = await open(t, url);
  // The address of a page, without a token: the browser gets the page, and the page asks.
  assert.equal((await page.goto('/queues/q'))!.status(), 401);
  const dialog = page.getByRole('dialog', { name: 'This broker asks for a token' });
  await dialog.getByRole('textbox').fill('x.y.z');
  await dialog.getByRole('button', { name: 'Use it' }).click();
  await dialog.getByText('Bad token header').waitFor();
  await dialog.getByRole('textbox').fill(` ${admin}\n`);
  await dialog.getByRole('button', { name: 'Use it' }).click();
  await dialog.waitFor({ state: 'detached' });
  await page.getByRole('link', { name: 'Default' }).waitFor();
  await page.getByText('ada').waitFor();
  await page.getByRole('link', { name: 'Settings' }).click();
  await page.getByRole('button', { name: 'Delete this queue…' }).waitFor();

  const other = await context.newPage();
  await other.goto('/queues');
  await other.getByRole('dialog').waitFor();

  await page.getByRole('button', { name: 'Sign out' }).click();
  await dialog.getByRole('textbox').fill(await tokenOf('read-only', 'rhea'));
  await dialog.getByRole('button', { name: 'Use it' }).click();
  await page.getByText('Your role may read settings, not change them.').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Delete this queue…' }).count(), 0);
});
