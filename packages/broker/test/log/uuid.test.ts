import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  formatUuid,
  formatUuids,
  mintUuidsV7,
  mintUuidV7,
  parseUuid,
  UUID_CHARACTERS,
} from '../../src/log/uuid.ts';

test('version, variant and time are where RFC 9562 puts them', () => {
  const nowMs = 4_000_000_000_123;
  const text = formatUuid(mintUuidV7(nowMs));
  assert.match(text, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(Number.parseInt(text.replaceAll('-', '').slice(0, 12), 16), nowMs);
});

test('strictly ascending, through a standing clock, a step back and a run-over of the counter', () => {
  const start = 4_100_000_000_000;
  let before = '';
  for (let i = 0; i < 20_000; i++) {
    // 5,000 in one millisecond exceed the 12-bit counter; then the clock steps back, then forward.
    const nowMs = i < 5_000 ? start : i < 10_000 ? start - 60_000 : start + Math.floor(i / 10);
    const id = mintUuidV7(nowMs).toString('hex');
    assert.ok(id > before, `${id} after ${before}`);
    before = id;
  }
});

test('text form round trip, and what is no UUID', () => {
  const id = mintUuidV7(Date.now());
  const shifted = Buffer.concat([Buffer.from([1, 2, 3]), id]);
  const text = formatUuid(id);
  assert.equal(formatUuid(shifted, 3), text);
  assert.deepEqual(parseUuid(text), id);
  assert.deepEqual(parseUuid(text.toUpperCase()), id);
  assert.deepEqual(parseUuid('00000000-0000-0000-0000-000000000000'), Buffer.alloc(16));
  for (const bad of [
    '',
    'x',
    text.slice(1),
    `${text}0`,
    `{${text}}`,
    text.replaceAll('-', ''),
    `${text}\n`,
  ]) {
    assert.equal(parseUuid(bad), null, JSON.stringify(bad));
  }
  assert.throws(() => formatUuid(shifted, 4), RangeError);
});

test('ids minted together are as ids minted one by one, and formatted alike', () => {
  const before = mintUuidV7(1_700_000_000_000);
  const ids = mintUuidsV7(5000, 1_700_000_000_000);
  const texts = formatUuids(ids);
  let last = formatUuid(before);
  for (let i = 0; i < 5000; i++) {
    const text = texts.slice(i * UUID_CHARACTERS, (i + 1) * UUID_CHARACTERS);
    assert.equal(text, formatUuid(ids, i * 16));
    assert.match(text, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    assert.ok(text > last);
    last = text;
  }
  assert.equal(mintUuidsV7(0, 1).length, 0);
  assert.equal(formatUuids(Buffer.alloc(0)), '');
});
