import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { encodeSpoolRecord, type SpoolRecord, spoolPieces } from '../../src/log/spool_record.ts';
import { anyFrame } from './frames_arbitrary.ts';

const name = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 20 }),
  fc.constantFrom(',"payload":', '"', '\\', '{"crc":"', 'ü'),
);
const anyRecord: fc.Arbitrary<SpoolRecord> = fc.record(
  { tenant: fc.uuid(), queue: name, partition: name, frame: anyFrame, more: fc.boolean() },
  { noNullPrototype: true },
);

function read(file: Buffer): { records: SpoolRecord[]; faults: string[]; torn: boolean; end: number } {
  const out = { records: [] as SpoolRecord[], faults: [] as string[], torn: false, end: 0 };
  for (const piece of spoolPieces(file)) {
    assert.equal(piece.at, out.end, 'pieces touch');
    out.end = piece.end;
    if ('record' in piece) out.records.push(piece.record);
    else {
      out.faults.push(piece.fault);
      out.torn = piece.torn;
    }
  }
  assert.equal(out.end, file.length, 'to the end');
  return out;
}

test('records come back as they were written, payloads byte for byte', () => {
  fc.assert(
    fc.property(fc.array(anyRecord, { maxLength: 8 }), (records) => {
      const { records: got, faults } = read(Buffer.concat(records.map(encodeSpoolRecord)));
      assert.deepEqual(got, records);
      assert.deepEqual(faults, []);
    }),
  );
});

test('the length and the JSON are plain', () => {
  const payload = Buffer.from('{"b":1.0,"b":2}');
  const frame = {
    messageId: Buffer.alloc(16, 7),
    traceId: null,
    transactionId: 't',
    producerSub: 's',
    encrypted: false,
    payload,
  };
  const bytes = encodeSpoolRecord({ tenant: 'x', queue: 'q', partition: 'p', frame, more: false });
  assert.equal(bytes.readUInt32LE(), bytes.length - 4);
  const { crc, ...rest } = JSON.parse(bytes.toString('utf8', 4)) as Record<string, unknown>;
  assert.match(String(crc), /^[0-9a-f]{8}$/);
  assert.deepEqual(rest, {
    queue: 'q',
    partition: 'p',
    tenant: 'x',
    id: '07070707-0707-0707-0707-070707070707',
    txn: 't',
    sub: 's',
    encrypted: false,
    payload: { b: 2 },
  });
  assert.ok(bytes.includes(payload));
});

test('a file that ends anywhere has every record before that, and a torn end', () => {
  fc.assert(
    fc.property(fc.array(anyRecord, { minLength: 1, maxLength: 5 }), fc.nat(), (records, at) => {
      const parts = records.map(encodeSpoolRecord);
      const whole = Buffer.concat(parts);
      const cut = at % (whole.length + 1);
      const { records: got, faults, torn } = read(whole.subarray(0, cut));
      let end = 0;
      let complete = 0;
      for (const part of parts) {
        if (end + part.length > cut) break;
        end += part.length;
        complete++;
      }
      assert.deepEqual(got, records.slice(0, complete));
      assert.deepEqual([faults.length, torn], end === cut ? [0, false] : [1, true]);
      // Space that was allotted and never written.
      const padded = read(Buffer.concat([whole.subarray(0, end), Buffer.alloc(100)]));
      assert.deepEqual([padded.records.length, padded.torn], [complete, true]);
    }),
  );
});

test('whatever is damaged is found, and costs no record but its own', () => {
  fc.assert(
    fc.property(
      fc.array(anyRecord, { minLength: 1, maxLength: 5 }),
      fc.nat(),
      fc.integer({ min: 1, max: 255 }),
      (records, at, flip) => {
        const parts = records.map(encodeSpoolRecord);
        const file = Buffer.concat(parts);
        const place = at % file.length;
        let hit = 0;
        for (let end = parts[0]!.length; end <= place; end += parts[hit]!.length) hit++;
        const begin = parts.slice(0, hit).reduce((sum, part) => sum + part.length, 0);
        file[place] = file[place]! ^ flip;
        const { records: got, faults } = read(file);
        assert.ok(faults.length >= 1);
        assert.deepEqual(got.slice(0, hit), records.slice(0, hit), 'what lies before it');
        // Behind a length that is wrong nothing can be found.
        if (place - begin >= 4) assert.deepEqual(got.slice(hit), records.slice(hit + 1));
        else for (const record of got.slice(hit)) assert.ok(records.some((one) => sameText(one, record)));
      },
    ),
    { numRuns: 300 },
  );
});

test('bytes that were never records are one fault', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 1, maxLength: 300 }), (bytes) => {
      const { records, faults } = read(Buffer.from(bytes));
      assert.deepEqual(records, []);
      assert.ok(faults.length >= 1);
    }),
  );
});

function sameText(a: SpoolRecord, b: SpoolRecord): boolean {
  return encodeSpoolRecord(a).equals(encodeSpoolRecord(b));
}
