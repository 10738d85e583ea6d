/**
 * What a call may look like, judged before anything of it is done: one malformed operation refuses all of them. A payload
 * must be JSON, since a pop puts it into its answer as it is.
 */
import { BodyFault } from '../../log/json/fault.ts';
import { JsonReader } from '../../log/json/reader.ts';
import { nameFault, requiredNameFault, transactionIdFault } from '../../log/names.ts';
import type { TimerOperation } from './face.ts';
import { timersFault, timersRefused } from './faults.ts';
import { inflate } from './payload.ts';

export const OPERATIONS_MAX = 256;
export const TIMER_KEY_BYTES_MAX = 512;
/** Further in the past is not more urgent, and would not fit a timestamp for ever. */
export const DELAY_MS_MIN = -90 * 86_400_000;
export const PREFIX_BYTES_MAX = 128;
const PRODUCER_BYTES_MAX = 0xffff;

/** Throws EngineError. `path`: how a fault names the list. */
export function checkOperations(
  operations: readonly TimerOperation[],
  limits: { payloadBytesMax: number },
  path: string,
): void {
  if (operations.length > OPERATIONS_MAX) {
    throw timersFault(
      'timers_too_many_ops',
      `a call has at most ${OPERATIONS_MAX} timer operations, not ${operations.length}`,
      path,
    );
  }
  const keys = new Set<string>();
  operations.forEach((operation, index) => {
    const field = `${path}[${index}]`;
    checkQueue(operation.queue, `${field}.queue`);
    checkKey(operation.timerKey, `${field}.timerKey`);
    if (operation.op === 'schedule') checkSchedule(operation, limits.payloadBytesMax, field);
    else if (operation.transactionId !== null) checkTxn(operation.transactionId, `${field}.txn`);
    const key = `${operation.queue}\u0000${operation.timerKey}`;
    if (keys.has(key)) {
      throw timersFault(
        'timers_duplicate_key_in_call',
        `${field} names a timer for the second time`,
        `${field}.timerKey`,
      );
    }
    keys.add(key);
  });
}

export function checkQueue(queue: string, field: string): void {
  const fault = requiredNameFault(queue, field);
  if (fault !== null) throw timersFault('timers_bad_queue', fault, field);
}

export function checkKey(key: string, field: string): void {
  if (key === '') throw timersFault('timers_bad_key', `${field} must not be empty`, field);
  checkText(key, TIMER_KEY_BYTES_MAX, 'timers_bad_key', field);
}

/** A key, a part of one, or the place before all keys. */
export function checkText(text: string, bytesMax: number, reason: string, field: string): void {
  if (text.includes('\u0000')) throw timersFault(reason, `${field} must not contain NUL`, field);
  if (!text.isWellFormed()) {
    throw timersFault(reason, `${field} must be well-formed Unicode (it holds a lone surrogate)`, field);
  }
  if (text.length * 3 > bytesMax && Buffer.byteLength(text) > bytesMax) {
    throw timersFault(reason, `${field} must have at most ${bytesMax} bytes of UTF-8`, field);
  }
}

/** A frame could carry a NUL, but the row in which the timer waits cannot. */
export function checkProducer(producerSub: string | null): void {
  if (producerSub === null) return;
  if (producerSub.includes('\u0000')) {
    throw timersFault('timers_bad_producer', "the token's sub must not contain NUL");
  }
  if (Buffer.byteLength(producerSub) <= PRODUCER_BYTES_MAX) return;
  throw timersFault('timers_bad_producer', `the token's sub has more than ${PRODUCER_BYTES_MAX} bytes`);
}

function checkSchedule(
  operation: Extract<TimerOperation, { op: 'schedule' }>,
  payloadBytesMax: number,
  field: string,
): void {
  const partitionFault = nameFault(operation.partition, `${field}.partition`);
  if (partitionFault !== null)
    throw timersFault('timers_bad_partition', partitionFault, `${field}.partition`);
  if (!Number.isSafeInteger(operation.delayMs)) {
    throw timersFault(
      'timers_bad_delay',
      `${field}.delayMs must be a whole number of ms`,
      `${field}.delayMs`,
    );
  }
  checkTxn(operation.transactionId, `${field}.txn`);
  checkPayload(operation, payloadBytesMax, `${field}.payload`);
}

export function checkTxn(transactionId: string, field: string): void {
  const fault = transactionIdFault(transactionId, field);
  if (fault !== null) throw timersFault('timers_bad_txn', fault, field);
}

/** The limit holds for what is sent, and for the text in it. */
function checkPayload(
  { payload, payloadZstd }: { payload: Buffer; payloadZstd: boolean },
  bytesMax: number,
  field: string,
): void {
  const text = payload.length > bytesMax ? 'too_large' : payloadZstd ? inflate(payload, bytesMax) : payload;
  if (text === 'too_large') {
    throw timersRefused('payload_too_large', `${field} has more than ${bytesMax} bytes`, field);
  }
  if (text === null) throw timersFault('timers_bad_payload', `${field} is not zstd compressed`, field);
  try {
    const reader = new JsonReader(text);
    reader.skip();
    reader.end();
  } catch (error) {
    if (!(error instanceof BodyFault)) throw error;
    throw timersFault('timers_bad_payload', `${field} must be base64 of JSON text: ${error.message}`, field);
  }
}
