import { test } from 'node:test';
import { timersUnderFire } from './timers.ts';

test('a hundred thousand timers over ten minutes, one of two brokers killed every twenty seconds: each fires once', (t) =>
  timersUnderFire(t, { timers: 100_000, spreadMs: 600_000, killEveryMs: 20_000, leaseMs: 30_000 }));
