/**
 * All rings of this broker: for each queue that somebody pops, one ring a group. Pushes mark every ring of their
 * queue; whatever becomes READY is told to `onReady`, which wakes parked pops.
 *
 * What is kept here about a queue belongs to one queue id. When another id turns up under the name (the queue was
 * deleted and made anew, perhaps by another broker), its rings are dropped and the next pop registers its group
 * anew.
 */
import type { Clock, Timer } from '../clock.ts';
import { Ring } from './ring.ts';

const TICK_MS = 50;
/** A group that polled so recently counts as still there when its queue is made anew. */
const PRESENT_MS = 5_000;
const LEASED_MAX = 100_000;
const REMEMBERED_MAX = 10_000;

export interface HotListSettings {
  /** Waiting messages that open a windowed partition early. */
  readonly windowBatch: number;
  /** A ring that nobody asked for in so long is dropped (at the second look). */
  readonly idleSweepMs: number;
}

/** What a pop knows about its queue, and its ring. */
export class GroupRing {
  readonly tenant: string;
  readonly queue: string;
  readonly group: string;
  readonly queueId: number;
  /** The policy of the group's registration on the queue. */
  conflation: boolean;
  /** The group has a registration on the queue itself; else a discovery scope covers it. */
  registered: boolean;
  readonly ring: Ring;
  /** Refreshed by every claim. */
  minPopWaitMs: number;
  /** The whole queue has been read: an empty ring means that there is nothing. */
  complete = false;
  /** The queue has more partitions than a reseed reads: an empty ring means nothing. */
  truncated = false;
  /** Another ring took its place, or the queue is gone. */
  dropped = false;
  usedAt: number;
  seededFullAt: number = Number.NEGATIVE_INFINITY;
  seededAt: number = Number.NEGATIVE_INFINITY;
  #settling: PromiseWithResolvers<void> | null = null;

  constructor(facts: RingFacts, settings: HotListSettings, now: number) {
    this.tenant = facts.tenant;
    this.queue = facts.queue;
    this.group = facts.group;
    this.queueId = facts.queueId;
    this.conflation = facts.conflation;
    this.registered = facts.registered;
    this.minPopWaitMs = facts.minPopWaitMs;
    this.ring = new Ring(settings);
    this.usedAt = now;
  }

  /** Resolves when the next verdicts have come in. */
  nextSettled(): Promise<void> {
    this.#settling ??= Promise.withResolvers();
    return this.#settling.promise;
  }

  settled(): void {
    this.#settling?.resolve();
    this.#settling = null;
  }
}

export interface RingFacts {
  tenant: string;
  queue: string;
  group: string;
  queueId: number;
  conflation: boolean;
  registered: boolean;
  minPopWaitMs: number;
}

interface QueueRings {
  readonly tenant: string;
  readonly queue: string;
  readonly groups: Map<string, GroupRing>;
}

export class HotList {
  readonly #clock: Clock;
  readonly #settings: HotListSettings;
  readonly #queues = new Map<string, QueueRings>();
  readonly #groups = new Map<string, Set<GroupRing>>();
  readonly #leasedIn = new Map<string, Map<number, GroupRing>>();
  readonly #parked = new Set<GroupRing>();
  readonly #idle = new Set<GroupRing>();
  /** Deleted queues that parked pops still wait for. They do not bring them back; the next writer or pop does. */
  readonly #gone = new Set<string>();
  /** Groups that were polling a queue when it went: they must not miss what its successor holds by now. */
  readonly #present = new Set<string>();
  #tick: Timer | null = null;
  /** Called when partitions of a ring became READY. */
  onReady: (ring: GroupRing) => void = () => {};

  constructor(clock: Clock, settings: HotListSettings) {
    this.#clock = clock;
    this.#settings = settings;
  }

  find(tenant: string, queue: string, group: string): GroupRing | null {
    const found = this.#queues.get(queueKey(tenant, queue))?.groups.get(group) ?? null;
    if (found !== null) found.usedAt = this.#clock.now();
    return found;
  }

