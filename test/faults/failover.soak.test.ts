import { test } from 'node:test';
import { failover } from './failover.ts';

test('one standby after the other takes over under load', { timeout: 30 * 60_000 }, (t) =>
  failover(t, { rounds: 6, messages: 1_000 }),
);
