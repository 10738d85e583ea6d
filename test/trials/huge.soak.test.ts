import { test } from 'node:test';
import { hugeTransaction } from './huge.ts';

test('two million rows of 1 kB in one transaction, and a heap of 256 MB', (t) =>
  hugeTransaction(t, { rows: 2_000_000, heapMb: 256, withinMs: 30 * 60_000 }));
