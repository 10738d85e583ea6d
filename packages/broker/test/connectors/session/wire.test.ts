/** The strict protocol layer: every message in whatever pieces it comes, and nothing that is not exactly one. */
import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { ProtocolViolation } from '../../../src/connectors/postgres/replication/pgoutput.ts';
import { strictWire } from '../../../src/connectors/postgres/session/wire.ts';

const int16 = (value: number) => {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
};
const int32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
};
const text = (value: string) => Buffer.from(`${value}\0`);
const join = (...parts: Buffer[]) => Buffer.concat(parts);
const message = (kind: string, ...body: Buffer[]) => {
  const bytes = join(...body);
  return join(Buffer.from(kind), int32(bytes.length + 4), bytes);
};
const field = (name: string) =>
  join(text(name), int32(1), int16(2), int32(23), int16(4), int32(-1), int16(0));

/** One of each kind that pg knows, with the name of its event. */
const MESSAGES: readonly [event: string, bytes: Buffer][] = [
  ['authenticationOk', message('R', int32(0))],
  ['authenticationCleartextPassword', message('R', int32(3))],
  ['authenticationMD5Password', message('R', int32(5), Buffer.from('salt'))],
  ['authenticationSASL', message('R', int32(10), text('SCRAM-SHA-256'), text(''))],
  ['authenticationSASLContinue', message('R', int32(11), Buffer.from('r=x,s=y,i=1'))],
  ['authenticationSASLFinal', message('R', int32(12), Buffer.from('v=x'))],
  ['parameterStatus', message('S', text('TimeZone'), text('UTC'))],
  ['backendKeyData', message('K', int32(1), int32(2))],
  ['readyForQuery', message('Z', Buffer.from('I'))],
  ['parseComplete', message('1')],
  ['bindComplete', message('2')],
  ['closeComplete', message('3')],
  ['noData', message('n')],
  ['portalSuspended', message('s')],
  ['emptyQuery', message('I')],
  ['parameterDescription', message('t', int16(2), int32(23), int32(25))],
  ['rowDescription', message('T', int16(2), field('a'), field('b'))],
  ['dataRow', message('D', int16(2), int32(-1), int32(3), Buffer.from('abc'))],
  ['commandComplete', message('C', text('SELECT 1'))],
  [
    'errorMessage',
    message('E', text('SFEHLER'), text('VERROR'), text('C22012'), text('Mdivision'), Buffer.of(0)),
  ],
  ['notice', message('N', text('SNOTICE'), text('C00000'), text('Mhello'), Buffer.of(0))],
  ['notification', message('A', int32(7), text('channel'), text('payload'))],
  ['copyInResponse', message('G', Buffer.of(0), int16(1), int16(0))],
  ['copyOutResponse', message('H', Buffer.of(0), int16(0))],
  ['replicationStart', message('W', Buffer.of(0), int16(0))],
  ['copyData', message('d', Buffer.from('bytes'))],
  ['copyDone', message('c')],
];

class Line extends Duplex {
  override _read(): void {}
  override _write(_chunk: unknown, _encoding: unknown, done: () => void): void {
    done();
  }
}

/** Feeds these pieces one after the other: the events that came, and what the socket was destroyed with. */
function feed(pieces: readonly Buffer[], rows: 'raw' | 'decoded' = 'decoded') {
  const line = new Line();
  const events: [string, Record<string, unknown>][] = [];
  const wire = strictWire(line as unknown as Socket, rows);
  for (const event of new Set(MESSAGES.map(([name]) => name))) {
    wire.on(event, (content: Record<string, unknown>) => {
      // What is a view into the received bytes means something only now.
      events.push([event, JSON.parse(JSON.stringify(content)) as Record<string, unknown>]);
    });
  }
  line.on('error', () => {});
  (wire as unknown as { attachListeners(stream: Duplex): void }).attachListeners(line);
  // Copies: the parser gathers pieces in the buffers that it was given.
  for (const piece of pieces) if (!line.destroyed) line.emit('data', Buffer.from(piece));
  return { names: events.map(([name]) => name), events, error: line.errored };
}

test('every kind of message, in one piece, in single bytes, and cut at every place', () => {
  const all = join(...MESSAGES.map(([, bytes]) => bytes));
  const whole = feed([all]);
  assert.deepEqual(
    whole.names,
    MESSAGES.map(([name]) => name),
  );
  assert.equal(whole.error, null);
  const error = whole.events.find(([name]) => name === 'errorMessage')![1];
  assert.equal(error.severity, 'ERROR', 'the word that is not translated');
  const shape = ({ events }: ReturnType<typeof feed>) => JSON.stringify(events);
  assert.equal(shape(feed(Array.from(all, (byte) => Buffer.of(byte)))), shape(whole));
  for (let at = 1; at < all.length; at++) {
    assert.equal(shape(feed([all.subarray(0, at), all.subarray(at)])), shape(whole), `cut at ${at}`);
  }
});

test('a message that has ended early or late is none', () => {
  for (const [name, bytes] of MESSAGES) {
    // Of the start of a copy nothing is read, of raw rows and copied bytes everything belongs to them.
    if (
      ['replicationStart', 'copyData', 'authenticationSASLContinue', 'authenticationSASLFinal'].includes(name)
    )
      continue;
    const longer = join(bytes, Buffer.of(1));
    longer.writeInt32BE(longer.length - 1, 1);
    const late = feed([join(longer, MESSAGES[8]![1])]);
    assert.ok(
      late.error instanceof Error && !late.names.includes('readyForQuery'),
      `${name} with a byte more`,
    );
    if (bytes.length === 5) continue;
    const shorter = Buffer.from(bytes.subarray(0, -1));
    shorter.writeInt32BE(shorter.length - 1, 1);
    const early = feed([join(shorter, MESSAGES[8]![1])]);
    assert.ok(early.error instanceof Error, `${name} with a byte less: ${early.names}`);
  }
});

test('unknown kinds and absurd lengths are told from the head alone', () => {
  for (let kind = 0; kind < 256; kind++) {
    const known = MESSAGES.some(([, bytes]) => bytes[0] === kind);
    const head = join(Buffer.of(kind), int32(100));
    assert.equal(feed([head]).error instanceof ProtocolViolation, !known, `kind ${kind}`);
  }
  for (const length of [0, 3, 0x4002_0000, 0x7fff_ffff, -1]) {
    assert.ok(
      feed([join(Buffer.from('D'), int32(length))], 'raw').error instanceof ProtocolViolation,
      `${length}`,
    );
  }
  assert.equal(feed([join(Buffer.from('D'), int32(0x4000_0000))], 'raw').error, null);
  for (const code of [1, 2, 4, 6, 7, 8, 9, 13, -1])
    assert.ok(feed([message('R', int32(code))]).error instanceof Error);
  assert.ok(
    feed([message('R', int32(3), int32(0))]).error instanceof Error,
    'a password asked for at length',
  );
});
