/**
 * From a source's change event to what it does to the copy.
 *
 * The key is the copy's own: its columns are looked for in `after`, and for the old row in `before`, which under another key
 * than the source's only a whole old row can answer.
 */
import { JsonReader, KEYS_END, knownKeys } from '../../../log/json/reader.ts';
import { PayloadFault } from './faults.ts';
import { isNull, kindOf, type Members, membersOf } from './members.ts';
import type { Message } from './message.ts';
import type { Operation, RowOperation } from './operations.ts';
import { keyOfRow, recordFor, recordOf, Shapes } from './row_reader.ts';
import type { Target } from './target.ts';

const EVENT = knownKeys('op', 'key', 'after', 'before', 'unchanged', 'restartIdentity');
const OPS = 'c, r, u, d or t';

interface Event {
  readonly op: string;
  readonly key: Buffer | null;
  readonly after: Buffer | null;
  readonly before: Buffer | null;
  readonly unchanged: Buffer | null;
  readonly restartIdentity: boolean;
}

export class EventReader {
  readonly #target: Target;
  readonly #shapes: Shapes;
  readonly #keyColumns: readonly number[];
  readonly #byName: ReadonlyMap<string, number>;

  constructor(target: Target) {
    this.#target = target;
    this.#shapes = new Shapes(target, false, true);
    this.#keyColumns = target.key.map(({ column }) => column);
    this.#byName = new Map(target.columns.map(({ name }, column) => [name, column]));
  }

  /** Throws PayloadFault. */
  read(message: Message): Operation {
    const event = eventOf(message.payload);
    switch (event.op) {
      case 'c':
      case 'r':
        return this.#write(event, false);
      case 'u':
        return this.#write(event, true);
      case 'd':
        return this.#delete(event);
      case 't':
        return { kind: 'truncate', shape: '', keys: [], bytes: 0, restartIdentity: event.restartIdentity };
      default:
        throw new PayloadFault(`op is ${JSON.stringify(event.op.slice(0, 32))}, not ${OPS}`);
    }
  }

  /**
   * An update that does not name all columns, since some were left unchanged: of a row that is not there it makes no whole
   * one. So does a row under a new key that was gone from there before its large values could be read.
   */
  isPartial(message: Message): boolean {
    const { op, unchanged } = eventOf(message.payload);
    return (op === 'u' || op === 'c') && unchanged !== null && this.read(message).kind === 'partial';
  }

  /**
   * A partial update of a row that is not there is completed by what follows for the same row: a fill brings the rest of
   * the columns, a deletion ends it. Answers the first message with what it lacked and how many of the messages that took;
   * null: what follows is not here yet. What completed it is applied after it once more, to the same effect.
   */
  complete([first, ...later]: readonly Message[]): { message: Message; messages: number } | null {
    const [key] = this.read(first!).keys;
    let message = first!;
    for (const [index, next] of later.entries()) {
      const { kind, keys } = this.read(next);
      const messages = index + 2;
      if (
        kind === 'truncate' ||
        (kind === 'delete' && keys[0] === key) ||
        (kind === 'move' && keys.includes(key!))
      ) {
        return { message: { ...message, payload: deletionOf(message.payload) }, messages };
      }
      if (keys[0] !== key) continue;
      message = { ...message, payload: joined(message.payload, next.payload) };
      if (this.read(message).kind === 'upsert') return { message, messages };
    }
    return null;
  }

