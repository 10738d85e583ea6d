import type { PushItem } from '../calls/push.ts';
import type { PushResult } from '../message.ts';

/** A message that waits to be sent, and who waits for it. */
export interface Waiting {
  readonly item: PushItem;
  /** Its size as JSON, in characters: near enough to bytes for a bound. */
  readonly size: number;
  readonly since: number;
  resolve(result: PushResult): void;
  reject(error: unknown): void;
}

/**
 * Messages that wait, by partition. A partition of which something is under way is left alone until that is answered, so no
 * message overtakes another one of its partition, however many requests are in flight.
 */
export class Lanes {
  readonly #lanes = new Map<string, Waiting[]>();
  readonly #busy = new Set<string>();
  #count = 0;

  get count(): number {
    return this.#count;
  }

  add(waiting: Waiting): void {
    const lane = this.#lanes.get(waiting.item.partition);
    if (lane === undefined) this.#lanes.set(waiting.item.partition, [waiting]);
    else lane.push(waiting);
    this.#count++;
  }

  /** What could be sent now, and since when its oldest message waits (infinity when there is none). */
  ready(): { count: number; size: number; since: number } {
    const ready = { count: 0, size: 0, since: Number.POSITIVE_INFINITY };
    for (const [partition, lane] of this.#lanes) {
      if (this.#busy.has(partition)) continue;
      ready.count += lane.length;
      for (const { size } of lane) ready.size += size;
      ready.since = Math.min(ready.since, lane[0]!.since);
    }
    return ready;
  }

  /** Takes a batch out, at least one message if any is ready; its partitions are busy until `settled`. */
  take(messagesMax: number, sizeMax: number): Waiting[] {
    const batch: Waiting[] = [];
    let size = 0;
    for (const [partition, lane] of this.#lanes) {
      if (this.#busy.has(partition)) continue;
      let taken = 0;
      while (taken < lane.length && batch.length < messagesMax) {
        const next = lane[taken]!;
        if (batch.length > 0 && size + next.size > sizeMax) break;
        batch.push(next);
        size += next.size;
        taken++;
      }
      if (taken > 0) this.#busy.add(partition);
      // At the end of the map when it comes back, so that a full partition does not starve the others.
      this.#lanes.delete(partition);
      if (taken < lane.length) this.#lanes.set(partition, taken === 0 ? lane : lane.slice(taken));
      if (taken < lane.length || batch.length >= messagesMax) break;
    }
    this.#count -= batch.length;
    return batch;
  }

  settled(batch: readonly Waiting[]): void {
    for (const { item } of batch) this.#busy.delete(item.partition);
  }
}
