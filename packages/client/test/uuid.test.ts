import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mintId } from '../src/uuid.ts';

test('ids are UUIDs of version 7, rise, and hold their time', () => {
  let last = '';
  for (let at = 0; at < 20_000; at++) {
    const id = mintId();
    assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    assert.ok(id > last, `${id} after ${last}`);
    last = id;
  }
  const ms = Number.parseInt(mintId(4_000_000_000_000).replaceAll('-', '').slice(0, 12), 16);
  assert.equal(ms, 4_000_000_000_000);
  assert.ok(mintId(1) > last, 'a clock that is set back does not make them fall');
});
