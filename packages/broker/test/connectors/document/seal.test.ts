/** Sealed passwords open for their own connector under the same key, and for nobody else. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openPassword, sealPassword } from '../../../src/connectors/postgres/document/seal.ts';
import { ConnectorFault } from '../../../src/connectors/postgres/fault.ts';
import { parseSealingKey } from '../../../src/log/envelope.ts';

const KEY = parseSealingKey('0123456789abcdef'.repeat(4))!;
const OTHER = parseSealingKey('f'.repeat(64))!;
const OWNER = { tenant: '00000000-0000-0000-0000-000000000001', name: 'orders' };
const unseals = (error: unknown) =>
  error instanceof ConnectorFault && error.code === 'unseal' && error.retry === 'document';

test('sealed and opened', () => {
  for (const password of ['x', 'ünï "cödé"', ' ', 'p'.repeat(1024)]) {
    const sealed = sealPassword(KEY, OWNER, password);
    // Shorter ones may well occur in so many random letters.
    if (password.length > 8) assert.ok(!sealed.includes(password));
    assert.notEqual(sealed, sealPassword(KEY, OWNER, password), 'a nonce of its own each time');
    assert.equal(openPassword(KEY, OWNER, sealed), password);
  }
});

test('not with another key or none, not for another connector or tenant, not when a bit has changed', () => {
  const sealed = sealPassword(KEY, OWNER, 'geheim');
  assert.throws(() => openPassword(OTHER, OWNER, sealed), unseals);
  assert.throws(() => openPassword(null, OWNER, sealed), unseals);
  assert.throws(() => openPassword(KEY, { ...OWNER, name: 'other' }, sealed), unseals);
  assert.throws(
    () => openPassword(KEY, { ...OWNER, tenant: OWNER.tenant.replace('1', '2') }, sealed),
    unseals,
  );
  for (const broken of [
    '',
    'v1.',
    'v1.AAAA',
    sealed.slice(3),
    `v2.${sealed.slice(3)}`,
    sealed.slice(0, -8),
  ]) {
    assert.throws(() => openPassword(KEY, OWNER, broken), unseals, broken);
  }
  const bytes = Buffer.from(sealed.slice(3), 'base64');
  for (let i = 0; i < bytes.length; i++) {
    const altered = Buffer.from(bytes);
    altered[i]! ^= 1;
    assert.throws(() => openPassword(KEY, OWNER, `v1.${altered.toString('base64')}`), unseals);
  }
});
