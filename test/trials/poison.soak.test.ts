import { test } from 'node:test';
import { poisoned } from './poison.ts';

test('poison first, in the middle and last of batches of 500, eight workers on the same rows', (t) =>
  poisoned(t, { mode: 'sql', lanes: 16, batches: 4, batch: 500, workers: 8, rows: 40, withinMs: 300_000 }));

test('the same by upsert, a batch of 100 in each of eight lanes', (t) =>
  poisoned(t, { mode: 'upsert', lanes: 8, batches: 1, batch: 100, workers: 8, rows: 10, withinMs: 60_000 }));
