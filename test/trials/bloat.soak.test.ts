import { test } from 'node:test';
import { openSnapshot, steadyCatalogs } from './bloat.ts';

const MINUTE_MS = 60_000;

for (const lanes of [4, 500]) {
  test(`a session that holds a snapshot open for an hour, ${lanes} lanes`, (t) =>
    openSnapshot(t, {
      lanes,
      measureMs: MINUTE_MS,
      heldMs: 60 * MINUTE_MS,
      recoverMs: MINUTE_MS,
      share: 0.8,
      looks: 1,
    }));
}

test('an hour of load beside an idle logical slot', (t) =>
  steadyCatalogs(t, { forMs: 60 * MINUTE_MS, growthBytes: 4 * 1024 * 1024 }));
