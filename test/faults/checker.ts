/**
 * Judges a history: what clients saw, against what was stored in the end. It knows nothing of the broker but the
 * promises that are kept through every fault:
 *
 * - no acknowledged push is lost or stored twice, and what was refused is not stored;
 * - offsets are dense, readable, and in an order that the clients can have seen;
 * - a duplicate's answer names the original;
 * - a group gets every message in order, and none again that it has acked;
 * - a message is with one consumer of a group at a time, and comes again only when a lease was lost or given up;
 * - an ack that comes too late changes nothing;
 * - when the faults are over, everything drains.
 *
 * Every rule argues from intervals (operations.ts), so that it never accuses a broker of what only looks wrong because
 * an answer was late. checker.test.ts shows that it finds each kind of damage.
 */
import assert from 'node:assert/strict';
import { checkDeliveries } from './check_deliveries.ts';
import { checkPushes } from './check_pushes.ts';
import type { History, HistoryEvent } from './history.ts';
import { operationsOf } from './operations.ts';

export interface CheckOptions {
  /** The groups that were to consume everything. */
  groups: readonly string[];
  /** Between the database's clock and the history's, in ms. Default 50. */
  slackMs?: number;
}

/** One sentence for each promise that was broken. */
export function checkHistory(events: readonly HistoryEvent[], options: CheckOptions): string[] {
  const ops = operationsOf(events);
  const faults = [...ops.faults];
  const { reading } = ops;
  if (reading === null) return [...faults, 'the history has no final reading'];
  const fault = (text: string): void => void faults.push(text);
  checkPushes(ops.pushes, reading, fault);
  checkDeliveries(ops, reading, { slackMs: options.slackMs ?? 50, groups: options.groups }, fault);
  return faults;
}

/** Fails with all that is wrong and where the history is; removes it when nothing is. */
export function assertHistory(history: History, options: CheckOptions): void {
  const faults = checkHistory(history.events, options);
  if (faults.length > 0) {
    const shown = faults.slice(0, 30).join('\n');
    assert.fail(`${faults.length} promises broken\n${shown}`);
  }
  history.remove();
}
