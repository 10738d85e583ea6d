/**
 * What a call may look like, judged before anything of it is done: one malformed operation refuses all of them.
 */
import { KV_OP, type KvStep } from '../../store/kv.ts';
import { kvFault, kvRefused, kvTooLarge } from './faults.ts';
import { type KvOperation, type Life, type Origin, writes } from './operations.ts';

/** Written by the connectors only; whoever may read may read it. */
const RESERVED_NAMESPACE = 'queen-pg';
export const KEY_BYTES_MAX = 512;
/** A hundred years: later instants mean "for ever" and would not fit everywhere. */
export const TTL_SECONDS_MAX = 3_155_760_000;
const CONNECTOR_VALUE_BYTES_MAX = 1024 * 1024;
export const PAGE_DEFAULT = 100;
export const NAMESPACE = /^[a-z0-9][a-z0-9._-]{0,63}$/;
/** What can be counted with; the same as `queen.kv_countable`. */
const COUNTABLE = /^-?[0-9]{1,255}(\.[0-9]{1,255})?([eE][+-]?[0-9]{1,2})?$/;

export interface KvLimits {
  operationsMax: number;
  /** A single-key operation counts one, getMany its keys, getPrefix its limit. */
  keysMax: number;
  valueBytesMax: number;
  pageMax: number;
  /** Ranges can be read. */
  prefixes: boolean;
}

/** The operations as the store takes them. Throws EngineError. `path`: how a fault names the list. */
export function checkOperations(
  operations: readonly KvOperation[],
  limits: KvLimits,
  origin: Origin,
  path: string,
): KvStep[] {
  if (operations.length > limits.operationsMax) {
    throw kvFault(
      'kv_too_many_ops',
      `a call has at most ${limits.operationsMax} operations, not ${operations.length}`,
      path,
    );
  }
  const valueBytesMax = origin === 'connector' ? CONNECTOR_VALUE_BYTES_MAX : limits.valueBytesMax;
  let keys = 0;
  const written = new Set<string>();
  const steps = operations.map((operation, index) => {
    const field = `${path}[${index}]`;
    const step = checkOperation(operation, limits, valueBytesMax, field);
    keys += step.code === KV_OP.getMany ? step.keys!.length : step.code === KV_OP.getPrefix ? step.limit! : 1;
    if (writes(operation)) {
      if (operation.ns === RESERVED_NAMESPACE && origin === 'client') {
        throw kvRefused(
          'kv_reserved_namespace',
          `namespace ${RESERVED_NAMESPACE} belongs to the connectors and is read-only`,
          `${field}.ns`,
        );
      }
      const place = `${step.namespace}\u0000${step.key}`;
      if (written.has(place)) {
        throw kvFault(
          'kv_duplicate_key_in_call',
          `${field} writes a key for the second time`,
          `${field}.key`,
        );
      }
      written.add(place);
    }
    return step;
  });
  if (keys > limits.keysMax) {
    throw kvFault('kv_too_many_keys', `a call names at most ${limits.keysMax} keys, not ${keys}`, path);
  }
  return steps;
}

