/** Frames for property tests: every combination of optional fields, odd texts, any payload bytes. */
import fc from 'fast-check';
import type { Frame } from '../../src/log/frame.ts';

const bytes16 = fc.uint8Array({ minLength: 16, maxLength: 16 }).map((a) => Buffer.from(a));
const text = fc.string({ unit: 'binary', maxLength: 24 });

export const anyFrame: fc.Arbitrary<Frame> = fc.record(
  {
    messageId: bytes16,
    traceId: fc.option(bytes16),
    transactionId: text,
    producerSub: fc.option(text),
    encrypted: fc.boolean(),
    payload: fc.uint8Array({ maxLength: 60 }).map((a) => Buffer.from(a)),
  },
  { noNullPrototype: true },
);

export const anyFrames = fc.array(anyFrame, { maxLength: 12 });
