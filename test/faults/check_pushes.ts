/**
 * Was everything stored that was acknowledged, once, and in an order that the clients can have seen?
 *
 * The argument for the order: an append happens between the first byte of its request and the last byte of its
 * answer. So when one push was answered before another began, the first has the lower offset, whoever sent them.
 *
 * What was answered `buffered` is appended later, by the broker that answered. It comes before what that broker was sent
 * afterwards; other brokers know nothing of it, so what they were sent may come first, the same message included: then
 * that one is stored, under the id of that push.
 */
import type { Delivered, PushedItem, PushOutcome, Reading } from './history.ts';
import { laneOf, type PushOperation } from './operations.ts';

type Fault = (text: string) => void;
type Stored = Omit<Delivered, 'attempt'>;

export const ZERO_UUID = '00000000-0000-0000-0000-000000000000';
const ACKNOWLEDGED = new Set(['queued', 'duplicate', 'buffered']);

interface Attempt {
  push: PushOperation;
  item: PushedItem;
  result: PushOutcome | null;
  /** What it answered leaves room for its having stored the message. */
  mayHaveStored: boolean;
}

export function checkPushes(pushes: readonly PushOperation[], reading: Reading, fault: Fault): void {
  const stored = indexStored(reading, fault);
  const attempts = attemptsByMessage(pushes);
  for (const [key, message] of stored) {
    if (!attempts.has(key)) fault(`${key} at offset ${message.offset} was never pushed`);
  }
  for (const [key, list] of attempts) checkMessage(key, list, stored.get(key), fault);
  for (const { queue, partition, messages } of reading.log) {
    checkOrder(laneOf({ queue, partition }), messages, attempts, fault);
  }
  for (const push of pushes) checkRequest(push, attempts, stored, fault);
}

/** Also: dense, from 0, no message and no id twice. */
function indexStored(reading: Reading, fault: Fault): Map<string, Stored> {
  const stored = new Map<string, Stored>();
  const ids = new Map<string, string>();
  for (const { queue, partition, messages } of reading.log) {
    const lane = laneOf({ queue, partition });
    messages.forEach((message, i) => {
      const { offset, txn, id } = message;
      if (offset !== i) fault(`${lane}: offset ${offset} where ${i} should be`);
      const key = `${lane}#${txn}`;
      const twin = stored.get(key);
      if (twin !== undefined) fault(`${key} is stored twice, at offsets ${twin.offset} and ${offset}`);
      const other = ids.get(id);
      if (other !== undefined) fault(`message id ${id} is borne by ${other} and by ${key}`);
      ids.set(id, key);
      if (twin === undefined) stored.set(key, message);
    });
  }
  return stored;
}

function attemptsByMessage(pushes: readonly PushOperation[]): Map<string, Attempt[]> {
  const attempts = new Map<string, Attempt[]>();
  for (const push of pushes) {
    push.items.forEach((item, i) => {
      const key = `${laneOf(item)}#${item.txn}`;
      const result = push.results?.[i] ?? null;
      const mayHaveStored = !push.certainlyNot && (result === null || !saysNothingWritten(result));
      const list = attempts.get(key);
      const attempt = { push, item, result, mayHaveStored };
      if (list === undefined) attempts.set(key, [attempt]);
      else list.push(attempt);
    });
  }
  return attempts;
}

function saysNothingWritten({ status, error }: PushOutcome): boolean {
  return status === 'failed' && !/^in doubt/.test(error ?? '');
}

