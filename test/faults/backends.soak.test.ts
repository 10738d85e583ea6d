import { test } from 'node:test';
import { shootBackends } from './backends.ts';

test('a connection is shot every second for five minutes, the database is away for thirty', (t) =>
  shootBackends(t, { everyMs: 1_000, shootingMs: 300_000, awayMs: 30_000 }));

test('five connections are shot every second for five minutes', (t) =>
  shootBackends(t, { everyMs: 200, shootingMs: 300_000, awayMs: 1_000 }));
