/** Candidates from the rings of one queue, or of all queues of a discovery scope. */
import { CLAIM, type ClaimRow } from '../../store/pop.ts';
import type { Clock } from '../clock.ts';
import type { GroupRing, HotList } from '../hotlist/hotlist.ts';
import { queueKey } from '../hotlist/hotlist.ts';
import type { Reseed } from '../hotlist/reseed.ts';
import type { Wish } from '../wake/parking.ts';
import type { Candidates, Source } from './source.ts';

/** The longest that a pop which will not wait lets the claims of others end. */
const OTHERS_MS = 100;

export interface RingSourceDeps {
  hotlist: HotList;
  reseed: Reseed;
  clock: Clock;
  /** Partitions by a scan, for a queue that is too large for its ring. */
  scan: (queues: readonly number[], group: string) => Promise<number[]>;
}

/** How the rings come about: first contact of a queue or of a scope. */
export interface RingSupply {
  readonly keys: readonly string[];
  readonly group: string;
  prepare(): Promise<{ rings: GroupRing[]; conflation: boolean }>;
  /** The registration on which the rings rest is not what it was. */
  outdated(why: 'foreign' | 'unregistered'): void;
  /** Whether an attempt is worth it although no ring is READY: something must be prepared anew. */
  unsettled(rings: readonly GroupRing[]): boolean;
}

export class RingSource implements Source {
  readonly wish: Wish;
  readonly pinned = null;
  conflation = false;
  readonly #deps: RingSourceDeps;
  readonly #supply: RingSupply;
  #rings: GroupRing[] = [];
  #next = 0;
  #stale = false;
  readonly #drawn = new Map<number, GroupRing>();

