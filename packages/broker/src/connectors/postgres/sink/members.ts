/** The top level of a message: which of the columns it names, and the bytes of their values. */
import { type JsonKind, JsonReader, KEYS_END, type KnownKeys } from '../../../log/json/reader.ts';
import { PayloadFault } from './faults.ts';

export interface Members {
  /** By the position of the known key; undefined: not named. */
  readonly spans: readonly (Buffer | undefined)[];
  /** Positions that are named, ascending. */
  readonly named: readonly number[];
}

const KINDS: Readonly<Record<JsonKind, string>> = {
  object: 'an object',
  array: 'an array',
  string: 'a string',
  number: 'a number',
  boolean: 'a boolean',
  null: 'null',
};

/** What kind of JSON value it is, with its article; for sentences. */
export function kindOf(bytes: Buffer): string {
  return KINDS[new JsonReader(bytes).kind()];
}

/** Members of a JSON object; null when it is another value. Of a repeated key the last one counts. */
export function membersOf(bytes: Buffer, known: KnownKeys): Members | null {
  const reader = new JsonReader(bytes);
  if (reader.kind() !== 'object') return null;
  const spans = new Array<Buffer | undefined>(known.names.length);
  const named: number[] = [];
  let sorted = true;
  for (let key = reader.firstKey(known); key !== KEYS_END; key = reader.nextKey(known)) {
    const from = reader.at;
    const to = reader.skip();
    if (key < 0) continue;
    if (spans[key] === undefined) {
      if (named.length > 0 && named[named.length - 1]! > key) sorted = false;
      named.push(key);
    }
    spans[key] = bytes.subarray(from, to);
  }
  if (!sorted) named.sort((a, b) => a - b);
  return { spans, named };
}

/** Throws PayloadFault when the message is no object. */
export function objectMembers(bytes: Buffer, known: KnownKeys): Members {
  const members = membersOf(bytes, known);
  if (members === null) throw new PayloadFault(`not a JSON object (${kindOf(bytes)})`);
  return members;
}

export function isNull(span: Buffer): boolean {
  return span.length === 4 && span[0] === 0x6e;
}
