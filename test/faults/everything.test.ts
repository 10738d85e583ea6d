import { test } from 'node:test';
import { everythingAtOnce } from './everything.ts';

test('everything at once, for half a minute', { timeout: 280_000 }, (t) =>
  everythingAtOnce(t, { forMs: 30_000, pauseMs: [10, 60] }),
);
