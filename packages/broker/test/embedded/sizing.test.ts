import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { serverSettings, sizeServer } from '../../src/store/embedded/sizing.ts';

const GIB = 1024 ** 3;

test('small and large machines get what fits them', () => {
  const small = sizeServer({ memoryBytes: GIB / 2, freeDiskBytes: 4 * GIB }, 24);
  assert.equal(small.sharedBuffersMb, 64);
  assert.equal(small.maxWalMb, 256);
  assert.equal(small.maxConnections, 100);
  const large = sizeServer({ memoryBytes: 64 * GIB, freeDiskBytes: 1000 * GIB }, 160);
  assert.equal(large.sharedBuffersMb, 1024);
  assert.equal(large.maxWalMb, 4096);
  assert.equal(large.maxConnections, 200);
});

test('whatever the machine, the figures are ones that the server takes', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 64 * 1024 ** 2, max: 4096 * GIB }),
      fc.integer({ min: 0, max: 4096 * GIB }),
      fc.integer({ min: 1, max: 2000 }),
      (memoryBytes, freeDiskBytes, poolSize) => {
        const sizing = sizeServer({ memoryBytes, freeDiskBytes }, poolSize);
        for (const value of Object.values(sizing)) assert.ok(Number.isSafeInteger(value) && value > 0);
        assert.ok(sizing.maxConnections >= poolSize + 40);
        // Two segments of 16 MB are the least that the server accepts for either.
        assert.ok(sizing.minWalMb >= 32 && sizing.minWalMb <= sizing.maxWalMb);
      },
    ),
  );
});

test('only a server that is thrown away may be without durability', () => {
  const sizing = sizeServer({ memoryBytes: GIB, freeDiskBytes: GIB }, 10);
  for (const [durable, expected] of [
    [true, 'on'],
    [false, 'off'],
  ] as const) {
    const settings = serverSettings(sizing, durable);
    assert.equal(settings.fsync, expected);
    assert.equal(settings.synchronous_commit, expected);
    assert.equal(settings.full_page_writes, expected);
  }
});
