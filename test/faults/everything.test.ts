import { test } from 'node:test';
import { everythingAtOnce } from './everything.ts';

test('everything at once, for a quarter of a minute', { timeout: 280_000 }, (t) =>
  everythingAtOnce(t, { forMs: 15_000, pauseMs: [10, 60] }),
);
