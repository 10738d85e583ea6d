/** Timers in the browser: scheduled, moved, fired, cancelled. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBroker } from '../../../test/kit/broker.ts';
import { freshDatabase } from '../../../test/kit/postgres.ts';
import { until } from '../../../test/kit/until.ts';
import { open, useBrowser } from './browser.ts';
import { fitForAll, Wire } from './stage.ts';

useBrowser();

test('a message is scheduled, looked at, brought forward and becomes one; another one is cancelled', async (t) => {
  const broker = await startBroker({ database: await freshDatabase(t), alone: 'it is about the page' }, t);
  const wire = new Wire(broker.url);
  const { page, faults } = await open(t, broker.url);
  await page.goto('/timers');
  await page.getByText('No timer is pending').waitFor();
  await page.getByRole('button', { name: 'Schedule…' }).click();
  await page.getByRole('textbox', { name: 'Queue' }).fill('reminders');
  await page.getByRole('textbox', { name: 'Key' }).fill('a/b');
  await page.getByLabel('How many').fill('2');
  await page.getByLabel('Unit').selectOption('hours');
  await page.getByLabel('Payload (JSON)').fill('{"text": "Grüße", "n": 12345678901234567890}');
  await fitForAll(page);
  await page.getByRole('button', { name: 'Schedule', exact: true }).click();
  await page.getByRole('heading', { name: 'a/b', level: 1 }).waitFor();
  await page.getByText('in 2 hr.').waitFor();
  assert.match(
    (await page.getByRole('region', { name: 'payload, as JSON' }).textContent())!,
    /"Grüße",\s+"n": 12345678901234567890/,
  );
  await fitForAll(page);

  await page.getByRole('button', { name: 'Reschedule…' }).click();
  await page.getByRole('radio', { name: 'In', exact: false }).first().check();
  await page.getByLabel('How many').fill('0');
  await page.getByRole('button', { name: 'Reschedule', exact: true }).click();
  await page.getByText(/^Rescheduled for/).waitFor();
  await page.getByText('Nothing is pending under this key').waitFor();
  const fetched = await until('the message is there', async () => {
    const text = await wire.text('POST', '/api/v1/fetch', {
      entries: [{ queue: 'reminders', partition: 'Default', offset: 0 }],
    });
    return text.includes('records":[{') ? text : null;
  });
  assert.ok(fetched.includes('{"text": "Grüße", "n": 12345678901234567890}'), fetched);

  const operations = ['x1', 'x2'].map((timerKey) => ({
    op: 'schedule',
    queue: 'orders',
    timerKey,
    delayMs: 3_600_000,
    txn: timerKey,
    payload: btoa('1'),
  }));
  await wire.ask('POST', '/api/v1/timers', { operations });
  await page.goto('/timers');
  await page.getByRole('link', { name: 'orders' }).click();
  await page.getByRole('rowheader', { name: 'x2' }).waitFor();
  await page.getByLabel('Key begins with').fill('x1');
  await page.getByRole('rowheader', { name: 'x2' }).waitFor({ state: 'detached' });
  await page.getByRole('link', { name: 'x1' }).click();
  await page.getByRole('button', { name: 'Cancel the timer…' }).click();
  await page.getByRole('heading', { name: 'Cancel the timer x1?' }).waitFor();
  await page.getByRole('button', { name: 'Cancel the timer', exact: true }).click();
  await page.getByText('Cancelled x1.').waitFor();
  await page.getByRole('rowheader', { name: 'x2' }).waitFor();
  await page.getByRole('rowheader', { name: 'x1' }).waitFor({ state: 'detached' });
  assert.equal(await page.getByRole('rowheader').count(), 1);
  assert.deepEqual(faults, []);
});
