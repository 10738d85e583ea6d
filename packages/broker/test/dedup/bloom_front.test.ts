import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BloomFront, bloomBytes } from '../../src/engine/dedup/bloom_front.ts';
import { chunk, loadChunk } from '../../src/engine/dedup/hash_words.ts';
import { hashesOf, hashOf, range } from './fakes.ts';

function add(front: BloomFront, ids: readonly number[], createdAtMicros: number): void {
  const hashes = hashesOf(ids);
  for (let first = 0; first < ids.length; ) {
    const count = loadChunk(hashes, first);
    front.add(chunk, count, createdAtMicros);
    first += count;
  }
}

function find(front: BloomFront, id: number, from?: number): number {
  loadChunk(hashOf(id), 0);
  return front.find(chunk[0]!, chunk[1]!, chunk[2]!, chunk[3]!, from);
}

/** Whether a generation that may hold the hash covers the number under which it was added. */
function covered(front: BloomFront, id: number, number: number): boolean {
  for (let g = find(front, id); g >= 0; g = find(front, id, g + 1)) {
    if (front.firstOf(g) <= number && number < front.endOf(g)) return true;
  }
  return false;
}

test('no false negative, few false positives, over several generations', () => {
  const front = new BloomFront();
  const total = 60_000;
  for (let at = 0; at < total; at += 1_000) {
    add(front, range(at, 1_000), at);
    assert.equal(front.bytes, bloomBytes(at + 1_000));
  }
  assert.equal(front.generations, 3);
  for (let id = 0; id < total; id++) assert.ok(covered(front, id, id), `id ${id}`);
  let wrong = 0;
  for (let id = total; id < total + 20_000; id++) if (find(front, id) >= 0) wrong++;
  assert.ok(wrong < 20_000 * 0.01, `${wrong} of 20000`);
});

test('generations are sized 4096, then eight times more each, up to a million', () => {
  const filter = (capacity: number): number => Math.ceil((capacity * 16) / 512) * 64;
  assert.equal(bloomBytes(0), 0);
  assert.equal(bloomBytes(1), filter(4096));
  assert.equal(bloomBytes(4096), filter(4096));
  assert.equal(bloomBytes(4097), filter(4096) + filter(32_768));
  const three = filter(4096) + filter(32_768) + filter(262_144);
  assert.equal(bloomBytes(4096 + 32_768 + 262_144), three);
  assert.equal(bloomBytes(4096 + 32_768 + 262_144 + 1), three + filter(1_000_000));
  assert.equal(bloomBytes(4096 + 32_768 + 262_144 + 1_000_001), three + 2 * filter(1_000_000));
});

test('a generation goes only when its newest hash is too old, and its numbers go with it', () => {
  const front = new BloomFront();
  add(front, range(0, 4096), 100);
  add(front, range(4096, 10), 200);
  front.expire(100);
  assert.equal(front.generations, 2);
  front.expire(101);
  assert.equal(front.generations, 1);
  assert.equal(front.firstOf(0), 4096);
  for (const id of range(4096, 10)) assert.ok(covered(front, id, id));
  add(front, range(5000, 40_000), 300);
  for (const [i, id] of range(5000, 40_000).entries()) assert.ok(covered(front, id, 4106 + i));
  front.expire(301);
  assert.equal(front.generations, 0);
  assert.equal(front.bytes, 0);
  add(front, [1], 400);
  assert.equal(front.firstOf(0), 44_106);
});

test('two fronts with the same hashes in other portions are equal', () => {
  const one = new BloomFront();
  const two = new BloomFront();
  add(one, range(0, 9000), 1);
  for (let at = 0; at < 9000; at += 7) add(two, range(at, Math.min(7, 9000 - at)), 1);
  for (let id = 0; id < 12_000; id++) assert.equal(find(one, id), find(two, id));
});
