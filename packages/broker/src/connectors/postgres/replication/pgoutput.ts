/**
 * The messages of the `pgoutput` plug-in, protocol version 1, decoded in place: a tuple is a list of positions in the
 * received bytes, so that a change is rendered from them without a string or an object a cell.
 *
 * Strict: lengths, counts and trailing bytes must be exact, and a message of an unknown kind is an error. A decoder
 * that is off by one byte would write wrong values into queues without anybody noticing.
 *
 * Source: "Logical Replication Message Formats" in PostgreSQL's documentation (18, chapter 54.9).
 */

/** What cannot be a message of the plug-in. The connection is given up. */
export class ProtocolViolation extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ProtocolViolation';
  }
}

export const CELL = { null: 0, unchanged: 1, text: 2 } as const;

/** One version of a row. Cell `i` is `bytes[starts[i]..ends[i]]` if its kind is text. */
export interface Tuple {
  readonly bytes: Buffer;
  /** Of {@link CELL}. */
  readonly kinds: Uint8Array;
  readonly starts: Uint32Array;
  readonly ends: Uint32Array;
}

interface RelationColumn {
  readonly name: string;
  /** Part of the replica identity's key. */
  readonly key: boolean;
  readonly typeOid: number;
  readonly typeModifier: number;
}

export interface Relation {
  readonly kind: 'relation';
  readonly oid: number;
  readonly schema: string;
  readonly name: string;
  /** `d` default, `n` nothing, `f` full, `i` index. */
  readonly identity: string;
  readonly columns: readonly RelationColumn[];
}

/** LSNs are absolute; times are microseconds since 1970 UTC. */
export type PgoutputMessage =
  | {
      readonly kind: 'begin';
      readonly commitLsn: bigint;
      readonly commitMicros: bigint;
      readonly xid: number;
    }
  | {
      readonly kind: 'commit';
      readonly commitLsn: bigint;
      readonly endLsn: bigint;
      readonly commitMicros: bigint;
    }
  | Relation
  | { readonly kind: 'insert'; readonly relation: number; readonly after: Tuple }
  | {
      readonly kind: 'update';
      readonly relation: number;
      /** `K`: `before` holds the old key, `O`: the whole old row. Null: neither was sent. */
      readonly identity: 'K' | 'O' | null;
      readonly before: Tuple | null;
      readonly after: Tuple;
    }
  | {
      readonly kind: 'delete';
      readonly relation: number;
      readonly identity: 'K' | 'O';
      readonly before: Tuple;
    }
  | {
      readonly kind: 'truncate';
      readonly relations: readonly number[];
      readonly cascade: boolean;
      readonly restartIdentity: boolean;
    }
  | {
      readonly kind: 'message';
      readonly transactional: boolean;
      readonly lsn: bigint;
      readonly prefix: string;
      readonly content: Buffer;
    }
  | { readonly kind: 'type' }
  | { readonly kind: 'origin' };

/** Microseconds from 1970 to 2000, where PostgreSQL's clock begins. */
const EPOCH_MICROS = 946_684_800_000_000n;

/** The message that `bytes` holds, from `start` (inclusive) to `end` (exclusive). Throws ProtocolViolation. */
export function decodePgoutput(bytes: Buffer, start = 0, end = bytes.length): PgoutputMessage {
  const reader = new Reader(bytes, start, end);
  const message = decode(reader);
  reader.finish();
  return message;
}

function decode(reader: Reader): PgoutputMessage {
  const kind = reader.letter();
  switch (kind) {
    case 'B':
      return {
        kind: 'begin',
        commitLsn: reader.lsn(),
        commitMicros: reader.micros(),
        xid: reader.uint32(),
      };
    case 'C':
      reader.flags(0, 'commit');
      return { kind: 'commit', commitLsn: reader.lsn(), endLsn: reader.lsn(), commitMicros: reader.micros() };
    case 'R':
      return relation(reader);
    case 'I': {
      const oid = reader.uint32();
      reader.expect('N');
      return { kind: 'insert', relation: oid, after: reader.tuple() };
    }
    case 'U':
      return update(reader);
    case 'D': {
      const oid = reader.uint32();
      const identity = reader.letter();
      if (identity !== 'K' && identity !== 'O') throw reader.fault(`a deleted row of kind '${identity}'`);
      return { kind: 'delete', relation: oid, identity, before: reader.tuple() };
    }
    case 'T':
      return truncate(reader);
    case 'M': {
      const flags = reader.flags(1, 'message');
      const lsn = reader.lsn();
      const prefix = reader.text();
      return { kind: 'message', transactional: flags === 1, lsn, prefix, content: reader.counted() };
    }
    case 'Y':
      reader.uint32();
      reader.text();
      reader.text();
      return { kind: 'type' };
    case 'O':
      reader.lsn();
      reader.text();
      return { kind: 'origin' };
    default:
      throw reader.fault(`a message of kind '${kind}'`);
  }
}

