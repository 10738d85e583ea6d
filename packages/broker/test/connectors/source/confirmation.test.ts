import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Confirmation } from '../../../src/connectors/postgres/source/confirmation.ts';
import { FakeClock } from '../../hotlist/fake_clock.ts';

test('a server that asks is answered soon, whatever is committed meanwhile', () => {
  const clock = new FakeClock();
  const told: bigint[] = [];
  const connection = { confirm: (_: bigint, safe: bigint) => void told.push(safe) };
  const options = { safe: 1n, received: () => 9n, everyMs: 10_000 };
  const confirmation = new Confirmation(connection, clock, options);
  confirmation.tell();
  confirmation.asked();
  confirmation.moved(2n);
  clock.advance(20);
  assert.deepEqual(told, [1n, 2n]);
  // Commits alone are told of once a second.
  for (let safe = 3n; safe < 23n; safe++) {
    confirmation.moved(safe);
    clock.advance(100);
  }
  assert.deepEqual(told, [1n, 2n, 12n, 22n]);
  confirmation.stop();
});
