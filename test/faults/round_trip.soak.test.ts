import { test } from 'node:test';
import { roundTrip } from './round_trip.ts';

test('a copy on another server is the original after each of five rounds of kills', (t) =>
  roundTrip(t, { rounds: 5, killsARound: 8, tables: 7, rows: 1_000, brokers: 3, settleMs: 240_000 }));
