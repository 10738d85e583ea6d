import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nameFault, requiredNameFault, transactionIdFault } from '../../src/log/names.ts';

test('ordinary and odd names pass unchanged', () => {
  for (const name of [
    'a',
    'orders.eu',
    ' trailing ',
    'é',
    'e\u0301',
    '__proto__',
    '/"\\&',
    '日本',
    '😀',
    '\u00a0',
    '\ufffd',
  ]) {
    assert.equal(nameFault(name, 'queue'), null, name);
    assert.equal(requiredNameFault(name, 'queue'), null, name);
    assert.equal(transactionIdFault(name, 'transactionId'), null, name);
  }
  assert.equal(nameFault('', 'partition'), null);
});

test('emptiness counts only where a name is required', () => {
  assert.match(requiredNameFault('', 'items[2].queue')!, /^items\[2\]\.queue must not be empty$/);
  assert.match(transactionIdFault('', 'transactionId')!, /empty/);
});

test('every control character is refused, its neighbours are not', () => {
  for (let code = 0; code < 0x180; code++) {
    const control = code < 0x20 || (code >= 0x7f && code <= 0x9f);
    const text = `a${String.fromCharCode(code)}b`;
    for (const check of [nameFault, requiredNameFault, transactionIdFault]) {
      assert.equal(check(text, 'x') !== null, control, `U+${code.toString(16)}`);
    }
  }
});

test('lone surrogates and other types are refused', () => {
  for (const bad of ['\ud800', 'a\udc00b', '\ude00\ud83d', '😀\ud83d', 7, null, undefined, {}, ['a'], true]) {
    for (const check of [nameFault, requiredNameFault, transactionIdFault]) {
      assert.equal(typeof check(bad, 'x'), 'string', JSON.stringify(bad));
    }
  }
});

test('255 characters are counted as code points, 65,535 bytes as UTF-8', () => {
  for (const character of ['a', 'é', '日', '😀']) {
    assert.equal(nameFault(character.repeat(255), 'x'), null, character);
    assert.match(nameFault(character.repeat(256), 'x')!, /at most 255 characters/);
    const bytes = Buffer.byteLength(character);
    assert.equal(transactionIdFault(character.repeat(Math.floor(65_535 / bytes)), 'x'), null, character);
    assert.match(transactionIdFault(character.repeat(Math.floor(65_535 / bytes) + 1), 'x')!, /65535 bytes/);
  }
});
