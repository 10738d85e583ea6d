import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { constants, zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import fc from 'fast-check';
import { encodeFrames, type Frame, MalformedSegment } from '../../src/log/frame.ts';
import { packSegment, SEGMENT_BYTES_MAX, unpackSegment } from '../../src/log/segment.ts';
import { anyFrames } from './frames_arbitrary.ts';

function frame(payload: Buffer | string, transactionId = 'tx'): Frame {
  return {
    messageId: Buffer.alloc(16, 7),
    traceId: null,
    transactionId,
    producerSub: null,
    encrypted: false,
    payload: Buffer.from(payload),
  };
}

/** What unpacking gives, with both ways of failing as one. */
async function attempt(blob: Buffer, count: number, from?: number, to?: number): Promise<Frame[] | Error> {
  try {
    return await unpackSegment(blob, count, from, to);
  } catch (error) {
    return error as Error;
  }
}

test('round trip and slices of any frames at several levels', async () => {
  await fc.assert(
    fc.asyncProperty(anyFrames, fc.constantFrom(1, 3, 9), fc.nat(), fc.nat(), async (frames, level, a, b) => {
      const blob = await packSegment(frames, level);
      assert.deepEqual(await unpackSegment(blob, frames.length), frames);
      if (frames.length === 0) return;
      const from = a % frames.length;
      const to = from + (b % (frames.length - from));
      assert.deepEqual(await unpackSegment(blob, frames.length, from, to), frames.slice(from, to + 1));
    }),
    { numRuns: 60 },
  );
});

test('small segments come at once, large ones from the pool, both the same', async () => {
  const small = [frame('1'), frame('2')];
  const blob = packSegment(small, 3);
  assert.ok(Buffer.isBuffer(blob));
  assert.ok(Array.isArray(unpackSegment(blob, 2)));
  // One compresses to almost nothing, the other not at all.
  for (const payload of [Buffer.alloc(3_000_000, 0x20), randomBytes(300_000)]) {
    const large = [frame(payload), frame('2')];
    const packing = packSegment(large, 3);
    assert.ok(packing instanceof Promise);
    const unpacking = unpackSegment(await packing, 2);
    assert.ok(unpacking instanceof Promise);
    assert.deepEqual(await unpacking, large);
  }
});

test('a small segment is a zstd frame like any other, with its content as it is', async () => {
  // Around the sizes at which the header grows, and at which compression begins.
  for (let bytes = 1; bytes < 600; bytes++) {
    const frames = [frame(randomBytes(bytes))];
    const raw = encodeFrames(frames);
    const blob = await packSegment(frames, 3);
    assert.deepEqual(zstdDecompressSync(blob), raw, `${bytes} bytes`);
    assert.equal(blob.includes(raw), true);
    assert.deepEqual(await unpackSegment(blob, 1), frames);
  }
  const repetitive = (bytes: number) => packSegment([frame(Buffer.alloc(bytes, 0x20))], 3);
  assert.ok((await repetitive(480)).length > 480);
  assert.ok((await repetitive(512)).length < 100);
});

test('a segment of any size that the compressor wrote is read, small ones too', async () => {
  for (const bytes of [1, 100, 400, 1_000, 10_000, 100_000]) {
    for (const payload of [randomBytes(bytes), Buffer.alloc(bytes, 0x20)]) {
      const raw = encodeFrames([frame(payload)]);
      const params = { [constants.ZSTD_c_checksumFlag]: 1 };
      const blob = zstdCompressSync(raw, { params, pledgedSrcSize: raw.length });
      assert.deepEqual(await unpackSegment(blob, 1), [frame(payload)]);
    }
  }
});

test('another number of frames than the row says is malformed', async () => {
  const blob = await packSegment([frame('1'), frame('2'), frame('3')], 3);
  for (const count of [0, 1, 2, 4, 1000]) {
    assert.ok((await attempt(blob, count)) instanceof MalformedSegment, `count ${count}`);
  }
  assert.ok((await attempt(blob, 3, 0, 3)) instanceof MalformedSegment);
});

test('a blob cut anywhere, or longer than it was, is malformed', async () => {
  const middle = [frame('{"a":1,"b":"xyz"}'.repeat(50))];
  for (const frames of [[frame('{"a":1}'), frame('[2]')], middle, [frame(randomBytes(70_000))]]) {
    const blob = await packSegment(frames, 3);
    const step = blob.length > 1000 ? 997 : 1;
    for (let cut = 0; cut < blob.length; cut += step) {
      assert.ok(
        (await attempt(blob.subarray(0, cut), frames.length)) instanceof MalformedSegment,
        `cut at ${cut}`,
      );
    }
    for (const tail of [Buffer.alloc(1), Buffer.alloc(4), blob, randomBytes(9)]) {
      const longer = Buffer.concat([blob, tail]);
      assert.ok(
        (await attempt(longer, frames.length)) instanceof MalformedSegment,
        `${tail.length} more bytes`,
      );
    }
  }
});

for (const [size, times] of [
  ['small', 1],
  ['larger', 40],
] as const) {
  test(`no flipped bit of a ${size} blob ever changes what is delivered`, () => flipped(times));
}

async function flipped(times: number): Promise<void> {
  const frames = [
    frame('{"a":1,"b":"xyz"}'.repeat(times), 'one'),
    frame('{"a":1,"b":"xyz"}'.repeat(times), 'two'),
    frame(randomBytes(20)),
  ];
  const blob = await packSegment(frames, 3);
  let refused = 0;
  for (let bit = 0; bit < blob.length * 8; bit++) {
    const damaged = Buffer.from(blob);
    damaged[bit >> 3]! ^= 1 << (bit & 7);
    const result = await attempt(damaged, frames.length);
    if (result instanceof MalformedSegment) refused++;
    // Some bits of the compressed form carry nothing: then the content is untouched.
    else assert.deepEqual(result, frames, `bit ${bit}`);
  }
  assert.ok(refused > blob.length * 7, `${refused} of ${blob.length * 8} refused`);
}

test('a flipped byte of a large blob is malformed, not another payload', async () => {
  const frames = [frame(randomBytes(200_000))];
  const blob = await packSegment(frames, 3);
  for (let at = 20; at < blob.length; at += 19_997) {
    const damaged = Buffer.from(blob);
    damaged[at]! ^= 0x10;
    assert.ok((await attempt(damaged, 1)) instanceof MalformedSegment, `byte ${at}`);
  }
});

test('random bytes are malformed', async () => {
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), fc.boolean(), async (bytes, magic) => {
      const blob = Buffer.from(bytes);
      if (magic && blob.length >= 4) blob.writeUInt32LE(0xfd2fb528, 0);
      assert.ok((await attempt(blob, 1)) instanceof MalformedSegment);
    }),
    { numRuns: 300 },
  );
});

