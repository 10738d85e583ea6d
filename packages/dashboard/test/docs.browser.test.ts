/** The broker's page about its interface: it is no part of the dashboard, but needs the same browser. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAccess } from '../../broker/src/http/access/access.ts';
import { Fault } from '../../broker/src/http/errors.ts';
import { openWire } from '../../broker/test/http/wire.ts';
import { violations } from './axe.ts';
import { open, useBrowser } from './browser.ts';

useBrowser();

test('the interface is readable, on a phone too, and a route can be found and tried', async (t) => {
  const wire = await openWire(t);
  const { page, faults } = await open(t, wire.url, { viewport: { width: 390, height: 800 } });
  await page.goto('/docs');
  await page.getByLabel('Filter routes').fill('post v1/push');
  await page.getByText('1 of ').waitFor();
  await page.locator('#push > summary').click();
  const body = page.locator('#push').getByLabel('Body');
  await body.waitFor();
  assert.deepEqual(JSON.parse(await body.inputValue()).items[0].queue, 'orders');
  assert.match(
    (await page.locator('#push pre').first().textContent())!,
    new RegExp(`curl -X POST '${wire.url}`),
  );
  await page.locator('#push').getByRole('button', { name: 'Send' }).click();
  await page.getByText('201 Created').waitFor();
  assert.deepEqual(
    wire.broker.pushes.map(({ items }) => items.map(({ queue }) => queue)),
    [['orders']],
  );
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await violations(page), []);
  }
  assert.deepEqual(faults, []);
});

test('where a token is asked for, the page asks for one, and keeps it for the tab', async (t) => {
  const access = createAccess({
    verifier: {
      verify: (token: string) => {
        if (token !== 'good') throw new Fault('token_signature');
        return { sub: 'ada', roles: ['admin'] } as never;
      },
    },
    skipPaths: [],
    tenancy: false,
  });
  const wire = await openWire(t, { access });
  const { page } = await open(t, wire.url);
  const caller = page.locator('#access');
  await page.goto('/docs');
  await caller.getByText('This broker asks for a token.').waitFor();
  const give = async (token: string) => {
    await page.getByLabel('Access token').fill(token);
    await page.getByRole('button', { name: 'Use it' }).click();
  };
  await give('bad');
  await caller.getByText('Invalid token signature').waitFor();
  await give('good');
  await caller.getByText('ada, admin').waitFor();
  await page.locator('#listNamespaces > summary').click();
  await page.locator('#listNamespaces').getByRole('button', { name: 'Send' }).click();
  await page.getByText('200 OK').waitFor();
  await page.reload();
  await caller.getByText('ada, admin').waitFor();
  assert.equal(await page.evaluate(() => localStorage.length), 0);
  await page.getByRole('button', { name: 'Forget it' }).click();
  await caller.getByText('This broker asks for a token.').waitFor();
});
