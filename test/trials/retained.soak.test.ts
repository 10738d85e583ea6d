import { test } from 'node:test';
import { retained } from './retained.ts';

// Ten seconds of the machine's clock: the database's is hastened so that the fifteen minutes that hashes are kept pass
// several times.
test('a queue that keeps its messages for ten seconds, ten minutes at full rate', (t) =>
  retained(t, { keptSeconds: 60, clockSpeed: 6, forMs: 600_000, files: 1.3 }));
