/** Who may not do something sees it, cannot press it, and is told the broker's reason when it refuses all the same. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SignJWT } from 'jose';
import { startBroker } from '../../../test/kit/broker.ts';
import { freshDatabase } from '../../../test/kit/postgres.ts';
import { open, useBrowser } from './browser.ts';
import { Wire } from './stage.ts';

useBrowser();

const SECRET = 'a secret that is long enough for HS256';
const tokenOf = (role: string) =>
  new SignJWT({ role, sub: role }).setProtectedHeader({ alg: 'HS256' }).sign(Buffer.from(SECRET));

/** An address, and what can be done there, with the role that it needs. */
const PAGES: readonly (readonly [string, readonly (readonly [string, 'write' | 'admin'])[]])[] = [
  [
    '/dlq?queue=orders',
    [
      ['Replay all…', 'write'],
      ['Delete all…', 'admin'],
    ],
  ],
  [
    '/kv/settings/entry?key=mode',
    [
      ['Edit…', 'write'],
      ['Delete…', 'write'],
    ],
  ],
  [
    '/timers/orders/timer?key=later',
    [
      ['Reschedule…', 'write'],
      ['Cancel the timer…', 'write'],
    ],
  ],
  [
    '/groups/billing/queues/orders',
    [
      ['Move on partition a', 'write'],
      ['Delete…', 'admin'],
    ],
  ],
  [
    '/connectors/copy',
    [
      ['Pause…', 'admin'],
      ['Delete…', 'admin'],
    ],
  ],
];

test('a role that may not write sees what it may not do', async (t) => {
  const env = { JWT_ENABLED: 'true', JWT_SECRET: SECRET };
  const database = await freshDatabase(t);
  const broker = await startBroker({ database, env, alone: 'it is about the page' }, t);
  const tokens = {
    'read-only': await tokenOf('read-only'),
    'read-write': await tokenOf('read-write'),
    admin: await tokenOf('admin'),
  };
  const wire = new Wire(broker.url, tokens.admin);
  await wire.push('orders', 'a', ['m1', 'm2']);
  await wire.bury('orders', 'billing', 'broken');
  const put = { op: 'put', ns: 'settings', key: 'mode', value: 1, forever: true };
  await wire.ask('POST', '/api/v1/kv', { operations: [put] });
  const timer = {
    op: 'schedule',
    queue: 'orders',
    timerKey: 'later',
    delayMs: 3_600_000,
    txn: 't',
    payload: btoa('1'),
  };
  await wire.ask('POST', '/api/v1/timers', { operations: [timer] });
  await wire.ask('PUT', '/api/v1/connectors/copy', {
    kind: 'sink',
    enabled: false,
    connection: { host: '127.0.0.1', database: 'shop', user: 'queen' },
    sink: { queue: 'orders', table: 'public.copy', mode: 'append' },
  });

  for (const role of ['read-only', 'read-write'] as const) {
    const { page, context } = await open(t, broker.url);
    await context.addInitScript((token) => sessionStorage.setItem('queen.token', token), tokens[role]);
    for (const [path, actions] of PAGES) {
      await page.goto(path);
      await page.getByText(role, { exact: true }).last().waitFor();
      for (const [name, needs] of actions) {
        const button = page.getByRole('button', { name: name.replace('Pause…', 'Go on…') });
        await button.waitFor();
        const allowed = role === 'read-write' && needs === 'write';
        assert.equal(
          await button.getAttribute('aria-disabled'),
          String(!allowed),
          `${role}: ${name} on ${path}`,
        );
        const dialog = page.getByRole('dialog');
        if (allowed) {
          await button.click();
          await dialog.waitFor();
          await page.keyboard.press('Escape');
          await dialog.waitFor({ state: 'detached' });
          continue;
        }
        await button.dispatchEvent('click');
        assert.match((await button.getAttribute('title'))!, /^This needs the role /);
        // What a click does is on the page when it has been painted.
        await page.evaluate(() => new Promise((painted) => requestAnimationFrame(() => setTimeout(painted))));
        assert.equal(await dialog.count(), 0, `${role}: ${name} on ${path}`);
      }
    }
  }

  // The rights changed after the page was loaded.
  const { page } = await open(t, broker.url);
  await page.goto('/auth/login');
  await page.evaluate((token) => sessionStorage.setItem('queen.token', token), tokens.admin);
  await page.goto('/groups/billing');
  await page.getByRole('rowheader', { name: 'orders' }).waitFor();
  await page.evaluate((token) => sessionStorage.setItem('queen.token', token), tokens['read-only']);
  await page.getByRole('button', { name: 'Delete the group…' }).click();
  await page.getByRole('textbox', { name: /^Type/ }).fill('billing');
  await page.getByRole('button', { name: 'Delete the group', exact: true }).click();
  await page.getByRole('dialog').getByRole('alert').filter({ hasText: 'forbidden' }).waitFor();
});
