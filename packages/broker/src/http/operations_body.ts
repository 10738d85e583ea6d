/**
 * Bodies with a list of operations, as KV and timers have them. A body may be as large as any, and what a call may hold is
 * judged later: so they are walked one by one, somebody else gets a turn now and then, and what no call can have is not
 * read to its end.
 */
import { setImmediate } from 'node:timers/promises';
import { TURN_BYTES } from '../log/json/push_body.ts';
import { type JsonReader, KEYS_END, knownKeys } from '../log/json/reader.ts';
import { elementSpansAt, objectReader } from '../log/json/spans.ts';

/** Lets the event loop run. */
export type Turn = () => Promise<void>;

export const turn: Turn = () => setImmediate();

/** More than any call takes; who counts exactly is the engine. */
export const OPERATIONS_READ_MAX = 4_096;

const BODY_KEYS = knownKeys('operations');

/**
 * The operations of the array at the reader's place. Throws BodyFault, and what `read` throws. Null: there are more of them
 * than {@link OPERATIONS_READ_MAX}.
 */
export async function readElements<T>(
  reader: JsonReader,
  turn: Turn,
  read: (span: Buffer, index: number) => T,
): Promise<T[] | null> {
  const operations: T[] = [];
  let turnAt = reader.at + TURN_BYTES;
  for (const span of elementSpansAt(reader)) {
    if (operations.length === OPERATIONS_READ_MAX) return null;
    operations.push(read(span, operations.length));
    if (reader.at < turnAt) continue;
    turnAt = reader.at + TURN_BYTES;
    await turn();
  }
  return operations;
}

/** What `read` makes of the member `operations` of a body; null: it has none. Throws BodyFault, and what `read` throws. */
export async function readOperationsMember<T>(
  body: Buffer,
  read: (reader: JsonReader) => Promise<T>,
): Promise<T | null> {
  const reader = objectReader(body);
  let operations: T | null = null;
  for (let key = reader.firstKey(BODY_KEYS); key !== KEYS_END; key = reader.nextKey(BODY_KEYS)) {
    if (key < 0) reader.skip();
    else operations = await read(reader);
  }
  reader.end();
  return operations;
}

/** A value as a refusal quotes it. */
export function shown(value: unknown): string {
  if (value === undefined) return 'missing';
  const text = JSON.stringify(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
