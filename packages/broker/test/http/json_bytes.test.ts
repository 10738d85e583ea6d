import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { JsonBytes } from '../../src/http/hot/json_bytes.ts';

test('texts and bytes come out as they went in, whatever their sizes', () => {
  const piece = fc.oneof(
    fc.string({ unit: 'grapheme', maxLength: 50 }),
    fc.nat({ max: 3000 }).map((length) => 'ü'.repeat(length)),
    fc.nat({ max: 100_000 }).map((length) => Buffer.alloc(length, 0x61)),
    fc.uint8Array({ maxLength: 50 }).map((bytes) => Buffer.from(bytes)),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 40 }), fc.nat({ max: 100_000 }), (pieces, expected) => {
      const out = new JsonBytes(expected);
      for (const each of pieces) typeof each === 'string' ? out.text(each) : out.bytes(each);
      const whole = Buffer.concat(pieces.map((each) => Buffer.from(each as string)));
      assert.ok(Buffer.concat(out.chunks()).equals(whole));
    }),
  );
});

test('a large piece is not copied', () => {
  const out = new JsonBytes(10);
  const large = Buffer.alloc(1 << 20);
  out.text('{');
  out.bytes(large);
  out.text('}');
  assert.equal(out.chunks()[1], large);
});