  constructor(deps: RingSourceDeps, supply: RingSupply) {
    this.#deps = deps;
    this.#supply = supply;
    const readyIn = (key: string): number => {
      let sum = 0;
      for (const ring of this.#rings) {
        if (supply.keys.length > 1 && queueKey(ring.tenant, ring.queue) !== key) continue;
        sum += ring.ring.ready;
      }
      return sum;
    };
    const wants = () => this.#rings.some((ring) => ring.ring.ready > 0) || supply.unsettled(this.#rings);
    this.wish = {
      keys: supply.keys,
      group: supply.group,
      // A source whose rings are outdated wakes for a look of its own, whatever the share of the others.
      ready: (key) => readyIn(key) + (supply.unsettled(this.#rings) ? 1 : 0),
      wants,
    };
  }

  get stale(): boolean {
    return this.#stale;
  }

  get minPopWaitMs(): number {
    return this.#rings.length === 1 ? (this.#rings[0] as GroupRing).minPopWaitMs : 0;
  }

  async prepare(): Promise<void> {
    const { rings, conflation } = await this.#supply.prepare();
    this.#rings = rings;
    this.#stale = false;
    this.conflation = conflation;
    for (const ring of rings) await this.#deps.reseed.freshen(ring);
    // Whether to wait for a fuller batch is decided by what is known before the draw.
    if (this.minPopWaitMs > 0) await this.#deps.reseed.progress(rings[0] as GroupRing);
  }

  async draw(k: number, batch: number, sure: boolean): Promise<Candidates> {
    for (;;) {
      const found = this.#drawReady(k, batch);
      if (found.ids.length > 0) return found;
      // A ring that is still being read says nothing yet: wait for its next page, not for all of them.
      const unread = this.#rings.filter((ring) => !ring.complete && !ring.truncated && !ring.dropped);
      if (unread.length === 0) break;
      if (!(await Promise.race(unread.map((ring) => this.#deps.reseed.progress(ring))))) break;
    }
    const truncated = this.#rings.filter((ring) => ring.truncated && !ring.dropped);
    if (truncated.length > 0) return this.#scan(truncated);
    if (!sure) return { ids: [], queues: [] };
    if (await this.#othersSettled()) {
      const returned = this.#drawReady(k, batch);
      if (returned.ids.length > 0) return returned;
    }
    return this.#drawParked(k);
  }

  /** Other pops may have drawn more than they can use: waits, once and briefly, for what comes back. */
  async #othersSettled(): Promise<boolean> {
    const flying = this.#rings.filter((ring) => ring.ring.inflight > 0 && !ring.dropped);
    if (flying.length === 0) return false;
    const brief = Promise.withResolvers<void>();
    const timer = this.#deps.clock.after(OTHERS_MS, () => brief.resolve());
    await Promise.race([brief.promise, ...flying.map((ring) => ring.nextSettled())]);
    timer.cancel();
    return true;
  }

  settle(row: ClaimRow, autoAck: boolean): void {
    const ring = this.#take(row.partitionId);
    if (ring === null) return;
    const { clock, hotlist } = this.#deps;
    const now = clock.now();
    const id = row.partitionId;
    const waitMs = (row.waitMicros ?? 0) / 1000;
    if (row.minPopWaitMs !== null) ring.minPopWaitMs = row.minPopWaitMs;
    switch (row.verdict) {
      case CLAIM.claimed:
        ring.ring.took(
          id,
          row.toOffset as number,
          row.lastOffset as number,
          autoAck ? null : (row.leaseSeconds as number) * 1000,
          now,
        );
        if (!autoAck && !ring.dropped) hotlist.leasedHere(ring, id);
        break;
      case CLAIM.empty:
        ring.ring.empty(id, row.lastOffset as number);
        break;
      case CLAIM.leased:
        ring.ring.leased(id, waitMs, now);
        break;
      case CLAIM.deferred:
        ring.ring.deferred(id, waitMs, row.position as number, row.lastOffset as number, now);
        break;
      default:
        ring.ring.skipped(id, now);
    }
    hotlist.settled(ring);
  }

  giveBack(ids: readonly number[]): void {
    const byRing = new Map<GroupRing, number[]>();
    for (const id of ids) {
      const ring = this.#take(id);
      if (ring === null) continue;
      const list = byRing.get(ring);
      if (list === undefined) byRing.set(ring, [id]);
      else list.push(id);
    }
    for (const [ring, list] of byRing) {
      ring.ring.undraw(list);
      this.#deps.hotlist.settled(ring);
    }
  }

  retry(id: number, parkMs?: number): void {
    const ring = this.#take(id);
    if (ring === null) return;
    if (parkMs === undefined) ring.ring.requeue(id);
    else ring.ring.skipped(id, this.#deps.clock.now(), parkMs);
    this.#deps.hotlist.settled(ring);
  }

  busy(id: number): void {
    const ring = this.#take(id);
    ring?.ring.skipped(id, this.#deps.clock.now());
    if (ring !== null) this.#deps.hotlist.settled(ring);
  }

  outdated(id: number, why: 'foreign' | 'unregistered' | 'missing'): void {
    const ring = this.#take(id);
    if (ring === null) return;
    if (why === 'missing') {
      ring.ring.forget(id);
      return;
    }
    this.#stale = true;
    if (ring.dropped) return;
    if (why === 'foreign') this.#deps.hotlist.replaced(ring.tenant, ring.queue, false);
    else this.#deps.hotlist.drop(ring.tenant, ring.queue, ring.group);
    this.#supply.outdated(why);
  }

  backlog(partitions: number, cap: number): number {
    let sum = 0;
    for (const ring of this.#rings) sum += ring.ring.backlog(partitions, cap);
    return Math.min(sum, cap);
  }

  close(): void {
    this.giveBack([...this.#drawn.keys()]);
  }

  #drawReady(k: number, batch: number): Candidates {
    const found: Candidates = { ids: [], queues: [] };
    // Each pop begins at another queue, so that a scope's first queue is not served before all others.
    const count = this.#rings.length;
    for (let n = 0, left = batch; n < count && found.ids.length < k && left > 0; n++) {
      const ring = this.#rings[(this.#next + n) % count] as GroupRing;
      if (ring.dropped || ring.ring.ready === 0) continue;
      left -= ring.ring.backlog(k - found.ids.length, left);
      const ids: number[] = [];
      ring.ring.draw(k - found.ids.length, batch, ids);
      this.#hold(ring, ids, found);
    }
    this.#next++;
    return found;
  }

  #drawParked(k: number): Candidates {
    const found: Candidates = { ids: [], queues: [] };
    for (const ring of this.#rings) {
      if (ring.dropped) continue;
      const ids: number[] = [];
      ring.ring.drawParked(k - found.ids.length, ids);
      this.#hold(ring, ids, found);
      if (found.ids.length >= k) break;
    }
    return found;
  }

  async #scan(rings: readonly GroupRing[]): Promise<Candidates> {
    const found: Candidates = { ids: [], queues: [] };
    for (const ring of rings) {
      for (const id of await this.#deps.scan([ring.queueId], ring.group)) {
        found.ids.push(id);
        found.queues.push(ring.queueId);
      }
    }
    return found;
  }

  #hold(ring: GroupRing, ids: readonly number[], found: Candidates): void {
    for (const id of ids) {
      this.#drawn.set(id, ring);
      found.ids.push(id);
      found.queues.push(ring.queueId);
    }
  }

  #take(id: number): GroupRing | null {
    const ring = this.#drawn.get(id) ?? null;
    this.#drawn.delete(id);
    return ring;
  }
}
