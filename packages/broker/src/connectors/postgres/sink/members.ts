/** The top level of a message: which of the columns it names, and the bytes of their values. */
import { type JsonKind, JsonReader, KEYS_END, type KnownKeys } from '../../../log/json/reader.ts';

export interface Members {
  /** How many stand in the text, unknown and repeated ones included. */
  readonly count: number;
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
  let count = 0;
  let sorted = true;
  for (let key = reader.firstKey(known); key !== KEYS_END; key = reader.nextKey(known)) {
    const from = reader.at;
    const to = reader.skip();
    count++;
    if (key < 0) continue;
    if (spans[key] === undefined) {
      if (named.length > 0 && named[named.length - 1]! > key) sorted = false;
      named.push(key);
    }
    spans[key] = bytes.subarray(from, to);
  }
  if (!sorted) named.sort((a, b) => a - b);
  return { count, spans, named };
}

export function isNull(span: Buffer): boolean {
  return span.length === 4 && span[0] === 0x6e;
}