function checkOperation(
  operation: KvOperation,
  limits: KvLimits,
  valueBytesMax: number,
  field: string,
): KvStep {
  checkNamespace(operation.ns, `${field}.ns`);
  const namespace = operation.ns;
  switch (operation.op) {
    case 'get':
      return { code: KV_OP.get, namespace, key: checkKey(operation.key, `${field}.key`) };
    case 'getMany': {
      if (operation.keys.length === 0) throw kvFault('kv_bad_key', `${field}.keys is empty`, `${field}.keys`);
      const keys = new Set(operation.keys.map((key, i) => checkKey(key, `${field}.keys[${i}]`)));
      return { code: KV_OP.getMany, namespace, key: '', keys: [...keys] };
    }
    case 'getPrefix': {
      if (!limits.prefixes) {
        throw kvFault(
          'kv_get_prefix_not_allowed_in_transaction',
          'getPrefix cannot be part of a transaction',
          field,
        );
      }
      if (operation.prefix === '')
        throw kvFault('kv_prefix_required', `${field}.prefix must not be empty`, `${field}.prefix`);
      return {
        code: KV_OP.getPrefix,
        namespace,
        key: checkKey(operation.prefix, `${field}.prefix`),
        value: operation.after === null ? null : checkCursor(operation.after, `${field}.after`),
        limit: pageSize(operation.limit, limits.pageMax),
        keysOnly: operation.keysOnly,
      };
    }
    case 'put':
    case 'putIfAbsent': {
      const bytes = Buffer.byteLength(operation.value);
      if (bytes > valueBytesMax) {
        const sentence = `${field}.value has ${bytes} bytes, at most ${valueBytesMax} are allowed`;
        throw kvTooLarge('kv_value_too_large', sentence, `${field}.value`);
      }
      return {
        code: KV_OP.put,
        namespace,
        key: checkKey(operation.key, `${field}.key`),
        value: operation.value,
        ttlSeconds: checkLife(operation.life, field),
        expect: operation.op === 'putIfAbsent' ? 0 : checkExpect(operation.expect, field),
        required: operation.required,
      };
    }
    case 'delete':
      return {
        code: KV_OP.delete,
        namespace,
        key: checkKey(operation.key, `${field}.key`),
        expect: checkExpect(operation.expect, field),
        required: operation.required,
      };
    case 'incr':
      return {
        code: KV_OP.incr,
        namespace,
        key: checkKey(operation.key, `${field}.key`),
        value: checkNumber(operation.delta, `${field}.delta`),
        ttlSeconds: checkLife(operation.life, field),
        min: operation.min === null ? null : checkNumber(operation.min, `${field}.min`),
        max: operation.max === null ? null : checkNumber(operation.max, `${field}.max`),
        required: operation.required,
      };
  }
}

export function checkNamespace(namespace: string, field: string): string {
  if (NAMESPACE.test(namespace)) return namespace;
  throw kvFault(
    'kv_bad_namespace',
    `${field} must be 1 to 64 of a-z, 0-9, dot, underscore and dash, and begin with a letter or a digit`,
    field,
  );
}

function checkKey(key: string, field: string): string {
  if (key === '') throw kvFault('kv_bad_key', `${field} must not be empty`, field);
  return checkCursor(key, field);
}

/** A key, or the place before all keys. */
export function checkCursor(key: string, field: string): string {
  if (key.includes('\u0000')) throw kvFault('kv_bad_key', `${field} must not contain NUL`, field);
  if (!key.isWellFormed()) {
    throw kvFault('kv_bad_key', `${field} must be well-formed Unicode (it holds a lone surrogate)`, field);
  }
  if (key.length * 3 > KEY_BYTES_MAX && Buffer.byteLength(key) > KEY_BYTES_MAX) {
    throw kvTooLarge('kv_key_too_large', `${field} must have at most ${KEY_BYTES_MAX} bytes of UTF-8`, field);
  }
  return key;
}

/** Clamped, never refused. */
export function pageSize(limit: number | null, max: number): number {
  if (limit === null || Number.isNaN(limit)) return Math.min(PAGE_DEFAULT, max);
  return Math.min(max, Math.max(1, Math.floor(limit)));
}

function checkLife(life: Life, field: string): Life {
  if (life === null) return null;
  if (Number.isSafeInteger(life) && life > 0 && life <= TTL_SECONDS_MAX) return life;
  throw kvFault(
    'kv_bad_ttl',
    `${field}.ttlSeconds must be a whole number from 1 to ${TTL_SECONDS_MAX}`,
    `${field}.ttlSeconds`,
  );
}

function checkExpect(expect: number | null, field: string): number | null {
  if (expect === null || (Number.isSafeInteger(expect) && expect >= 0)) return expect;
  throw kvFault('kv_bad_expect', `${field}.expect must be a version or 0`, `${field}.expect`);
}

function checkNumber(text: string, field: string): string {
  if (COUNTABLE.test(text)) return text;
  throw kvFault(
    'kv_bad_delta',
    `${field} must be a number of at most 255 digits before and after the point and a two-digit exponent`,
    field,
  );
}
