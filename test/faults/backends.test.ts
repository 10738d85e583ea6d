import { test } from 'node:test';
import { shootBackends } from './backends.ts';

test('a connection is shot every second, and the database is away for some', { timeout: 200_000 }, (t) =>
  shootBackends(t, { everyMs: 1_000, shootingMs: 10_000, awayMs: 4_000 }),
);

test('five connections are shot every second', { timeout: 200_000 }, (t) =>
  shootBackends(t, { everyMs: 200, shootingMs: 5_000, awayMs: 500 }),
);
