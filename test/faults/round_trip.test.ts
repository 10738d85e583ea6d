import { test } from 'node:test';
import { roundTrip } from './round_trip.ts';

test('a copy on another server is the original, whatever is killed in between', { timeout: 240_000 }, (t) =>
  roundTrip(t, { rounds: 1, killsARound: 3, tables: 2, rows: 200, brokers: 2, settleMs: 60_000 }),
);