  /** A new ring, empty. One of the same queue id that is there already is kept; of another id, all are dropped. */
  add(facts: RingFacts): GroupRing {
    const key = queueKey(facts.tenant, facts.queue);
    for (const other of [...this.ringsOf(facts.tenant, facts.queue)]) {
      if (other.queueId !== facts.queueId) {
        this.#drop(other);
        this.onReady(other);
      } else if (other.group === facts.group) {
        if (facts.registered) {
          other.registered = true;
          other.conflation = facts.conflation;
        }
        return other;
      }
    }
    let rings = this.#queues.get(key);
    if (rings === undefined) {
      rings = { tenant: facts.tenant, queue: facts.queue, groups: new Map() };
      this.#queues.set(key, rings);
    }
    const made = new GroupRing(facts, this.#settings, this.#clock.now());
    rings.groups.set(facts.group, made);
    const sameGroup = this.#groups.get(facts.group);
    if (sameGroup === undefined) this.#groups.set(facts.group, new Set([made]));
    else sameGroup.add(made);
    return made;
  }

  /** A committed append. */
  mark(tenant: string, queue: string, partitionId: number, lastOffset: number): void {
    const rings = this.#queues.get(queueKey(tenant, queue));
    if (rings === undefined) return;
    const now = this.#clock.now();
    for (const ring of rings.groups.values()) {
      if (ring.ring.mark(partitionId, lastOffset, now)) this.onReady(ring);
    }
  }

  /** A lease of the group ended, or left a backlog. True: a ring knows that nothing is left there. */
  released(partitionId: number, group: string, committed: number | null): boolean {
    const known = this.#leasedIn.get(group)?.get(partitionId);
    const rings = known !== undefined ? [known] : (this.#groups.get(group) ?? []);
    let done = false;
    for (const ring of rings) {
      if (ring.ring.release(partitionId, committed)) this.onReady(ring);
      if (committed !== null && ring.ring.isDone(partitionId, committed)) done = true;
    }
    this.#leasedIn.get(group)?.delete(partitionId);
    return done;
  }

  /** Remembers in which ring a leased partition lives, so that its release need not be looked for. */
  leasedHere(ring: GroupRing, partitionId: number): void {
    const known = this.#leasedIn.get(ring.group);
    if (known === undefined) {
      this.#leasedIn.set(ring.group, new Map([[partitionId, ring]]));
      return;
    }
    // Leases that ran out leave entries behind; without an entry, the rings of the group are asked one by one.
    if (known.size >= LEASED_MAX) known.clear();
    known.set(partitionId, ring);
  }

  /** The cursor of one partition was moved by hand. */
  revive(tenant: string, queue: string, group: string, partitionId: number): void {
    const ring = this.#queues.get(queueKey(tenant, queue))?.groups.get(group);
    if (ring === undefined) return;
    ring.ring.revive(partitionId);
    this.onReady(ring);
  }

  /** Drops the rings of a queue, or only one group's. Their parked pops are woken: they start over. */
  drop(tenant: string, queue: string, group: string | null = null): void {
    for (const ring of [...(this.#queues.get(queueKey(tenant, queue))?.groups.values() ?? [])]) {
      if (group !== null && ring.group !== group) continue;
      this.#drop(ring);
      this.onReady(ring);
    }
  }

  /**
   * The queue is no more (`gone`), or another one bears its name. Groups that were polling it will be registered on
   * its successor as of its creation.
   */
  replaced(tenant: string, queue: string, gone: boolean): void {
    const key = queueKey(tenant, queue);
    const since = this.#clock.now() - PRESENT_MS;
    if (this.#present.size > REMEMBERED_MAX) this.#present.clear();
    if (this.#gone.size > REMEMBERED_MAX) this.#gone.clear();
    for (const ring of this.ringsOf(tenant, queue)) {
      if (ring.usedAt >= since) this.#present.add(`${key}\u001f${ring.group}`);
    }
    if (gone) this.#gone.add(key);
    else this.#gone.delete(key);
    this.drop(tenant, queue);
  }

  isGone(tenant: string, queue: string): boolean {
    return this.#gone.has(queueKey(tenant, queue));
  }

  /** The queue exists (again). True when it had been gone. */
  back(tenant: string, queue: string): boolean {
    return this.#gone.delete(queueKey(tenant, queue));
  }

  /** Whether the group was polling the queue's predecessor when that went; asked once, by its registration. */
  takePresent(tenant: string, queue: string, group: string): boolean {
    return this.#present.delete(`${queueKey(tenant, queue)}\u001f${group}`);
  }

  /** The queue's id where a ring knows it, else 0. */
  queueIdOf(tenant: string, queue: string): number {
    for (const ring of this.#queues.get(queueKey(tenant, queue))?.groups.values() ?? []) return ring.queueId;
    return 0;
  }

  hasQueue(tenant: string, queue: string): boolean {
    return this.#queues.has(queueKey(tenant, queue));
  }

  *rings(): Generator<GroupRing> {
    for (const rings of this.#queues.values()) yield* rings.groups.values();
  }

  /** The rings of one queue. */
  *ringsOf(tenant: string, queue: string): Generator<GroupRing> {
    yield* this.#queues.get(queueKey(tenant, queue))?.groups.values() ?? [];
  }

  /** Nothing that is known can be trusted: notifications were lost. Every ring is read anew by the next passes. */
  allStale(): void {
    for (const ring of this.rings()) {
      ring.seededFullAt = Number.NEGATIVE_INFINITY;
      ring.seededAt = Number.NEGATIVE_INFINITY;
    }
  }

  /** To be called after verdicts: something of the ring may be parked, or READY again. */
  settled(ring: GroupRing): void {
    ring.settled();
    if (ring.dropped) return;
    if (ring.ring.parked > 0) this.#arm(ring);
    if (ring.ring.ready > 0) this.onReady(ring);
  }

  /** Leases and delays are judged by the database's clock, and that has jumped: look at everything parked. */
  clockJumped(): void {
    for (const ring of this.#parked) if (ring.ring.wakeAll() > 0) this.onReady(ring);
  }

  /** Drops rings that nobody asked for in the idle time, at the second look; to be called about once in that time. */
  sweep(): void {
    const now = this.#clock.now();
    for (const ring of [...this.rings()]) {
      ring.ring.sweep();
      if (now - ring.usedAt < this.#settings.idleSweepMs || ring.ring.inflight > 0) this.#idle.delete(ring);
      else if (this.#idle.has(ring)) this.#drop(ring);
      else this.#idle.add(ring);
    }
  }

  stats(): {
    rings: number;
    entries: number;
    ready: number;
    parked: number;
    inflight: number;
    bytes: number;
  } {
    const sum = { rings: 0, entries: 0, ready: 0, parked: 0, inflight: 0, bytes: 0 };
    for (const { ring } of this.rings()) {
      sum.rings++;
      sum.entries += ring.size;
      sum.ready += ring.ready;
      sum.parked += ring.parked;
      sum.inflight += ring.inflight;
      sum.bytes += ring.bytes;
    }
    return sum;
  }

  stop(): void {
    this.#tick?.cancel();
    this.#tick = null;
    this.#parked.clear();
  }

  #drop(ring: GroupRing): void {
    ring.dropped = true;
    ring.complete = false;
    const key = queueKey(ring.tenant, ring.queue);
    const rings = this.#queues.get(key);
    if (rings?.groups.get(ring.group) === ring) rings.groups.delete(ring.group);
    if (rings?.groups.size === 0) this.#queues.delete(key);
    const sameGroup = this.#groups.get(ring.group);
    sameGroup?.delete(ring);
    if (sameGroup?.size === 0) {
      this.#groups.delete(ring.group);
      this.#leasedIn.delete(ring.group);
    } else {
      const leased = this.#leasedIn.get(ring.group);
      for (const [id, where] of leased ?? []) if (where === ring) leased?.delete(id);
    }
    this.#parked.delete(ring);
    this.#idle.delete(ring);
  }

  #arm(ring: GroupRing): void {
    this.#parked.add(ring);
    this.#tick ??= this.#clock.after(TICK_MS, () => this.#turn());
  }

  #turn(): void {
    this.#tick = null;
    const now = this.#clock.now();
    for (const ring of this.#parked) {
      if (ring.ring.nextDue <= now && ring.ring.wake(now) > 0) this.onReady(ring);
      if (ring.ring.parked === 0) this.#parked.delete(ring);
    }
    if (this.#parked.size > 0) this.#tick ??= this.#clock.after(TICK_MS, () => this.#turn());
  }
}

/** Names hold no control characters, so the separator cannot occur in one. */
export function queueKey(tenant: string, queue: string): string {
  return `${tenant}\u001f${queue}`;
}
