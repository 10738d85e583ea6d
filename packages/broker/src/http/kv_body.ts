/**
 * KV operations as the wire has them. Here is judged what type each field has; what a value may be is the engine's to
 * judge. A value, a delta and a bound are taken as JSON text.
 */
import { kvFault, kvTooLarge } from '../engine/kv/faults.ts';
import type { KvListRequest, KvOperation } from '../engine/kv/operations.ts';
import type { TenantId } from '../engine/types.ts';
import { BodyFault } from '../log/json/fault.ts';
import { type JsonReader, knownKeys } from '../log/json/reader.ts';
import { valueSpans } from '../log/json/spans.ts';
import {
  OPERATIONS_READ_MAX,
  readElements,
  readOperationsMember,
  shown,
  type Turn,
} from './operations_body.ts';

type Fields = Record<string, unknown>;

interface Given {
  readonly fields: Fields;
  /** The exact text of a field. */
  text(name: 'value' | 'delta' | 'min' | 'max'): string | null;
  /** How a fault names the object, with its dot. */
  readonly path: string;
}

const TEXTS = ['value', 'delta', 'min', 'max'] as const;
const TEXT_KEYS = knownKeys(...TEXTS);
const LIFE = ['ttlSeconds', 'forever'] as const;
const OPERATION_FIELDS = new Set([
  ...['op', 'ns', 'key', 'keys', 'prefix', 'after', 'limit', 'keysOnly', 'value', 'expect', 'required'],
  ...['delta', 'min', 'max', ...LIFE],
]);
/** No setting allows a larger value, and no call has so much beside its value: neither is made into objects. */
const VALUE_BYTES_MAX = 1024 * 1024;
const REST_BYTES_MAX = 8 * 1024 * 1024;
const TENANT_FIELD = /^[_-]*(x-queen-)?tenant([_-]?id)?$/i;

/** `{"operations":[…]}`. Throws EngineError. */
export async function readKvBody(body: Buffer, turn: Turn): Promise<KvOperation[]> {
  const operations = await readOperationsMember(body, (reader) =>
    readOperations(reader, 'operations', turn),
  ).catch((error: unknown) => {
    throw worded(error, '');
  });
  if (operations === null) throw kvFault('kv_bad_body', 'operations is missing', 'operations');
  return operations;
}

/** The array at the reader's place. `path`: how a fault names it. Throws EngineError. */
export async function readOperations(reader: JsonReader, path: string, turn: Turn): Promise<KvOperation[]> {
  const operations = await readElements(reader, turn, (span, index) =>
    readOperation(read(span, `${path}[${index}]`)),
  ).catch((error: unknown) => {
    throw worded(error, path);
  });
  if (operations !== null) return operations;
  throw kvFault(
    'kv_too_many_ops',
    `there are more than ${OPERATIONS_READ_MAX} operations, and no call takes so many`,
    path,
  );
}

/** The body of a PUT to a key's own path. */
export function readPutBody(body: Buffer, ns: string, key: string): KvOperation {
  const given = read(body, '');
  checkFields(given, new Set(['value', 'expect', ...LIFE]));
  const value = given.text('value');
  if (value === null) throw missingValue(given);
  return { op: 'put', ns, key, value, life: life(given), expect: expectation(given), required: false };
}

/** The body of a DELETE to a key's own path; it may be empty. */
export function readDeleteBody(body: Buffer, ns: string, key: string): KvOperation {
  if (body.length === 0) return { op: 'delete', ns, key, expect: null, required: false };
  const given = read(body, '');
  checkFields(given, new Set(['expect']));
  return { op: 'delete', ns, key, expect: expectation(given), required: false };
}

/** The body of a console page. */
export function readListBody(body: Buffer, tenant: TenantId): KvListRequest {
  const given = read(body, '');
  checkTenant(given);
  return {
    tenant,
    namespace: text(given, 'namespace', 'kv_bad_namespace'),
    prefix: optionalText(given, 'prefix') ?? '',
    after: optionalText(given, 'after'),
    limit: limit(given),
    keysOnly: flag(given, 'keysOnly'),
    includeExpired: flag(given, 'includeExpired'),
  };
}

function readOperation(given: Given): KvOperation {
  const { fields, path } = given;
  const { op } = fields;
  switch (op) {
    case 'get':
    case 'getMany':
    case 'getPrefix':
    case 'put':
    case 'putIfAbsent':
    case 'delete':
    case 'incr':
      break;
    default:
      throw kvFault('kv_unknown_op', `${path}op is ${shown(op)}`, `${path}op`);
  }
  checkFields(given, OPERATION_FIELDS);
  const ns = text(given, 'ns', 'kv_bad_namespace');
  if (op === 'getMany') return { op, ns, keys: keyList(given) };
  if (op === 'getPrefix') {
    const prefix = fields.prefix ?? '';
    if (typeof prefix !== 'string')
      throw kvFault('kv_prefix_required', `${path}prefix must be a string`, `${path}prefix`);
    const after = optionalText(given, 'after');
    return { op, ns, prefix, after, limit: limit(given), keysOnly: flag(given, 'keysOnly') };
  }
  const key = text(given, 'key', 'kv_bad_key');
  if (op === 'get') return { op, ns, key };
  const required = flag(given, 'required');
  if (op === 'delete') return { op, ns, key, expect: expectation(given), required };
  if (op === 'incr') {
    if ('expect' in fields) throw kvFault('kv_bad_expect', `${path}expect is not for incr`, `${path}expect`);
    const delta = number(given, 'delta');
    if (delta === null) throw kvFault('kv_bad_delta', `${path}delta is missing`, `${path}delta`);
    const bounds = { min: number(given, 'min'), max: number(given, 'max') };
    return { op, ns, key, delta, life: life(given), ...bounds, required };
  }
  const value = given.text('value');
  if (value === null) throw missingValue(given);
  if (op === 'put') return { op, ns, key, value, life: life(given), expect: expectation(given), required };
  if ('expect' in fields && fields.expect !== 0) {
    throw kvFault('kv_bad_expect', `${path}expect is not for putIfAbsent`, `${path}expect`);
  }
  return { op, ns, key, value, life: life(given), required };
}

