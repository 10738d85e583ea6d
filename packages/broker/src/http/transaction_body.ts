/**
 * The body of a transaction. It may be as large as a push, so its operations are walked one by one, payloads are taken as
 * spans, and now and then somebody else gets a turn.
 */
import type { KvOperation } from '../engine/kv/operations.ts';
import type { TimerOperation } from '../engine/timers/face.ts';
import type { TransactionOperation } from '../engine/transaction/types.ts';
import { type AckItem, DEFAULT_PARTITION, QUEUE_MODE_GROUP } from '../engine/types.ts';
import { BodyFault } from '../log/json/fault.ts';
import { TURN_BYTES } from '../log/json/push_body.ts';
import { JsonReader, KEYS_END, knownKeys } from '../log/json/reader.ts';
import { objectReader } from '../log/json/spans.ts';
import { nameFault, requiredNameFault, TRANSACTION_ID_BYTES_MAX, transactionIdFault } from '../log/names.ts';
import { parseUuid } from '../log/uuid.ts';
import { statusOf, storable } from './hot/ack_body.ts';
import { readOperations } from './kv_body.ts';
import type { Turn } from './operations_body.ts';
import { readTimerOperations } from './timers_body.ts';

export interface TransactionBody {
  operations: TransactionOperation[];
  kv: KvOperation[];
  timers: TimerOperation[];
  requiredLeases: string[];
}

const BODY_MEMBERS = ['operations', 'kv', 'timers', 'requiredLeases'] as const;
const BODY_KEYS = knownKeys(...BODY_MEMBERS);
const FIELDS = [
  ...['type', 'items', 'queue', 'partition', 'payload', 'data', 'transactionId', 'traceId', 'partitionId'],
  ...['status', 'consumerGroup', 'leaseId', 'error'],
] as const;
type Field = (typeof FIELDS)[number];
const FIELD_KEYS = knownKeys(...FIELDS);
const NO_PAYLOAD = Buffer.from('{}');

/** The members of one operation, or of one of its items: the exact text of each that is there. */
class Members {
  readonly path: string;
  readonly #spans: (Buffer | null)[];

  constructor(spans: (Buffer | null)[], path: string) {
    this.#spans = spans;
    this.path = path;
  }

  span(name: Field): Buffer | null {
    return this.#spans[FIELDS.indexOf(name)] ?? null;
  }

  /** Null: absent, or JSON null. */
  text(name: Field): string | null {
    const span = this.span(name);
    if (span === null) return null;
    const value: unknown = JSON.parse(span.toString('utf8'));
    if (value === null || typeof value === 'string') return value;
    throw this.fault(name, 'must be a string');
  }

  fault(name: string, detail: string): BodyFault {
    return new BodyFault(`${this.path}.${name}`, `${this.path}.${name} ${detail}`);
  }

  checked(name: string, value: string, check: (value: unknown, field: string) => string | null): string {
    const fault = check(value, `${this.path}.${name}`);
    if (fault !== null) throw new BodyFault(`${this.path}.${name}`, fault);
    return value;
  }
}

/** Throws BodyFault, and EngineError for a KV or timer operation. */
export async function readTransactionBody(body: Buffer, turn: Turn): Promise<TransactionBody> {
  if (body.length === 0) throw new BodyFault('', 'the body is empty, a JSON object is expected');
  const reader = objectReader(body);
  const read: TransactionBody = { operations: [], kv: [], timers: [], requiredLeases: [] };
  let stated = false;
  for (let key = reader.firstKey(BODY_KEYS); key !== KEYS_END; key = reader.nextKey(BODY_KEYS)) {
    const member = key < 0 ? null : BODY_MEMBERS[key]!;
    const start = reader.at;
    if (member === null) reader.skip();
    else if (member === 'operations') {
      read.operations = await readAll(arrayAt(reader, member), turn);
      stated = true;
    } else if (reader.kind() === 'null') {
      reader.skip();
      read[member] = [];
    } else if (member === 'kv') read.kv = await readOperations(reader, member, turn);
    else if (member === 'timers') read.timers = await readTimerOperations(reader, member, turn);
    else read.requiredLeases = leases(body.subarray(start, reader.skip()));
  }
  reader.end();
  if (!stated) throw new BodyFault('operations', 'operations is missing');
  return read;
}

function leases(span: Buffer): string[] {
  const value: unknown = JSON.parse(span.toString('utf8'));
  if (!Array.isArray(value)) throw new BodyFault('requiredLeases', 'requiredLeases must be an array');
  value.forEach((lease, i) => {
    if (typeof lease === 'string') return;
    throw new BodyFault(`requiredLeases[${i}]`, `requiredLeases[${i}] must be a string`);
  });
  return value as string[];
}

