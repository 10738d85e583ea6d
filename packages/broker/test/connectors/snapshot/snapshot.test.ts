import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Snapshot } from '../../../src/connectors/postgres/source/snapshot/snapshot.ts';
import { complaintOf } from './world.ts';

test('whatever is interleaved with a snapshot, folding its events gives the table', async () => {
  await fc.assert(
    fc.asyncProperty(fc.nat(), async (seed) => {
      assert.equal(await complaintOf({ seed, Snapshot }), null);
    }),
    { numRuns: Number(process.env.QUEEN_TEST_HISTORIES ?? 250), endOnFailure: true },
  );
});