function relation(reader: Reader): Relation {
  const oid = reader.uint32();
  const schema = reader.text();
  const name = reader.text();
  const identity = reader.letter();
  if (!'dnfi'.includes(identity)) throw reader.fault(`a replica identity '${identity}'`);
  const columns = Array.from({ length: reader.count() }, (): RelationColumn => {
    const key = reader.flags(1, 'column') === 1;
    return { key, name: reader.text(), typeOid: reader.uint32(), typeModifier: reader.int32() };
  });
  // An empty schema stands for the catalog's.
  return { kind: 'relation', oid, schema: schema === '' ? 'pg_catalog' : schema, name, identity, columns };
}

function update(reader: Reader): PgoutputMessage {
  const oid = reader.uint32();
  let letter = reader.letter();
  let identity: 'K' | 'O' | null = null;
  let before: Tuple | null = null;
  if (letter === 'K' || letter === 'O') {
    identity = letter;
    before = reader.tuple();
    letter = reader.letter();
  }
  if (letter !== 'N') throw reader.fault(`an updated row of kind '${letter}'`);
  return { kind: 'update', relation: oid, identity, before, after: reader.tuple() };
}

function truncate(reader: Reader): PgoutputMessage {
  const count = reader.uint32();
  const flags = reader.flags(3, 'truncate');
  reader.atLeast(4 * count);
  return {
    kind: 'truncate',
    cascade: (flags & 1) !== 0,
    restartIdentity: (flags & 2) !== 0,
    relations: Array.from({ length: count }, () => reader.uint32()),
  };
}

class Reader {
  readonly #bytes: Buffer;
  readonly #end: number;
  #at: number;

  constructor(bytes: Buffer, start: number, end: number) {
    this.#bytes = bytes;
    this.#at = start;
    this.#end = end;
  }

  fault(what: string): ProtocolViolation {
    return new ProtocolViolation(`the replication stream is not understood: ${what} at byte ${this.#at}`);
  }

  finish(): void {
    const left = this.#end - this.#at;
    if (left !== 0) throw this.fault(`${left} bytes behind a message`);
  }

  atLeast(bytes: number): void {
    if (bytes > this.#end - this.#at) throw this.fault('a message ends too early');
  }

  letter(): string {
    return String.fromCharCode(this.#uint8());
  }

  expect(letter: string): void {
    const found = this.letter();
    if (found !== letter) throw this.fault(`'${found}' instead of '${letter}'`);
  }

  /** A byte that may have the bits of `known` set. */
  flags(known: number, of: string): number {
    const flags = this.#uint8();
    if ((flags & ~known) !== 0) throw this.fault(`unknown flags ${flags} of a ${of}`);
    return flags;
  }

  count(): number {
    this.atLeast(2);
    const value = this.#bytes.readUInt16BE(this.#at);
    this.#at += 2;
    return value;
  }

  uint32(): number {
    this.atLeast(4);
    const value = this.#bytes.readUInt32BE(this.#at);
    this.#at += 4;
    return value;
  }

  int32(): number {
    return this.uint32() | 0;
  }

  lsn(): bigint {
    this.atLeast(8);
    const value = this.#bytes.readBigUInt64BE(this.#at);
    this.#at += 8;
    return value;
  }

  micros(): bigint {
    return BigInt.asIntN(64, this.lsn()) + EPOCH_MICROS;
  }

  /** Ends with a zero byte. */
  text(): string {
    const end = this.#bytes.indexOf(0, this.#at);
    if (end < 0 || end >= this.#end) throw this.fault('a name without an end');
    const value = this.#bytes.toString('utf8', this.#at, end);
    this.#at = end + 1;
    return value;
  }

  /** Bytes behind their length. A view. */
  counted(): Buffer {
    const length = this.uint32();
    this.atLeast(length);
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  tuple(): Tuple {
    const count = this.count();
    this.atLeast(count);
    const kinds = new Uint8Array(count);
    const starts = new Uint32Array(count);
    const ends = new Uint32Array(count);
    for (let i = 0; i < count; i++) {
      const kind = this.#uint8();
      if (kind === 0x6e) continue;
      if (kind === 0x75) {
        kinds[i] = CELL.unchanged;
        continue;
      }
      // Binary cells were never asked for.
      if (kind !== 0x74) throw this.fault(`a cell of kind '${String.fromCharCode(kind)}'`);
      const length = this.uint32();
      this.atLeast(length);
      kinds[i] = CELL.text;
      starts[i] = this.#at;
      this.#at += length;
      ends[i] = this.#at;
    }
    return { bytes: this.#bytes, kinds, starts, ends };
  }

  #uint8(): number {
    this.atLeast(1);
    return this.#bytes[this.#at++]!;
  }
}
