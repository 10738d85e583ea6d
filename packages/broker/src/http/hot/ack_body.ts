/**
 * The bodies of the ack routes, read by pulling: what is not asked for is skipped and never built, so a body of the
 * largest size costs its bytes and its items, whatever else somebody packed into it.
 */
import type { AckItem, AckStatus } from '../../engine/types.ts';
import { QUEUE_MODE_GROUP } from '../../engine/types.ts';
import { BodyFault } from '../../log/json/fault.ts';
import { JsonReader, KEYS_END, knownKeys } from '../../log/json/reader.ts';
import { nameFault, TRANSACTION_ID_BYTES_MAX } from '../../log/names.ts';

export interface AckBody {
  group: string;
  items: AckItem[];
}

const FIELDS = ['transactionId', 'partitionId', 'status', 'leaseId', 'error', 'consumerGroup'] as const;
const ITEM_KEYS = knownKeys(...FIELDS);
const BATCH_KEYS = knownKeys('consumerGroup', 'acknowledgments');
const GROUP = 0;

type Fields = { [K in (typeof FIELDS)[number]]: string | null };

/** `{"transactionId","partitionId","status"?,"leaseId"?,"error"?,"consumerGroup"?}` */
export function readAckBody(bytes: Buffer): AckBody {
  const reader = openObject(bytes);
  const fields = readFields(reader, '');
  reader.end();
  return { group: groupOf(fields.consumerGroup), items: [itemOf(fields, '')] };
}

/** `{"consumerGroup"?,"acknowledgments":[…]}`; a group inside an item means nothing. */
export function readAckBatchBody(bytes: Buffer): AckBody {
  const reader = openObject(bytes);
  let group: string | null = null;
  let items: AckItem[] | null = null;
  for (let key = reader.firstKey(BATCH_KEYS); key !== KEYS_END; key = reader.nextKey(BATCH_KEYS)) {
    if (key < 0) reader.skip();
    else if (key === GROUP) group = readText(reader, 'consumerGroup');
    else items = readItems(reader);
  }
  reader.end();
  if (items === null) throw new BodyFault('acknowledgments', 'acknowledgments is missing');
  return { group: groupOf(group), items };
}

function openObject(bytes: Buffer): JsonReader {
  if (bytes.length === 0) throw new BodyFault('', 'the body is empty, a JSON object is expected');
  const reader = new JsonReader(bytes);
  if (reader.kind() !== 'object') throw new BodyFault('', `the body must be an object, not ${reader.kind()}`);
  return reader;
}

function readItems(reader: JsonReader): AckItem[] {
  if (reader.kind() !== 'array') {
    throw new BodyFault('acknowledgments', `acknowledgments must be an array, not ${reader.kind()}`);
  }
  const items: AckItem[] = [];
  for (let more = reader.firstElement(); more; more = reader.nextElement()) {
    const path = `acknowledgments[${items.length}]`;
    if (reader.kind() !== 'object')
      throw new BodyFault(path, `${path} must be an object, not ${reader.kind()}`);
    items.push(itemOf(readFields(reader, `${path}.`), `${path}.`));
  }
  return items;
}

function readFields(reader: JsonReader, path: string): Fields {
  const fields: Fields = {
    transactionId: null,
    partitionId: null,
    status: null,
    leaseId: null,
    error: null,
    consumerGroup: null,
  };
  for (let key = reader.firstKey(ITEM_KEYS); key !== KEYS_END; key = reader.nextKey(ITEM_KEYS)) {
    const field = FIELDS[key];
    if (field === undefined) reader.skip();
    else fields[field] = readText(reader, `${path}${field}`);
  }
  return fields;
}

function readText(reader: JsonReader, field: string): string | null {
  const kind = reader.kind();
  if (kind === 'string') return reader.string();
  if (kind !== 'null') throw new BodyFault(field, `${field} must be a string, not ${kind}`);
  reader.skip();
  return null;
}

function itemOf(fields: Fields, path: string): AckItem {
  const transactionId = fields.transactionId ?? '';
  const fault = transactionFault(transactionId);
  if (fault !== null) throw new BodyFault(`${path}transactionId`, `${path}transactionId ${fault}`);
  return {
    transactionId,
    partitionId: fields.partitionId ?? '',
    leaseId: fields.leaseId === '' ? null : fields.leaseId,
    status: statusOf(fields.status),
    error: fields.error === null ? null : storable(fields.error),
  };
}

/** An id that no push can have carried is its item's failure; one that cannot be told from another's is refused. */
function transactionFault(transactionId: string): string | null {
  if (!transactionId.isWellFormed()) return 'must be well-formed Unicode (it holds a lone surrogate)';
  if (transactionId.length * 3 <= TRANSACTION_ID_BYTES_MAX) return null;
  if (Buffer.byteLength(transactionId) <= TRANSACTION_ID_BYTES_MAX) return null;
  return `must have at most ${TRANSACTION_ID_BYTES_MAX} bytes of UTF-8`;
}

function groupOf(group: string | null): string {
  if (group === null || group === '') return QUEUE_MODE_GROUP;
  const fault = nameFault(group, 'consumerGroup');
  if (fault !== null) throw new BodyFault('consumerGroup', fault);
  return group;
}

/** Words for a status, case-sensitive. Whatever is no known word means that the work failed. */
export function statusOf(word: string | null): AckStatus {
  switch (word) {
    case null:
    case 'completed':
    case 'success':
    case 'acked':
    case 'ok':
      return 'completed';
    case 'retry':
    case 'dlq':
      return word;
    default:
      return 'failed';
  }
}

/** A reason as a text column can hold it: no NUL, no lone surrogate. */
export function storable(text: string): string {
  return (text.includes('\0') ? text.replaceAll('\0', '\ufffd') : text).toWellFormed();
}
