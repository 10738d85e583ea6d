import { BodyFault } from './fault.ts';
import { JsonReader, KEYS_END, type KnownKeys } from './reader.ts';

/**
 * The exact bytes of the members `known` of a JSON object, as views into `body`; null for one that is not there. Of
 * a repeated key the last occurrence counts, as in JSON.parse. Throws BodyFault when `body` is no JSON object.
 */
export function valueSpans(body: Buffer, known: KnownKeys): (Buffer | null)[] {
  const reader = objectReader(body);
  const spans: (Buffer | null)[] = known.names.map(() => null);
  for (let key = reader.firstKey(known); key !== KEYS_END; key = reader.nextKey(known)) {
    const start = reader.at;
    const end = reader.skip();
    if (key >= 0) spans[key] = body.subarray(start, end);
  }
  reader.end();
  return spans;
}

/** The exact bytes of the elements of a JSON array, as views into `body`. Throws BodyFault when it is no array. */
export function elementSpans(body: Buffer): Buffer[] {
  const reader = new JsonReader(body);
  const spans = [...elementSpansAt(reader)];
  reader.end();
  return spans;
}

/**
 * The same of the array at the reader's place, one after the other and none ahead of time: who has seen enough stops. After
 * the last one the array is consumed.
 */
export function* elementSpansAt(reader: JsonReader): Generator<Buffer, void> {
  if (reader.kind() !== 'array') throw new BodyFault('', 'a JSON array is expected');
  for (let more = reader.firstElement(); more; more = reader.nextElement()) {
    const start = reader.at;
    yield reader.bytes.subarray(start, reader.skip());
  }
}

/** Stands at an object. Throws BodyFault when `body` is none. */
export function objectReader(body: Buffer): JsonReader {
  const reader = new JsonReader(body);
  if (reader.kind() !== 'object') throw new BodyFault('', 'a JSON object is expected');
  return reader;
}
