/**
 * Timer operations as the wire has them. Here is judged what type each field has; what a value may be is the engine's to
 * judge.
 */

import type { TimerOperation } from '../engine/timers/face.ts';
import { timersFault } from '../engine/timers/faults.ts';
import { DEFAULT_PARTITION } from '../engine/types.ts';
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

interface Given {
  readonly fields: Record<string, unknown>;
  /** How a fault names the object, with its dot. */
  readonly path: string;
}

const NO_KEYS = knownKeys();
const FIELDS = new Set([
  ...['op', 'queue', 'timerKey', 'delayMs', 'txn', 'payload', 'partition', 'payloadZstd', 'encrypted'],
]);
/** Decided by the broker; a caller that sends one expects something that will not happen. */
const SERVER_OWNED = new Set([
  ...['producerSub', 'messageId', 'tenant', 'tenantId', 'deliverAt', 'attempts'],
  ...['claimToken', 'claimedUntil', 'lastError', 'createdAt', 'updatedAt'],
]);
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

/** `{"operations":[…]}`. Throws EngineError. */
export async function readTimersBody(body: Buffer, turn: Turn): Promise<TimerOperation[]> {
  const operations = await readOperationsMember(body, (reader) =>
    readTimerOperations(reader, 'operations', turn),
  ).catch((error: unknown) => {
    throw worded(error, '');
  });
  if (operations === null) throw timersFault('timers_bad_body', 'operations is missing', 'operations');
  return operations;
}

/** The array at the reader's place. `path`: how a fault names it. Throws EngineError. */
export async function readTimerOperations(
  reader: JsonReader,
  path: string,
  turn: Turn,
): Promise<TimerOperation[]> {
  const operations = await readElements(reader, turn, (span, index) =>
    readOperation(read(span, `${path}[${index}]`)),
  ).catch((error: unknown) => {
    throw worded(error, path);
  });
  if (operations !== null) return operations;
  throw timersFault(
    'timers_too_many_ops',
    `there are more than ${OPERATIONS_READ_MAX} operations, and no call takes so many`,
    path,
  );
}

function readOperation(given: Given): TimerOperation {
  const { fields, path } = given;
  const { op } = fields;
  if (op !== 'schedule' && op !== 'reschedule' && op !== 'cancel') {
    throw timersFault(
      'timers_unknown_op',
      `${path}op must be "schedule", "reschedule" or "cancel", not ${shown(op)}`,
      `${path}op`,
    );
  }
  checkFields(given);
  const queue = text(given, 'queue', 'timers_bad_queue');
  const timerKey = text(given, 'timerKey', 'timers_bad_key');
  if (op === 'cancel') {
    const transactionId = fields.txn == null ? null : text(given, 'txn', 'timers_bad_txn');
    return { op, queue, timerKey, transactionId };
  }
  return {
    op: 'schedule',
    queue,
    timerKey,
    partition:
      fields.partition == null ? DEFAULT_PARTITION : text(given, 'partition', 'timers_bad_partition'),
    delayMs: delay(given),
    transactionId: text(given, 'txn', 'timers_bad_txn'),
    payload: payload(given),
    payloadZstd: flag(given, 'payloadZstd'),
    encrypted: flag(given, 'encrypted'),
  };
}

function read(span: Buffer, name: string): Given {
  try {
    valueSpans(span, NO_KEYS);
  } catch (error) {
    throw worded(error, name);
  }
  return { fields: JSON.parse(span.toString('utf8')) as Record<string, unknown>, path: `${name}.` };
}

/** The fault of a reader of bytes is this family's; every other error stays as it is. */
function worded(error: unknown, path: string): unknown {
  if (!(error instanceof BodyFault)) return error;
  const sentence = path === '' ? error.message : `${path}: ${error.message}`;
  return timersFault('timers_bad_body', sentence, path === '' ? undefined : path);
}

function checkFields({ fields, path }: Given): void {
  for (const field of Object.keys(fields)) {
    if (FIELDS.has(field)) continue;
    if (SERVER_OWNED.has(field) || field.startsWith('_')) {
      throw timersFault(
        'timers_server_owned_field',
        `${path}${field} is decided by the broker and cannot be sent`,
        path + field,
      );
    }
    throw timersFault('timers_unknown_field', `${path}${field} is not a field here`, path + field);
  }
}

function text({ fields, path }: Given, name: string, reason: string): string {
  const value = fields[name];
  if (typeof value === 'string') return value;
  throw timersFault(reason, `${path}${name} must be a string, not ${shown(value)}`, path + name);
}

function delay({ fields, path }: Given): number {
  const value = fields.delayMs;
  if (typeof value === 'number') return value;
  throw timersFault(
    'timers_bad_delay',
    `${path}delayMs must be a whole number of ms, not ${shown(value)}`,
    `${path}delayMs`,
  );
}

function payload(given: Given): Buffer {
  const value = text(given, 'payload', 'timers_bad_payload');
  // Without its padding it is as clear; a length of 4n + 1 means nothing.
  if (BASE64.test(value) && value.replace(/=+$/, '').length % 4 !== 1) return Buffer.from(value, 'base64');
  const field = `${given.path}payload`;
  throw timersFault('timers_bad_payload', `${field} must be base64`, field);
}

function flag({ fields, path }: Given, name: string): boolean {
  const value = fields[name] ?? false;
  if (typeof value === 'boolean') return value;
  throw timersFault(
    'timers_bad_field',
    `${path}${name} must be true or false, not ${shown(value)}`,
    path + name,
  );
}
