import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { looksSealed, openPayload, parseSealingKey, sealPayload } from '../../src/log/envelope.ts';

const key = parseSealingKey('00112233445566778899aabbccddeeff'.repeat(2))!;
const other = parseSealingKey('ff'.repeat(32))!;

test('what is sealed comes back byte for byte, and only under its key', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (payload) => {
      const sealed = sealPayload(key, payload);
      assert.ok(looksSealed(sealed));
      assert.deepEqual(openPayload(key, sealed), Buffer.from(payload));
      assert.equal(openPayload(other, sealed), null);
      const parsed = JSON.parse(sealed.toString());
      assert.deepEqual(Object.keys(parsed), ['encrypted', 'iv', 'authTag']);
      assert.equal(Buffer.from(parsed.iv, 'base64').length, 16);
    }),
  );
});

test('two envelopes of one payload differ', () => {
  const payload = Buffer.from('{"card":"4111"}');
  assert.notDeepEqual(sealPayload(key, payload), sealPayload(key, payload));
});

test('a changed byte never gives another payload', () => {
  const payload = Buffer.from('{"amount":12.50}');
  const sealed = sealPayload(key, payload);
  let refused = 0;
  for (let at = 0; at < sealed.length; at++) {
    const damaged = Buffer.from(sealed);
    damaged[at]! ^= 0x02;
    const opened = openPayload(key, damaged);
    // The spare bytes of the iv and the padding bits of base64 carry nothing.
    if (opened === null) refused++;
    else assert.deepEqual(opened, payload, `byte ${at}`);
  }
  assert.ok(refused > sealed.length * 0.8, `${refused} of ${sealed.length} bytes are guarded`);
});

test('other payloads are not envelopes', () => {
  for (const text of [
    '',
    'null',
    '{}',
    '{"encrypted":"","iv":"","authTag":""}',
    '{"encrypted":1,"iv":2,"authTag":3}',
  ]) {
    assert.equal(openPayload(key, Buffer.from(text)), null);
    assert.equal(looksSealed(Buffer.from(text)), false);
  }
});

test('a large payload', () => {
  const payload = Buffer.alloc(4 * 1024 * 1024, 'x');
  assert.deepEqual(openPayload(key, sealPayload(key, payload)), payload);
});

test('a key is 64 hexadecimal digits', () => {
  for (const text of ['', 'ab', `${'0'.repeat(63)}g`, '0'.repeat(65), ` ${'0'.repeat(63)}`]) {
    assert.equal(parseSealingKey(text), null);
  }
});
