import { test } from 'node:test';
import { timersUnderFire } from './timers.ts';

test('two thousand timers over six seconds, one of two brokers killed every two: each fires once', (t) =>
  timersUnderFire(t, { timers: 2_000, spreadMs: 6_000, killEveryMs: 2_000, leaseMs: 1_500 }));
