import { test } from 'node:test';
import { failover } from './failover.ts';

test('the standby takes over under load', { timeout: 240_000 }, (t) =>
  failover(t, { rounds: 1, messages: 80 }),
);
