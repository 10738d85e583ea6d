import { test } from 'node:test';
import { blockedPush } from './blocked.ts';

test('a store that is blocked for thirty seconds in the middle of a transaction, an upstream that waits for five', (t) =>
  blockedPush(t, { rows: 50_000, senderTimeoutMs: 5_000, blockedMs: 30_000 }));
