import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { formatInstant, parseInstant } from '../../src/log/instants.ts';

test('an instant survives formatting and parsing to the microsecond', () => {
  fc.assert(
    fc.property(fc.maxSafeInteger(), (micros) => {
      const text = formatInstant(micros);
      assert.match(text, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
      assert.equal(parseInstant(text), micros);
    }),
  );
});

test('formatting is UTC with six decimals and a Z', () => {
  assert.equal(formatInstant(1_785_409_364_512_873), '2026-07-30T11:02:44.512873Z');
  assert.equal(formatInstant(0), '1970-01-01T00:00:00.000000Z');
  assert.equal(formatInstant(-1), '1969-12-31T23:59:59.999999Z');
});

test('the usual spellings of one instant mean the same', () => {
  const expected = 1_785_409_364_000_000;
  for (const text of [
    '2026-07-30T11:02:44Z',
    '2026-07-30T11:02:44.0Z',
    '2026-07-30T11:02:44.000000999Z',
    '2026-07-30T13:02:44+02:00',
    '2026-07-30T13:02:44 02:00',
    '2026-07-30T13:02:44+0200',
    '2026-07-30T05:32:44-05:30',
    '2026-07-30 11:02:44',
    '2026-07-30t11:02:44z',
  ]) {
    assert.equal(parseInstant(text), expected, text);
  }
  assert.equal(parseInstant('2026-07-30'), Date.UTC(2026, 6, 30) * 1000);
  assert.equal(parseInstant('2026-07-30T11:02'), Date.UTC(2026, 6, 30, 11, 2) * 1000);
});

test('what is no instant is null', () => {
  for (const text of [
    '',
    'yesterday',
    '2026',
    '2026-13-01',
    '2026-02-30',
    '2026-01-01T25:00',
    '2026-01-01T00:61',
    '1e400',
  ]) {
    assert.equal(parseInstant(text), null, text);
  }
});
