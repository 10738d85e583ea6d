import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Upstream } from '../kit/upstream.ts';
import { largeTransaction } from './large_transaction.ts';
import { seeded } from './seed.ts';

/** A heap that grows before it is swept, and the answers to the consumer, which the same broker gives. */
const MORE_MIB = 250;

test('a transaction of 200,000 rows takes no more memory than one of 20,000', async (t) => {
  const chance = seeded(t);
  const server = await Upstream.start({ major: 17 }, t);
  const small = await largeTransaction(t, server, 20_000, chance.fork('small'));
  const large = await largeTransaction(t, server, 200_000, chance.fork('large'));
  assert.ok(large < small + MORE_MIB, `${large} MiB after ${small} MiB`);
});
