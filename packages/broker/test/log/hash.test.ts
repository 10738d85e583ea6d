import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { createXXHash128 } from 'hash-wasm';
import { hashTransactionId, hashTransactionIds } from '../../src/log/hash.ts';

// Reference values of the canonical (big-endian) form, from the xxHash reference implementation.
const VECTORS: readonly [string, string][] = [
  ['', '99aa06d3014798d86001c324468d497f'],
  ['a', 'a96faf705af16834e6c632b61e964e1f'],
  ['The quick brown fox jumps over the lazy dog', 'ddd650205ca3e7fa24a1cc2e3a8a7651'],
  ['abc', '06b05ab6733a618578af5f94892f3950'],
  // One for each of the algorithm's ranges of length: 16, 128, 240 bytes and above.
  ['a'.repeat(17), 'c77749c0e343aac52d27c0235c9dd6e1'],
  ['a'.repeat(129), 'a7758bdd09a0b20fd53a57a017f40a2f'],
  ['a'.repeat(240), '0163721cdafde206ea57d24533760a39'],
  ['a'.repeat(241), '3e7bebe4a2c07b0bf6cfef5c5aca1930'],
  ['a'.repeat(5000), '7f707e18d1f47e4b86bab6aca5d8f5e9'],
];

test('known vectors, in canonical byte order', () => {
  for (const [text, hex] of VECTORS) {
    assert.equal(hashTransactionIds([text]).toString('hex'), hex, JSON.stringify(text));
  }
});

test('a list is the concatenation of its members, wherever it is written to', () => {
  const txns = ['a', '', 'order-9137-paid', 'é', 'e\u0301', 'x'.repeat(65_535), '__proto__', 'A'];
  const all = hashTransactionIds(txns);
  assert.equal(all.length, 16 * txns.length);
  const out = Buffer.alloc(48, 0xee);
  for (const [i, txn] of txns.entries()) {
    hashTransactionId(txn, out, 7);
    assert.deepEqual(out.subarray(7, 23), all.subarray(16 * i, 16 * i + 16));
  }
  assert.ok(out.subarray(0, 7).every((b) => b === 0xee) && out.subarray(23).every((b) => b === 0xee));
  const distinct = new Set(txns.map((_, i) => all.toString('hex', 16 * i, 16 * i + 16)));
  assert.equal(distinct.size, txns.length);
});

test('a buffer without room is refused', () => {
  assert.throws(() => hashTransactionId('a', Buffer.alloc(20), 5), RangeError);
});

test('every length is hashed alike, by whichever way', async () => {
  const reference = await createXXHash128();
  const ascii = fc.string({ unit: 'binary-ascii', maxLength: 140 });
  const any = fc.string({ unit: 'binary', maxLength: 80 });
  // The bounds of the short way, and words of all zeros and ones, where a carry would be lost.
  const edges = [8, 9, 16, 17, 32, 33, 63, 64, 65].flatMap((n) => ['\0'.repeat(n), '\x7f'.repeat(n)]);
  const check = (text: string) =>
    assert.equal(
      hashTransactionIds([text]).toString('hex'),
      reference.init().update(text).digest('hex'),
      JSON.stringify(text),
    );
  for (const text of edges) check(text);
  fc.assert(fc.property(fc.oneof(ascii, any), check), { numRuns: 3000 });
});
