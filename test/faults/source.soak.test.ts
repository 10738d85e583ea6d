import { test } from 'node:test';
import { sourceUnderKills } from './source_kills.ts';

test('twenty tables, three brokers, and thirty kills of owner, store and upstream', (t) =>
  sourceUnderKills(t, {
    tables: 20,
    rows: 4_000,
    brokers: 3,
    kills: 30,
    writers: 4,
    pauseMs: [5, 60],
    settleMs: 240_000,
  }));
