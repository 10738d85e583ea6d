/**
 * Did each group get each message, in order, and again only after it had lost a lease?
 *
 * A claim happens between the first byte of a pop and the last byte of its answer, a commit of the cursor likewise
 * within its ack. So for a batch that starts at `s` two bounds hold, and both are checked:
 *
 * - every ack that was answered before the pop began has committed: `s` lies above all of them;
 * - the cursor can only have come as far as acks that were sent before the pop ended: `s` lies at most one above
 *   those. By induction over the batches nothing is passed that was not delivered and acked.
 */
import type { AckedItem, AckOutcome, Delivered, Reading } from './history.ts';
import { type AckOperation, laneOf, type Operations, type PopOperation } from './operations.ts';

type Fault = (text: string) => void;

export interface DeliveryRules {
  /** Between the database's clock and that of the history, in ms. */
  slackMs: number;
  /** They consumed everything. Others are only checked for what they did. */
  groups: readonly string[];
}

interface Batch {
  pop: PopOperation;
  first: number;
  last: number;
  attempt: number;
}

/** What an ack did to the cursor of one lane: surely up to, and possibly up to, this offset. */
interface Advance {
  ack: AckOperation;
  surely: number;
  possibly: number;
  signal: boolean;
}

const REFUSED = /^(invalid or expired lease|consumer not found|unresolvable|already committed)/;

export function checkDeliveries(ops: Operations, reading: Reading, rules: DeliveryRules, fault: Fault): void {
  const stored = new Map(
    reading.log.map((lane) => [laneOf(lane), new Map(lane.messages.map((m) => [m.offset, m]))]),
  );
  checkLeaseIds(ops.pops, fault);
  const lanes = new Map<string, { group: string; lane: string; batches: Batch[]; advances: Advance[] }>();
  const at = (group: string, lane: string) => {
    const key = `${group} on ${lane}`;
    let entry = lanes.get(key);
    if (entry === undefined) {
      entry = { group, lane, batches: [], advances: [] };
      lanes.set(key, entry);
    }
    return entry;
  };
  for (const pop of ops.pops) {
    for (const [lane, messages] of Map.groupBy(pop.messages, laneOf)) {
      checkContent(`${pop.group} on ${lane}: pop ${pop.op}`, messages, stored.get(lane), fault);
      const { offset: first, attempt } = messages[0]!;
      at(pop.group, lane).batches.push({ pop, first, last: messages.at(-1)!.offset, attempt });
    }
  }
  for (const ack of ops.acks) {
    for (const [lane, items] of Map.groupBy(ack.items, laneOf)) {
      at(ack.group, lane).advances.push(advanceOf(ack, lane, items));
    }
  }
  for (const group of rules.groups) for (const lane of stored.keys()) at(group, lane);

  const unseen = new Set(ops.pops.filter((pop) => pop.unheard && pop.autoAck).map((pop) => pop.group));
  for (const [name, { group, lane, batches, advances }] of lanes) {
    const say: Fault = (text) => fault(`${name}: ${text}`);
    const own = { batches, advances: [...advances, ...batches.flatMap(commitAtDelivery)] };
    checkStarts(own.batches, own.advances, unseen.has(group), say);
    checkRedeliveries(batches, advances, ops, rules.slackMs, say);
    checkAckedOnce(advances, lane, say);
    checkFencing(batches, advances, ops, rules.slackMs, say);
    if (rules.groups.includes(group)) {
      checkComplete(batches, own.advances, [...(stored.get(lane)?.keys() ?? [])], unseen.has(group), say);
    }
  }
  checkDrained(reading, rules.groups, fault);
}

function checkLeaseIds(pops: readonly PopOperation[], fault: Fault): void {
  const seen = new Map<string, number>();
  for (const { lease, op } of pops) {
    if (lease === '') continue;
    const other = seen.get(lease);
    if (other !== undefined) fault(`pops ${other} and ${op} bear one lease id`);
    seen.set(lease, op);
  }
}

function checkContent(
  name: string,
  messages: readonly Delivered[],
  stored: ReadonlyMap<number, Omit<Delivered, 'attempt'>> | undefined,
  fault: Fault,
): void {
  messages.forEach((message, i) => {
    const { offset } = message;
    if (i > 0 && offset !== messages[i - 1]!.offset + 1) {
      fault(`${name} delivered offset ${offset} behind ${messages[i - 1]!.offset}`);
    }
    const is = stored?.get(offset);
    if (is === undefined) fault(`${name} delivered offset ${offset}, which is not stored`);
    else if (is.id !== message.id || is.txn !== message.txn || is.payload !== message.payload) {
      fault(`${name} delivered ${message.txn} at offset ${offset}, stored is ${is.txn}`);
    }
  });
}

