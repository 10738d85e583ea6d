import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { barStart, barStarts, rangeOf, stepFor } from '../../src/engine/statistics/bars.ts';
import { signatureOf, signatures } from '../../src/engine/statistics/signatures.ts';

const MINUTE = 60_000_000;

test('the longer the time, the wider the bars', () => {
  const hours = (n: number) => stepFor(n * 60 * MINUTE);
  assert.deepEqual([hours(0), hours(1), hours(1.01), hours(6)], [1, 1, 5, 5]);
  assert.deepEqual([hours(6.1), hours(24), hours(25), hours(168), hours(169)], [15, 15, 60, 60, 360]);
});

test('an hour up to now, unless something is asked', () => {
  const now = 1_796_040_000_000_000;
  assert.deepEqual(rangeOf({ fromMicros: null, toMicros: null }, now), {
    fromMicros: now - 60 * MINUTE,
    toMicros: now,
    stepMinutes: 1,
  });
  const to = now - 1_000 * MINUTE;
  assert.equal(rangeOf({ fromMicros: null, toMicros: to }, now).fromMicros, to - 60 * MINUTE);
  assert.equal(rangeOf({ fromMicros: null, toMicros: null }, now, 24 * 60).stepMinutes, 15);
});

test('the bars of a range cover it, each once', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 2_000_000_000 }),
      fc.integer({ min: 0, max: 40_000_000 }),
      (fromSeconds, seconds) => {
        const fromMicros = fromSeconds * 1_000_000;
        const toMicros = fromMicros + seconds * 1_000_000;
        const range = rangeOf({ fromMicros, toMicros }, 0);
        const starts = barStarts(range);
        const width = range.stepMinutes * MINUTE;
        assert.ok(starts[0]! <= fromMicros && starts.at(-1)! <= toMicros);
        assert.ok(starts.at(-1)! + width > toMicros);
        starts.forEach((start, i) => {
          assert.equal(start, starts[0]! + i * width);
          assert.equal(barStart(range.stepMinutes, start + width - 1), start);
        });
      },
    ),
  );
});

test('what error texts have in common', () => {
  const same: [string, string][] = [
    ['order 17 failed', 'order <n> failed'],
    ['order -3.5 failed', 'order <n> failed'],
    ['id 0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11 is gone', 'id <id> is gone'],
    ['at 2026-01-02T03:04:05.678Z, again', 'at <date>, again'],
    ['on 2026-01-02 at night', 'on <date> at night'],
    ['commit deadbeef01 and deadbeef', 'commit <id> and deadbeef'],
    ['pointer 0x7FFF', 'pointer <id>'],
    ['  two\n lines ', 'two lines'],
    ['', ''],
  ];
  for (const [text, signature] of same) assert.equal(signatureOf(text), signature, text);
  assert.equal(signatureOf('x'.repeat(500)).length, 120);
});

test('the most frequent signatures, with their share', () => {
  const errors = ['a 1', 'a 2', 'b', null, 'a 3', 'b', 'c', ''];
  assert.deepEqual(signatures(errors, 3), [
    { text: 'a <n>', n: 3, share: 0.375 },
    { text: '', n: 2, share: 0.25 },
    { text: 'b', n: 2, share: 0.25 },
  ]);
  assert.deepEqual(signatures([], 3), []);
});
