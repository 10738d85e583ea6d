/**
 * Tells the queue what is settled, by offset: that needs no hash, so a backlog of any age can be acknowledged. What the queue
 * does not hear comes again, and is skipped then; so this tries for a while and gives up.
 */

import { ACK_ERROR } from '../../../engine/ack/verdicts.ts';
import type { Clock } from '../../../engine/clock.ts';
import type { AckItem, AckVerdict, BrokerFace, TenantId } from '../../../engine/types.ts';
import { pause } from '../pause.ts';
import type { Lane } from './lane.ts';

export interface AcknowledgerDeps {
  readonly broker: Pick<BrokerFace, 'ack'>;
  readonly tenant: TenantId;
  readonly group: string;
  readonly clock: Clock;
}

const PAUSE_MIN_MS = 100;
const PAUSE_MAX_MS = 2_000;
const PATIENCE_MS = 5_000;
/** Answers that another call would get again. */
const FINAL: ReadonlySet<string> = new Set([
  ACK_ERROR.consumerNotFound,
  ACK_ERROR.lease,
  ACK_ERROR.committed,
  ACK_ERROR.unresolvable,
  ACK_ERROR.notOwned,
]);

export class Acknowledger {
  readonly #deps: AcknowledgerDeps;
  readonly #leaseId: string;
  readonly #until: () => number;

  /** @param until when the lease ends, by the clock */
  constructor(deps: AcknowledgerDeps, leaseId: string, until: () => number) {
    this.#deps = deps;
    this.#leaseId = leaseId;
    this.#until = until;
  }

  /** What is settled of these lanes and not yet told. Never rejects. */
  async completed(lanes: readonly Lane[]): Promise<void> {
    const told = lanes.filter((lane) => lane.toAcknowledge !== null);
    const items = told.map((lane) => this.#item(lane, lane.toAcknowledge!, 'completed'));
    const verdicts = await this.#ack(items);
    for (const [index, lane] of told.entries()) {
      if (verdicts[index]!.success) lane.acknowledged = lane.next;
    }
  }

  /**
   * The message at the `next` of each lane goes to the dead letters, with the reason beside it; what is settled before it is
   * acknowledged with it. The lanes are closed: what is behind comes again at once. Answers those that were filed; the
   * others come again with their message. Never rejects.
   */
  async deadLetters(letters: readonly { lane: Lane; reason: string }[]): Promise<Lane[]> {
    const items: AckItem[] = [];
    const at = letters.map(({ lane, reason }) => {
      const before = lane.toAcknowledge;
      if (before !== null) items.push(this.#item(lane, before, 'completed'));
      return items.push({ ...this.#item(lane, lane.messages[lane.next]!.offset, 'dlq'), error: reason }) - 1;
    });
    const verdicts = await this.#ack(items);
    for (const { lane } of letters) lane.closed = true;
    return letters.filter((_, index) => verdicts[at[index]!]!.dlq).map(({ lane }) => lane);
  }

  /** What is left of these lanes is given back, for anybody to take at once. Never rejects. */
  async release(lanes: readonly Lane[]): Promise<void> {
    const items = lanes.map((lane) => this.#item(lane, lane.messages[lane.next]!.offset, 'retry'));
    if (items.length > 0) await this.#once(items);
    for (const lane of lanes) lane.closed = true;
  }

  #item(lane: Lane, offset: number, status: AckItem['status']): AckItem {
    const { partitionId } = lane;
    return { partitionId, leaseId: this.#leaseId, status, error: null, transactionId: '', offset };
  }

  async #ack(items: readonly AckItem[]): Promise<AckVerdict[]> {
    if (items.length === 0) return [];
    const { clock } = this.#deps;
    const deadline = Math.max(this.#until(), clock.now() + PATIENCE_MS);
    for (let ms = PAUSE_MIN_MS; ; ms = Math.min(PAUSE_MAX_MS, 2 * ms)) {
      const verdicts = await this.#once(items);
      const again = verdicts.some(({ success, error }) => !success && !FINAL.has(error ?? ''));
      if (!again || clock.now() + ms > deadline) return verdicts;
      await pause(clock, ms);
    }
  }

  async #once(items: readonly AckItem[]): Promise<AckVerdict[]> {
    const { broker, tenant, group } = this.#deps;
    try {
      return await broker.ack({ tenant, group, items: [...items] });
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      return items.map(() => ({
        success: false,
        error: text,
        leaseReleased: false,
        dlq: false,
        noop: false,
      }));
    }
  }
}
