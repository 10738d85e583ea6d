import { test } from 'node:test';
import { retained } from './retained.ts';

// Seconds instead of minutes: too short for the files to settle.
test('a queue that keeps its messages for two seconds, at full rate', (t) =>
  retained(t, { keptSeconds: 2, clockSpeed: 1, forMs: 8_000, files: null }));