function read(span: Buffer, name: string): Given {
  const path = name === '' ? '' : `${name}.`;
  let spans: (Buffer | null)[];
  try {
    spans = valueSpans(span, TEXT_KEYS);
  } catch (error) {
    throw worded(error, name);
  }
  const valueBytes = spans[0]?.length ?? 0;
  if (valueBytes > VALUE_BYTES_MAX) {
    const sentence = `${path}value has ${valueBytes} bytes, at most ${VALUE_BYTES_MAX} can be allowed`;
    throw kvTooLarge('kv_value_too_large', sentence, `${path}value`);
  }
  if (span.length - valueBytes > REST_BYTES_MAX) {
    throw kvFault(
      'kv_bad_body',
      `${path === '' ? 'the body' : name} has more bytes than an operation can have`,
    );
  }
  const fields = JSON.parse(span.toString('utf8')) as Fields;
  return { fields, path, text: (field) => spans[TEXTS.indexOf(field)]?.toString('utf8') ?? null };
}

/** The fault of a reader of bytes is this family's; every other error stays as it is. */
function worded(error: unknown, path: string): unknown {
  if (!(error instanceof BodyFault)) return error;
  const sentence = path === '' ? error.message : `${path}: ${error.message}`;
  return kvFault('kv_bad_body', sentence, path || undefined);
}

function checkFields(given: Given, known: ReadonlySet<string>): void {
  checkTenant(given);
  const unknown = Object.keys(given.fields).find((field) => !known.has(field));
  if (unknown === undefined) return;
  throw kvFault('kv_unknown_field', `${given.path}${unknown} is not a field here`, `${given.path}${unknown}`);
}

function checkTenant({ fields, path }: Given): void {
  const named = Object.keys(fields).find((field) => TENANT_FIELD.test(field));
  if (named === undefined) return;
  throw kvFault(
    'kv_tenant_not_an_input',
    'the tenant comes from the connection, never from a field',
    path + named,
  );
}

function missingValue({ path }: Given) {
  return kvFault('kv_value_required', `${path}value is missing`, `${path}value`);
}

function text({ fields, path }: Given, name: string, reason: string): string {
  const value = fields[name];
  if (typeof value === 'string') return value;
  throw kvFault(reason, `${path}${name} must be a string, not ${shown(value)}`, path + name);
}

function optionalText(given: Given, name: string): string | null {
  return given.fields[name] == null ? null : text(given, name, 'kv_bad_key');
}

function keyList({ fields, path }: Given): string[] {
  const { keys } = fields;
  if (Array.isArray(keys) && keys.every((key) => typeof key === 'string')) return keys;
  throw kvFault('kv_bad_key', `${path}keys must be an array of strings`, `${path}keys`);
}

function flag({ fields, path }: Given, name: string): boolean {
  const value = fields[name] ?? false;
  if (typeof value === 'boolean') return value;
  throw kvFault('kv_bad_field', `${path}${name} must be true or false, not ${shown(value)}`, path + name);
}

function limit({ fields, path }: Given): number | null {
  const value = fields.limit ?? null;
  if (value === null || typeof value === 'number') return value;
  throw kvFault('kv_bad_field', `${path}limit must be a number, not ${shown(value)}`, `${path}limit`);
}

function number(given: Given, name: 'delta' | 'min' | 'max'): string | null {
  const value = given.fields[name] ?? null;
  if (value === null) return null;
  if (typeof value === 'number') return given.text(name);
  const field = given.path + name;
  throw kvFault('kv_bad_delta', `${field} must be a number, not ${shown(value)}`, field);
}

/** A null is a bug of the caller, and must not turn a conditional write into an unconditional one. */
function expectation({ fields, path }: Given): number | null {
  if (!('expect' in fields)) return null;
  const { expect } = fields;
  if (typeof expect === 'number') return expect;
  throw kvFault(
    'kv_bad_expect',
    `${path}expect must be a version or 0, not ${shown(expect)}`,
    `${path}expect`,
  );
}

/** Exactly one of the two must be said: nothing lives for ever, or ends, by accident. */
function life({ fields, path }: Given): number | null {
  const ttl = fields.ttlSeconds ?? null;
  const forever = fields.forever ?? null;
  if (forever !== null && typeof forever !== 'boolean') {
    throw kvFault('kv_bad_ttl', `${path}forever must be true, not ${shown(forever)}`, `${path}forever`);
  }
  if (ttl === null) {
    if (forever === true) return null;
    throw kvFault('kv_expiry_not_specified', `${path}ttlSeconds or ${path}forever: true must be given`);
  }
  if (forever === true)
    throw kvFault('kv_bad_ttl', `${path}ttlSeconds and ${path}forever exclude each other`);
  if (typeof ttl === 'number') return ttl;
  throw kvFault('kv_bad_ttl', `${path}ttlSeconds must be a number, not ${shown(ttl)}`, `${path}ttlSeconds`);
}