  #write(event: Event, moves: boolean): RowOperation {
    const { after, before } = event;
    if (after === null) throw new PayloadFault('after is missing');
    const row = this.#row(after, 'after');
    const known = event.unchanged === null ? row.named : this.#changed(row.named, event.unchanged);
    const spans = this.#withKey(row, event.key);
    const key = keyOfRow(this.#target, (column) => spans[column]);
    // A fill names its key beside the row.
    const whole = this.#keyColumns.every((column) => row.spans[column] !== undefined);
    const named = whole ? known : [...new Set([...known, ...this.#keyColumns])].sort((a, b) => a - b);
    const old = moves && before !== null ? this.#oldKey(before) : null;
    const { shape, kind } = this.#shapes.of(named, []);
    const moved = old !== null && old.key !== key;
    const { columns } = shape;
    const records = columns.length === 0 ? [] : [recordFor(this.#target, columns, row, after, spans)];
    if (shape.raw.length > 0) records.push(this.#rawRecord(shape.raw, spans));
    if (moved) records.push(old.record);
    return {
      kind: moved ? 'move' : kind,
      shape: this.#shapes.share(shape, moved ? 'move' : kind),
      columnsOf: shape,
      keys: moved ? [key, old.key] : [key],
      records,
      bytes: records.reduce((sum, record) => sum + record.length, 0),
    };
  }

  #delete({ key, before }: Event): RowOperation {
    for (const old of [key, before]) {
      const row = old === null ? null : membersOf(old, this.#target.known);
      if (row === null || !this.#keyColumns.every((column) => row.spans[column] !== undefined)) continue;
      const { shape } = this.#shapes.of(this.#keyColumns, []);
      const identity = keyOfRow(this.#target, (column) => row.spans[column]);
      const record = recordFor(this.#target, this.#keyColumns, row, old!);
      return {
        kind: 'delete',
        shape: '',
        columnsOf: shape,
        keys: [identity],
        records: [record],
        bytes: record.length,
      };
    }
    const names = this.#keyColumns.map((column) => this.#target.columns[column]!.name).join(', ');
    throw new PayloadFault(`neither key nor before holds the key of the table (${names})`);
  }

  #row(span: Buffer, name: string): Members {
    const row = membersOf(span, this.#target.known);
    if (row === null) throw new PayloadFault(`${name} is not an object (${kindOf(span)})`);
    return row;
  }

  #withKey(row: Members, key: Buffer | null): readonly (Buffer | undefined)[] {
    const missing = this.#keyColumns.filter((column) => row.spans[column] === undefined);
    const beside = missing.length === 0 || key === null ? null : membersOf(key, this.#target.known);
    if (beside === null) return row.spans;
    const spans = [...row.spans];
    for (const column of missing) spans[column] = beside.spans[column];
    return spans;
  }

  /** Null when the old row is not told by the key of this table: then it is taken to have stayed where it is. */
  #oldKey(before: Buffer): { key: string; record: Buffer } | null {
    const row = this.#row(before, 'before');
    const told = this.#keyColumns.every((column) => {
      const span = row.spans[column];
      return span !== undefined && !isNull(span);
    });
    if (!told) return null;
    const key = keyOfRow(this.#target, (column) => row.spans[column]);
    return { key, record: recordFor(this.#target, this.#keyColumns, row, before) };
  }

  #changed(named: readonly number[], unchanged: Buffer): number[] {
    const without = new Set<number | undefined>();
    const reader = new JsonReader(unchanged);
    if (reader.kind() !== 'array') throw new PayloadFault(`unchanged is not an array (${kindOf(unchanged)})`);
    for (let more = reader.firstElement(); more; more = reader.nextElement()) {
      if (reader.kind() === 'string') without.add(this.#byName.get(reader.string()));
      else reader.skip();
    }
    return named.filter((column) => !without.has(column));
  }

  /** The characters of each value as a JSON string, so that they arrive as they are. */
  #rawRecord(columns: readonly number[], spans: readonly (Buffer | undefined)[]): Buffer {
    return recordOf(this.#target, columns, (column) => {
      const span = spans[column]!;
      return isNull(span) ? span : Buffer.from(JSON.stringify(span.toString()));
    });
  }
}

/** The update of both, the later one's values where both have one: of a repeated member the last one counts. */
function joined(first: Buffer, later: Buffer): Buffer {
  const one = eventOf(first);
  const two = eventOf(later);
  const parts = [one, two].map(({ after }) => inside(after!)).filter((part) => part.length > 0);
  const after = parts.flatMap((part, index) => (index === 0 ? [part] : [Buffer.from(','), part]));
  const key = two.key ?? one.key ?? Buffer.from('null');
  return Buffer.concat([
    Buffer.from('{"op":"u","key":'),
    key,
    Buffer.from(',"after":{'),
    ...after,
    Buffer.from('}}'),
  ]);
}

/** An object without its braces. */
function inside(object: Buffer): Buffer {
  const text = object.subarray(object.indexOf('{') + 1, object.lastIndexOf('}'));
  return text.toString('latin1').trim() === '' ? text.subarray(0, 0) : text;
}

function deletionOf(payload: Buffer): Buffer {
  const { key, after } = eventOf(payload);
  return Buffer.concat([
    Buffer.from('{"op":"d","key":'),
    key ?? Buffer.from('null'),
    Buffer.from(',"before":'),
    after ?? Buffer.from('null'),
    Buffer.from('}'),
  ]);
}

function eventOf(payload: Buffer): Event {
  const reader = new JsonReader(payload);
  if (reader.kind() !== 'object') throw new PayloadFault(`not a JSON object (${kindOf(payload)})`);
  let op: string | null = null;
  let restartIdentity = false;
  const spans: (Buffer | null)[] = [null, null, null, null, null, null];
  for (let key = reader.firstKey(EVENT); key !== KEYS_END; key = reader.nextKey(EVENT)) {
    const kind = reader.kind();
    if (key === 0) {
      if (kind !== 'string')
        throw new PayloadFault(`op is not a string (${kindOf(payload.subarray(reader.at))})`);
      op = reader.string();
      continue;
    }
    const from = reader.at;
    const to = reader.skip();
    if (key < 0) continue;
    if (key === 5) restartIdentity = payload[from] === 0x74;
    spans[key] = kind === 'null' ? null : payload.subarray(from, to);
  }
  if (op === null) throw new PayloadFault('it has no op: not a change event');
  const [, key, after, before, unchanged] = spans;
  return { op, key: key!, after: after!, before: before!, unchanged: unchanged!, restartIdentity };
}
