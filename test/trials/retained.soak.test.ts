import { test } from 'node:test';
import { retained } from './retained.ts';

test('a queue that keeps its messages for ten seconds, ten minutes at full rate', (t) =>
  retained(t, { keptSeconds: 10, forMs: 600_000, files: 1.3 }));