/** Below the lowest signal the highest completed one counts; a dead letter is passed as well. */
function advanceOf(ack: AckOperation, lane: string, items: readonly AckedItem[]): Advance {
  const none = { ack, surely: -1, possibly: -1, signal: false };
  if (ack.certainlyNot) return none;
  const highest = Math.max(...items.map(({ offset }) => offset));
  const signalled = items.some(({ status }) => status !== 'completed');
  if (ack.verdicts === null) return { ack, surely: -1, possibly: highest, signal: signalled };
  const judged = ack.items.flatMap((item, i) =>
    laneOf(item) === lane ? [{ ...item, verdict: ack.verdicts![i] as AckOutcome }] : [],
  );
  const took = judged.filter(({ verdict }) => verdict.success);
  const open = judged.filter(({ verdict }) => !verdict.success && !REFUSED.test(verdict.error ?? ''));
  const signals = took.filter(({ status }) => status !== 'completed').sort((a, b) => a.offset - b.offset);
  const limit = signals[0]?.offset ?? Number.POSITIVE_INFINITY;
  let surely = -1;
  for (const { offset, status, verdict } of took) {
    if ((status === 'completed' && offset < limit) || (offset === limit && verdict.dlq)) {
      surely = Math.max(surely, offset);
    }
  }
  const possibly = Math.max(surely, ...open.map(({ offset }) => offset));
  return { ack, surely, possibly, signal: signals.length > 0 || open.some((i) => i.status !== 'completed') };
}

function commitAtDelivery({ pop, last }: Batch): Advance[] {
  if (!pop.autoAck) return [];
  const ack = { ...pop, items: [], verdicts: [], certainlyNot: false };
  return [{ ack, surely: last, possibly: last, signal: false }];
}

function checkStarts(
  batches: readonly Batch[],
  advances: readonly Advance[],
  unseenCommits: boolean,
  fault: Fault,
): void {
  const ended = steps(advances.map(({ ack, surely }) => ({ at: ack.to, offset: surely })));
  const begun = steps(advances.map(({ ack, possibly }) => ({ at: ack.from, offset: possibly })));
  for (const { pop, first } of batches) {
    const below = highestBefore(ended, pop.from);
    if (first <= below) fault(`pop ${pop.op} delivered offset ${first}, and ${below} was acked before`);
    if (unseenCommits) continue;
    // With autoAck the batch itself is among the advances, and does not count.
    const others = () => advances.filter((a) => a.ack.op !== pop.op && a.ack.from < pop.to);
    const reach = pop.autoAck
      ? Math.max(-1, ...others().map(({ possibly }) => possibly))
      : highestBefore(begun, pop.to);
    if (first > reach + 1) {
      fault(`pop ${pop.op} starts at offset ${first}, and nothing above ${reach} was acked`);
    }
  }
}

interface Step {
  at: number;
  offset: number;
}

/** Ascending in time, each with the highest offset so far. */
function steps(list: Step[]): Step[] {
  const sorted = list.filter(({ at }) => at !== Number.POSITIVE_INFINITY).sort((a, b) => a.at - b.at);
  let highest = -1;
  return sorted.map(({ at, offset }) => {
    highest = Math.max(highest, offset);
    return { at, offset: highest };
  });
}

function highestBefore(list: readonly Step[], time: number): number {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (list[middle]!.at < time) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? -1 : list[low - 1]!.offset;
}

