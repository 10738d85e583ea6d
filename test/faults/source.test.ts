import { test } from 'node:test';
import { sourceUnderKills } from './source_kills.ts';

test(
  'a source whose owner, store and upstream are killed while it copies and streams',
  {
    timeout: 240_000,
  },
  (t) =>
    sourceUnderKills(t, {
      tables: 5,
      rows: 600,
      brokers: 2,
      kills: 5,
      writers: 2,
      pauseMs: [5, 40],
      settleMs: 60_000,
    }),
);
