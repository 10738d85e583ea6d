import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../../../../test/kit/until.ts';
import { EventLoopLag } from '../../src/observability/event_loop.ts';
import { FAMILIES } from '../../src/observability/families.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { registerProcess } from '../../src/observability/process.ts';
import { RecentQuantiles } from '../../src/observability/quantiles.ts';

test('names and labels are what the text format allows', () => {
  for (const [name, { type, labels, help }] of Object.entries(FAMILIES)) {
    assert.match(name, /^queen_[a-z0-9_]+$/);
    assert.equal(name.endsWith('_total'), type === 'counter', name);
    for (const label of labels) assert.match(label, /^[a-z]+$/, name);
    assert.ok(help.length > 10, name);
  }
});

test('every source is read anew at every scrape', async () => {
  const metrics = new Metrics();
  let value = 1;
  metrics.source('queen_db_pool_size', () => value);
  metrics.source('queen_batches_fired_total', () => [
    { labels: { op: 'push' }, value },
    { labels: { op: 'pop' }, value: Number.NaN },
  ]);
  assert.match(await metrics.expose(), /^queen_db_pool_size 1$/m);
  value = 2;
  const text = await metrics.expose();
  assert.match(text, /^# HELP queen_db_pool_size /m);
  assert.match(text, /^queen_db_pool_size 2$/m);
  assert.match(text, /^queen_batches_fired_total\{op="push"\} 2$/m);
  assert.doesNotMatch(text, /NaN/);
});

test('a source that does not answer is left out, the others are there', { timeout: 10_000 }, async () => {
  const metrics = new Metrics();
  metrics.source('queen_db_pool_size', () => new Promise(() => {}));
  metrics.source('queen_db_pool_idle', () => null);
  metrics.source('queen_db_pool_active', () => 3);
  const text = await metrics.expose();
  assert.doesNotMatch(text, /pool_size|pool_idle/);
  assert.match(text, /^queen_db_pool_active 3$/m);
});

test('quantiles of the latest observations', () => {
  const quantiles = new RecentQuantiles(100);
  assert.equal(quantiles.read([0.5]), null);
  for (let i = 1; i <= 250; i++) quantiles.observe(i);
  assert.deepEqual(quantiles.read([0, 0.5, 0.99, 1]), [151, 200, 249, 250]);
});

test('a blocked event loop shows', async (t) => {
  const lag = new EventLoopLag();
  t.after(() => lag.stop());
  const metrics = new Metrics();
  registerProcess(metrics, lag);
  // The first tick only begins to measure. Longer than a tick and what is looked for, wherever it falls between two.
  await new Promise((resolve) => setTimeout(resolve, 150));
  const end = performance.now() + 350;
  while (performance.now() < end);
  await until('a later tick has seen it', () => lag.max > 100);
  const text = await metrics.expose();
  assert.ok(Number(/^queen_event_loop_lag_max_milliseconds (\S+)$/m.exec(text)![1]) > 100);
  assert.ok(Number(/^queen_uptime_seconds (\S+)$/m.exec(text)![1]) > 0);
});
