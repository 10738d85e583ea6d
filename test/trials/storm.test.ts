import { test } from 'node:test';
import { weather } from './storm.ts';

test('sessions end all the time, then the database is away: the full rate is back at once', (t) =>
  weather(t, { everyMs: 250, stormMs: 3_000, awayMs: 2_000 }));