function checkRedeliveries(
  batches: readonly Batch[],
  advances: readonly Advance[],
  ops: Operations,
  slackMs: number,
  fault: Fault,
): void {
  const byOffset = [...batches].sort((a, b) => a.first - b.first);
  for (const [i, one] of byOffset.entries()) {
    for (let j = i + 1; j < byOffset.length && byOffset[j]!.first <= one.last; j++) {
      const two = byOffset[j]!;
      const [earlier, later] = one.pop.from < two.pop.from ? [one, two] : [two, one];
      const pair = `pops ${earlier.pop.op} and ${later.pop.op} both delivered offset ${two.first}`;
      if (earlier.pop.autoAck || later.pop.autoAck) {
        fault(`${pair}, though one of them committed it`);
        continue;
      }
      const after = earlier.pop.to < later.pop.from;
      if (after && later.first === earlier.first && later.attempt <= earlier.attempt) {
        fault(`${pair}, the attempt went from ${earlier.attempt} to ${later.attempt}`);
      }
      // Both claims lie between the two; the first one's lease began no sooner than the first of them.
      const ended = Math.max(earlier.pop.to, later.pop.to);
      const leases = after ? [earlier] : [earlier, later];
      const aliveUntil = Math.min(...leases.map(({ pop }) => leaseAliveUntil(pop, ops)));
      const givenBack = advances.some(
        ({ ack, signal }) => signal && leases.some(({ pop }) => pop.lease === ack.lease) && ack.from < ended,
      );
      if (!givenBack && ended + slackMs * 1000 < aliveUntil) fault(`${pair} while a lease on it was live`);
    }
  }
}

/** The lease lived at least until then, unless it was given back. */
function leaseAliveUntil(pop: PopOperation, ops: Operations): number {
  const renewals = (ops.extends.get(pop.lease) ?? [])
    .filter(({ renewed }) => (renewed ?? 0) > 0)
    .map(({ from, seconds }) => from + seconds * 1_000_000);
  return Math.max(pop.from + pop.leaseMs * 1000, ...renewals);
}

/** And at most until then. */
function leaseDeadAt(pop: PopOperation, ops: Operations): number {
  const renewals = (ops.extends.get(pop.lease) ?? [])
    .filter(({ renewed }) => renewed !== 0)
    .map(({ to, seconds }) => to + seconds * 1_000_000);
  return Math.max(pop.to + pop.leaseMs * 1000, ...renewals);
}

function checkAckedOnce(advances: readonly Advance[], lane: string, fault: Fault): void {
  const acked = new Map<number, number>();
  for (const { ack, surely } of advances) {
    ack.items.forEach((item, i) => {
      const verdict = ack.verdicts?.[i];
      if (laneOf(item) !== lane || verdict === undefined || item.status !== 'completed') return;
      if (!verdict.success || verdict.noop || item.offset > surely) return;
      const other = acked.get(item.offset);
      if (other !== undefined) fault(`offset ${item.offset} was completed by acks ${other} and ${ack.op}`);
      acked.set(item.offset, ack.op);
    });
  }
}

/** An ack that comes after its lease has run out changes nothing. */
function checkFencing(
  batches: readonly Batch[],
  advances: readonly Advance[],
  ops: Operations,
  slackMs: number,
  fault: Fault,
): void {
  const leases = new Map(batches.map((batch) => [batch.pop.lease, batch]));
  for (const { ack, surely, signal } of advances) {
    const batch = leases.get(ack.lease);
    const took = ack.verdicts?.some(({ success, noop }) => success && !noop) ?? false;
    if (batch === undefined || !took || (surely < 0 && !signal)) continue;
    const lateMs = (ack.from - leaseDeadAt(batch.pop, ops)) / 1000 - slackMs;
    if (lateMs > 0) fault(`ack ${ack.op} was accepted ${Math.round(lateMs)} ms after its lease had run out`);
  }
}

function checkComplete(
  batches: readonly Batch[],
  advances: readonly Advance[],
  offsets: readonly number[],
  unseenCommits: boolean,
  fault: Fault,
): void {
  const delivered = new Set<number>();
  for (const { first, last } of batches) for (let o = first; o <= last; o++) delivered.add(o);
  const missing = offsets.filter((offset) => !delivered.has(offset));
  if (missing.length > 0 && !unseenCommits) {
    fault(`${missing.length} messages were never delivered, the first at offset ${missing[0]}`);
  }
  const reach = Math.max(-1, ...advances.map(({ possibly }) => possibly));
  const last = offsets.at(-1) ?? -1;
  if (reach < last && !unseenCommits) fault(`acked up to ${reach}, stored up to ${last}`);
}

function checkDrained(reading: Reading, groups: readonly string[], fault: Fault): void {
  for (const { queue, partition, messages } of reading.log) {
    const last = messages.at(-1)?.offset ?? -1;
    for (const group of groups) {
      const cursor = reading.cursors.find(
        (c) => c.group === group && c.queue === queue && c.partition === partition,
      );
      const committed = cursor?.committed ?? -1;
      if (committed !== last) {
        fault(`${group} on ${queue}/${partition}: the cursor is at ${committed}, the log ends at ${last}`);
      }
    }
  }
}