function checkMessage(
  key: string,
  attempts: readonly Attempt[],
  stored: Stored | undefined,
  fault: Fault,
): void {
  const answered = attempts.filter(({ result }) => result !== null && ACKNOWLEDGED.has(result.status));
  if (stored === undefined) {
    const [first] = answered;
    if (first !== undefined) fault(`${key} is lost: push ${first.push.op} answered ${first.result!.status}`);
    return;
  }
  if (!attempts.some(({ mayHaveStored }) => mayHaveStored)) {
    fault(`${key} is stored although every answer said that nothing was written`);
  }
  if (!attempts.some(({ item }) => item.payload === stored.payload)) {
    fault(`${key} is stored with a payload that nobody pushed: ${stored.payload}`);
  }
  const queued = answered.filter(({ result }) => result!.status === 'queued');
  if (queued.length > 1) fault(`${key} was answered queued by pushes ${queued.map((a) => a.push.op)}`);
  for (const { push, result } of answered) {
    const { status, id, offset } = result!;
    const elsewhere = status === 'buffered' && attempts.some((a) => a.push !== push && a.mayHaveStored);
    if (id !== stored.id && !elsewhere)
      fault(`${key}: push ${push.op} answered ${status} with id ${id}, stored is ${stored.id}`);
    if (offset !== null && offset !== stored.offset) {
      fault(`${key}: push ${push.op} answered ${status} at ${offset}, stored at ${stored.offset}`);
    }
    if (status !== 'duplicate') continue;
    const earlier = attempts.some((a) => a.push !== push && a.mayHaveStored && a.push.from < push.to);
    const twice = push.items.filter((item) => `${laneOf(item)}#${item.txn}` === key).length > 1;
    if (!earlier && !twice)
      fault(`${key}: push ${push.op} answered duplicate, but nothing can have stored it before`);
  }
}

/** From the end of the log: what lies behind must not have been answered before this was sent. */
function checkOrder(
  lane: string,
  messages: readonly Stored[],
  attempts: ReadonlyMap<string, Attempt[]>,
  fault: Fault,
): void {
  // The earliest answer among what lies behind: of all brokers, and of what each has buffered.
  const behind = new Map<string | null, { at: number; message: Stored }>();
  for (const message of [...messages].reverse()) {
    const list = attempts.get(`${lane}#${message.txn}`) ?? [];
    const sentAt = Math.min(...list.map(({ push }) => push.from));
    const vias = new Set(list.map(({ push }) => push.via));
    for (const via of [null, ...(vias.size === 1 ? vias : [])]) {
      const late = behind.get(via);
      if (late === undefined || late.at >= sentAt) continue;
      fault(
        `${lane}: ${late.message.txn} was answered before ${message.txn} was sent, but has offset ${late.message.offset} behind ${message.offset}`,
      );
    }
    for (const { push, result } of list) {
      if (result === null || !ACKNOWLEDGED.has(result.status)) continue;
      const via = result.status === 'buffered' ? push.via : null;
      if (push.to < (behind.get(via)?.at ?? Number.POSITIVE_INFINITY)) {
        behind.set(via, { at: push.to, message });
      }
    }
  }
}

/** The items of one lane in one request: in order, and all of them or none. */
function checkRequest(
  push: PushOperation,
  attempts: ReadonlyMap<string, Attempt[]>,
  stored: ReadonlyMap<string, Stored>,
  fault: Fault,
): void {
  const lanes = Map.groupBy(push.items, laneOf);
  for (const [lane, items] of lanes) {
    const own = items.filter(({ txn }) => {
      const list = attempts.get(`${lane}#${txn}`)!;
      return list.every((attempt) => sameItems(attempt.push, push));
    });
    const found = own.filter(({ txn }) => stored.has(`${lane}#${txn}`));
    if (found.length > 0 && found.length < own.length) {
      fault(`${lane}: of push ${push.op} ${found.length} of ${own.length} messages are stored`);
    }
    let last = -1;
    for (const { txn } of found) {
      const { offset } = stored.get(`${lane}#${txn}`)!;
      if (offset < last) fault(`${lane}: push ${push.op} is stored out of its order at offset ${offset}`);
      last = offset;
    }
  }
}

function sameItems(a: PushOperation, b: PushOperation): boolean {
  return (
    a === b ||
    (a.items.length === b.items.length &&
      a.items.every((item, i) => item.txn === b.items[i]!.txn && laneOf(item) === laneOf(b.items[i]!)))
  );
}