test('a frame without its size or checksum is read all the same', async () => {
  const frames = [frame('1'), frame('2')];
  const raw = encodeFrames(frames);
  const params = { [constants.ZSTD_c_contentSizeFlag]: 0, [constants.ZSTD_c_checksumFlag]: 0 };
  assert.deepEqual(await attempt(zstdCompressSync(raw, { params }), 2), frames);
  assert.deepEqual(await attempt(zstdCompressSync(raw), 2), frames);
});

test('a bomb is refused by its header, or by what it would produce', async () => {
  const declared = Buffer.from(await packSegment([frame('1')], 3));
  assert.equal(declared[4]! >> 6, 0);
  // A header that announces 2^33 bytes.
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(1n << 33n);
  const header = Buffer.concat([declared.subarray(0, 4), Buffer.from([0xe4]), size]);
  const bomb = Buffer.concat([header, declared.subarray(6)]);
  const result = await attempt(bomb, 1);
  assert.ok(result instanceof MalformedSegment && /limit/.test(result.message), String(result));
  // A header that announces less than there is.
  const lying = Buffer.from(await packSegment([frame('1'.repeat(200))], 3));
  lying[5] = 100;
  assert.ok((await attempt(lying, 1)) instanceof MalformedSegment);
});

test('a segment above the limit is not packed', () => {
  const huge = frame(Buffer.alloc(0));
  const payload = Buffer.alloc(SEGMENT_BYTES_MAX / 64);
  const frames = Array.from({ length: 64 }, () => ({ ...huge, payload }));
  assert.throws(() => packSegment(frames, 1), RangeError);
});
