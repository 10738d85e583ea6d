import { test } from 'node:test';
import { everythingAtOnce } from './everything.ts';

/** QUEEN_SOAK_MINUTES, two hours unless it says otherwise. */
const minutes = Number(process.env.QUEEN_SOAK_MINUTES || 120);

test(`everything at once, for ${minutes} minutes`, (t) =>
  everythingAtOnce(t, { forMs: minutes * 60_000, pauseMs: [100, 400] }));
