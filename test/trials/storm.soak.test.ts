import { test } from 'node:test';
import { weather } from './storm.ts';

test('a session ends every second for five minutes, then the database is away for thirty seconds', (t) =>
  weather(t, { everyMs: 1_000, stormMs: 300_000, awayMs: 30_000 }));
