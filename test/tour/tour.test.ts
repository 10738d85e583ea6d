import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tour } from './tour.ts';

/** Alone it takes a third of a minute; here other tests run beside it. */
const WITHIN_MS = 120_000;

test('the tour ends as it should, and soon', async () => {
  const begun = performance.now();
  const lines: string[] = [];
  try {
    await tour({ major: 18, print: (line) => void lines.push(line) });
  } catch (error) {
    console.error(lines.join('\n'));
    throw error;
  }
  assert.ok(performance.now() - begun < WITHIN_MS);
  const text = lines.join('\n');
  for (const step of ['orders-src', '"op":"r"', '"op":"d"', 'orders_copy', 'invoices-sink', '84.5']) {
    assert.ok(text.includes(step), step);
  }
});
