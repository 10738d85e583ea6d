import { test } from 'node:test';
import { openSnapshot, steadyCatalogs } from './bloat.ts';

// Seconds instead of an hour: what an old snapshot costs grows with the rows that it keeps, so that this finds
// only what is grossly wrong, and the bound leaves room for a busy machine.
test('a session that holds a snapshot open', (t) =>
  openSnapshot(t, { lanes: 4, measureMs: 2_000, heldMs: 4_000, recoverMs: 500, share: 0.5, looks: 4 }));

test('an idle logical slot', (t) => steadyCatalogs(t, { forMs: 2_500, growthBytes: 1024 * 1024 }));
