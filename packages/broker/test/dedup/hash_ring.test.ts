import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { BLOCK_HASHES, HashRing, ringBytes } from '../../src/engine/dedup/hash_ring.ts';
import { chunk, loadChunk } from '../../src/engine/dedup/hash_words.ts';
import { hashesOf, hashOf, range } from './fakes.ts';

function append(ring: HashRing, ids: readonly number[], firstOffset: number, createdAtMicros: number): void {
  const hashes = hashesOf(ids);
  for (let first = 0; first < ids.length; ) {
    const count = loadChunk(hashes, first);
    ring.append(chunk, count, firstOffset + first, createdAtMicros);
    first += count;
  }
}

function has(ring: HashRing, id: number, first?: number, end?: number): boolean {
  loadChunk(hashOf(id), 0);
  return ring.has(chunk[0]!, chunk[1]!, chunk[2]!, chunk[3]!, first, end);
}

test('a chunk is loaded from any alignment and in parts', () => {
  const hashes = hashesOf(range(0, 5000));
  const shifted = Buffer.concat([Buffer.alloc(3), hashes]).subarray(3);
  assert.equal(loadChunk(shifted, 0), 4096);
  assert.deepEqual(Buffer.from(chunk.buffer, 0, 16), hashOf(0));
  assert.equal(loadChunk(shifted, 4096), 904);
  assert.deepEqual(Buffer.from(chunk.buffer, 0, 16), hashOf(4096));
  assert.equal(loadChunk(shifted, 4999), 1);
  assert.deepEqual(Buffer.from(chunk.buffer, 0, 16), hashOf(4999));
});

test('everything that was added is found, in the hot buffer and in sealed blocks', () => {
  const ring = new HashRing();
  const ids = range(0, 3 * BLOCK_HASHES + 100);
  append(ring, ids, 0, 1);
  assert.equal(ring.sealedBlocks, 3);
  assert.equal(ring.hotCount, 100);
  assert.equal(ring.size, ids.length);
  for (const id of ids) assert.ok(has(ring, id), `id ${id}`);
  for (const id of range(ids.length, 2000)) assert.ok(!has(ring, id), `id ${id}`);
});

test('a part of the ring is searched by number, also after blocks have gone', () => {
  const ring = new HashRing();
  for (let block = 0; block < 4; block++)
    append(ring, range(block * BLOCK_HASHES, BLOCK_HASHES), block * BLOCK_HASHES, block);
  append(ring, range(4 * BLOCK_HASHES, 50), 4 * BLOCK_HASHES, 4);
  const check = (id: number): void => {
    // Whole blocks are searched, so a range may find a neighbour but must find its own.
    assert.ok(has(ring, id, id, id + 1), `id ${id}`);
    assert.ok(
      !has(ring, id, 0, Math.max(0, Math.floor(id / BLOCK_HASHES) * BLOCK_HASHES)),
      `id ${id} too early`,
    );
  };
  for (const id of [0, 1, 4095, 4096, 9000, 16383, 16384, 16433]) check(id);
  assert.equal(ring.expire(2), 2 * BLOCK_HASHES - 1);
  assert.ok(!has(ring, 5) && !has(ring, 5, 0, 10));
  for (const id of [8192, 12287, 12288, 16383, 16384, 16433]) check(id);
});

test('a hash in two blocks stays known until the later one goes', () => {
  const ring = new HashRing();
  append(ring, [-1, ...range(0, BLOCK_HASHES - 1)], 0, 10);
  append(ring, [-1, ...range(BLOCK_HASHES, BLOCK_HASHES - 1)], BLOCK_HASHES, 20);
  assert.equal(ring.expire(10), -1);
  assert.equal(ring.expire(11), BLOCK_HASHES - 1);
  assert.ok(has(ring, -1));
  assert.equal(ring.expire(21), 2 * BLOCK_HASHES - 1);
  assert.ok(!has(ring, -1));
});

test('4096 times the same hash sort and search like any others', () => {
  const ring = new HashRing();
  append(ring, Array<number>(BLOCK_HASHES).fill(7), 0, 1);
  assert.equal(ring.sealedBlocks, 1);
  assert.ok(has(ring, 7) && !has(ring, 8));
});

test('hashes that share their first word are told apart', () => {
  const ring = new HashRing();
  const like = (n: number): Buffer => {
    const hash = Buffer.alloc(16, 0x5a);
    hash.writeUInt32BE(n, 12);
    return hash;
  };
  const all = Buffer.concat(range(0, BLOCK_HASHES).map(like));
  loadChunk(all, 0);
  ring.append(chunk, BLOCK_HASHES, 0, 1);
  for (const n of [0, 1, 2000, 4095, 4096, 70000]) {
    loadChunk(like(n), 0);
    assert.equal(ring.has(chunk[0]!, chunk[1]!, chunk[2]!, chunk[3]!), n < BLOCK_HASHES, `n ${n}`);
  }
});

test('against a list: what is inside the window is always known, what was never added never', () => {
  const step = fc.record({
    count: fc.integer({ min: 1, max: 3000 }),
    seconds: fc.nat({ max: 40 }),
    repeat: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 15 }), (steps) => {
      const ring = new HashRing();
      const model: { id: number; at: number; offset: number }[] = [];
      let now = 0;
      let offset = 0;
      let nextId = 0;
      for (const { count, seconds, repeat } of steps) {
        now += seconds;
        const ids = range(repeat ? Math.max(0, nextId - 500) : nextId, count);
        nextId = Math.max(nextId, ids.at(-1)! + 1);
        append(ring, ids, offset, now);
        for (const [i, id] of ids.entries()) model.push({ id, at: now, offset: offset + i });
        offset += count;
        const dropped = ring.expire(now - 60);
        for (const m of model)
          if (m.offset <= dropped) assert.ok(m.at < now - 60, 'dropped inside the window');
        for (const m of model) if (m.at >= now - 60) assert.ok(has(ring, m.id), `lost id ${m.id}`);
        for (const id of range(nextId, 50)) assert.ok(!has(ring, id));
        assert.ok(ring.size <= model.length);
        assert.ok(ring.bytes <= ringBytes(ring.size) + 65536);
      }
    }),
    { numRuns: 25 },
  );
});

test('no more than a block is ever allocated, and the accounting is what is allocated', () => {
  const ring = new HashRing();
  assert.equal(ring.bytes, 0);
  let offset = 0;
  for (const count of [1, 15, 1, 100, 2000, 1979, 1, 4095]) {
    append(ring, range(offset, count), offset, 1);
    offset += count;
    assert.ok(ring.hotWords.byteLength <= BLOCK_HASHES * 16);
    assert.equal(ring.bytes, ring.sealedBlocks * (BLOCK_HASHES * 16 + 48) + ring.hotWords.byteLength);
  }
  assert.equal(ring.size, offset);
});
