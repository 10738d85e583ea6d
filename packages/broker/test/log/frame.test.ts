import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  decodeFrames,
  encodeFrames,
  type Frame,
  frameLength,
  MalformedSegment,
} from '../../src/log/frame.ts';
import { anyFrame, anyFrames } from './frames_arbitrary.ts';

const id = Buffer.from('000102030405060708090a0b0c0d0e0f', 'hex');
const trace = Buffer.from('f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff', 'hex');
const plain: Frame = {
  messageId: id,
  traceId: null,
  transactionId: 'tx',
  producerSub: null,
  encrypted: false,
  payload: Buffer.from('{"a":1}'),
};

test('the bytes of a frame, field by field', () => {
  assert.equal(
    encodeFrames([plain]).toString('hex'),
    `1c000000${'00'}000102030405060708090a0b0c0d0e0f${'0200'}7478${'7b2261223a317d'}`,
  );
  assert.equal(
    encodeFrames([{ ...plain, traceId: trace, producerSub: 'é', encrypted: true }]).toString('hex'),
    `30000000${'07'}000102030405060708090a0b0c0d0e0f${trace.toString('hex')}02007478${'0200c3a9'}7b2261223a317d`,
  );
  const smallest = { ...plain, transactionId: '', payload: Buffer.alloc(0) };
  assert.equal(encodeFrames([smallest]).readUInt32LE(0), 19);
  assert.deepEqual(decodeFrames(encodeFrames([smallest])), [smallest]);
});

test('round trip, lengths and slices of any frames', () => {
  fc.assert(
    fc.property(anyFrames, fc.nat(), fc.nat(), (frames, a, b) => {
      const bytes = encodeFrames(frames);
      assert.equal(
        bytes.length,
        frames.reduce((sum, frame) => sum + frameLength(frame), 0),
      );
      assert.deepEqual(decodeFrames(bytes), frames);
      if (frames.length === 0) return;
      const from = a % frames.length;
      const to = from + (b % (frames.length - from));
      assert.deepEqual(decodeFrames(bytes, from, to), frames.slice(from, to + 1));
      assert.deepEqual(decodeFrames(bytes, from, to, frames.length), frames.slice(from, to + 1));
    }),
  );
});

test('an empty buffer holds no frames', () => {
  assert.deepEqual(decodeFrames(Buffer.alloc(0)), []);
  assert.throws(() => decodeFrames(Buffer.alloc(0), 0, 0), MalformedSegment);
  assert.throws(() => decodeFrames(Buffer.alloc(0), 0, undefined, 1), MalformedSegment);
});

test('payloads are views, not copies', () => {
  const bytes = encodeFrames([plain]);
  const [frame] = decodeFrames(bytes);
  bytes[bytes.length - 1] = 0x21;
  assert.equal(frame!.payload.toString(), '{"a":1!');
});

test('a cut at any byte is refused unless it falls between two frames', () => {
  fc.assert(
    fc.property(fc.array(anyFrame, { minLength: 1, maxLength: 3 }), (frames) => {
      const bytes = encodeFrames(frames);
      const ends = new Map([[0, 0]]);
      let end = 0;
      for (const [i, frame] of frames.entries()) {
        end += frameLength(frame);
        ends.set(end, i + 1);
      }
      for (let cut = 0; cut < bytes.length; cut++) {
        const whole = ends.get(cut);
        const part = bytes.subarray(0, cut);
        if (whole === undefined) assert.throws(() => decodeFrames(part), MalformedSegment);
        else assert.equal(decodeFrames(part).length, whole);
        // With the number of frames known, no cut passes.
        assert.throws(() => decodeFrames(part, 0, undefined, frames.length), MalformedSegment);
      }
    }),
    { numRuns: 20 },
  );
});

test('a changed byte is refused or gives as many frames as before, never another number', () => {
  const frames = [
    plain,
    { ...plain, producerSub: 'someone', traceId: trace },
    { ...plain, transactionId: 'é' },
  ];
  const bytes = encodeFrames(frames);
  let refused = 0;
  for (let i = 0; i < bytes.length; i++) {
    for (let value = 0; value < 256; value++) {
      if (bytes[i] === value) continue;
      const damaged = Buffer.from(bytes);
      damaged[i] = value;
      try {
        assert.equal(decodeFrames(damaged, 0, undefined, frames.length).length, frames.length);
      } catch (error) {
        assert.ok(error instanceof MalformedSegment, `byte ${i} = ${value}: ${error}`);
        refused++;
      }
    }
  }
  assert.ok(refused > 1000, `${refused} refused`);
});

test('what the format does not know is refused', () => {
  const cases: [string, (bytes: Buffer) => void][] = [
    ['unknown flag', (b) => b.writeUInt8(8, 4)],
    ['body below the minimum', (b) => b.writeUInt32LE(18, 0)],
    ['trace id that is not there', (b) => b.writeUInt8(1, 4)],
    ['transactionId over the end', (b) => b.writeUInt16LE(0xffff, 21)],
    ['transactionId that is no UTF-8', (b) => b.writeUInt8(0xff, 23)],
    ['body over the end', (b) => b.writeUInt32LE(0xffffffff, 0)],
  ];
  for (const [name, damage] of cases) {
    const bytes = encodeFrames([plain]);
    damage(bytes);
    assert.throws(() => decodeFrames(bytes), MalformedSegment, name);
  }
  const replacement = { ...plain, transactionId: 'a\ufffdb' };
  assert.deepEqual(decodeFrames(encodeFrames([replacement])), [replacement]);
});

test('what the format cannot hold is not encoded', () => {
  const most = { ...plain, transactionId: 'x'.repeat(65_535), producerSub: 'é'.repeat(32_767) };
  assert.deepEqual(decodeFrames(encodeFrames([most])), [most]);
  const bad: Partial<Frame>[] = [
    { transactionId: 'x'.repeat(65_536) },
    { producerSub: 'é'.repeat(32_768) },
    { messageId: Buffer.alloc(15) },
    { traceId: Buffer.alloc(17) },
  ];
  for (const change of bad) assert.throws(() => encodeFrames([{ ...plain, ...change }]), RangeError);
});