async function readAll(reader: JsonReader, turn: Turn): Promise<TransactionOperation[]> {
  const operations: TransactionOperation[] = [];
  let turnAt = reader.at + TURN_BYTES;
  let index = 0;
  for (let more = reader.firstElement(); more; more = reader.nextElement()) {
    const members = readMembers(reader, `operations[${index++}]`);
    const type = members.span('type');
    const word: unknown = type === null ? null : JSON.parse(type.toString('utf8'));
    if (word === 'ack') operations.push(readAck(members));
    else if (word !== 'push') throw members.fault('type', 'must be "push" or "ack"');
    else if (members.span('items') === null || isNull(members.span('items')!))
      operations.push(readPush(members));
    else await readItems(members, operations, turn);
    if (reader.at < turnAt) continue;
    turnAt = reader.at + TURN_BYTES;
    await turn();
  }
  return operations;
}

async function readItems(members: Members, operations: TransactionOperation[], turn: Turn): Promise<void> {
  const path = `${members.path}.items`;
  const reader = arrayAt(new JsonReader(members.span('items')!), path);
  let turnAt = TURN_BYTES;
  let index = 0;
  for (let more = reader.firstElement(); more; more = reader.nextElement()) {
    operations.push(readPush(readMembers(reader, `${path}[${index++}]`)));
    if (reader.at < turnAt) continue;
    turnAt = reader.at + TURN_BYTES;
    await turn();
  }
}

/** The reader, if it stands at an array. */
function arrayAt(reader: JsonReader, path: string): JsonReader {
  if (reader.kind() === 'array') return reader;
  throw new BodyFault(path, `${path} must be an array, not ${reader.kind()}`);
}

function readMembers(reader: JsonReader, path: string): Members {
  if (reader.kind() !== 'object') {
    throw new BodyFault(path, `${path} must be an object, not ${reader.kind()}`);
  }
  const spans: (Buffer | null)[] = FIELDS.map(() => null);
  for (let key = reader.firstKey(FIELD_KEYS); key !== KEYS_END; key = reader.nextKey(FIELD_KEYS)) {
    const start = reader.at;
    const end = reader.skip();
    if (key >= 0) spans[key] = reader.bytes.subarray(start, end);
  }
  return new Members(spans, path);
}

function readPush(members: Members): TransactionOperation {
  const queue = members.text('queue');
  if (queue === null) throw members.fault('queue', 'is missing');
  const transactionId = members.text('transactionId');
  return {
    type: 'push',
    item: {
      queue: members.checked('queue', queue, requiredNameFault),
      partition: members.checked('partition', members.text('partition') ?? DEFAULT_PARTITION, nameFault),
      payload: members.span('payload') ?? members.span('data') ?? NO_PAYLOAD,
      transactionId:
        transactionId === null ? null : members.checked('transactionId', transactionId, transactionIdFault),
      traceId: traceId(members),
    },
  };
}

/** Anything but a UUID is as good as none. */
function traceId(members: Members): string | null {
  const span = members.span('traceId');
  const value: unknown = span === null ? null : JSON.parse(span.toString('utf8'));
  return typeof value === 'string' && parseUuid(value) !== null ? value : null;
}

function readAck(members: Members): TransactionOperation {
  const error = members.text('error');
  const item: AckItem = {
    transactionId: members.text('transactionId') ?? '',
    partitionId: members.text('partitionId') ?? '',
    leaseId: members.text('leaseId') || null,
    status: statusOf(members.text('status')),
    error: error === null ? null : storable(error),
  };
  // An id that no push can have carried is unknown; one that cannot be told from another's is refused.
  if (item.transactionId !== '') members.checked('transactionId', item.transactionId, ackIdFault);
  const group = members.text('consumerGroup') || QUEUE_MODE_GROUP;
  return { type: 'ack', group: members.checked('consumerGroup', group, nameFault), item };
}

function ackIdFault(value: unknown, field: string): string | null {
  const id = value as string;
  if (!id.isWellFormed()) return `${field} must be well-formed Unicode (it holds a lone surrogate)`;
  if (Buffer.byteLength(id) <= TRANSACTION_ID_BYTES_MAX) return null;
  return `${field} must have at most ${TRANSACTION_ID_BYTES_MAX} bytes of UTF-8`;
}

function isNull(span: Buffer): boolean {
  return span[0] === 0x6e;
}
