import { test } from 'node:test';
import { movingKeys } from './moves.ts';

for (const partitionBy of ['key', 'single'] as const) {
  for (const during of ['stream', 'copy'] as const) {
    const when = during === 'copy' ? 'while it is being copied' : 'three times';
    test(`all of ten thousand keys move by one, ${when}, partitions by ${partitionBy}`, (t) =>
      movingKeys(t, {
        rows: 10_000,
        largeEvery: 10,
        partitionBy,
        during,
        rounds: during === 'copy' ? 1 : 3,
        settleMs: 300_000,
      }));
  }
}
