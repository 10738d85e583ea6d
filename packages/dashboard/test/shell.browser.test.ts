import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBroker } from '../../../test/kit/broker.ts';
import { freshDatabase } from '../../../test/kit/postgres.ts';
import { violations } from './axe.ts';
import { open, useBrowser } from './browser.ts';

useBrowser();

test('an empty broker says how to begin', async (t) => {
  const broker = await startBroker({ database: await freshDatabase(t), alone: 'it is about the page' }, t);
  const { page, faults } = await open(t, broker.url);
  await page.goto('/');
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
  await page.getByText('There are no queues yet').waitFor();
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await violations(page), []);
  }
  assert.deepEqual(faults, []);
});
