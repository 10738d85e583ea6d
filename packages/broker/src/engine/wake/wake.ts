/**
 * Where news of available work come together, from this broker's own commits, from its peers and from the scan, and
 * from where they go: into the rings, to pops that wait for one partition, to parked pops, and (own commits
 * only) to the peers.
 */
import type { Queryable, Session } from '../../store/database.ts';
import type { StoreLog } from '../../store/log.ts';
import type { Clock } from '../clock.ts';
import { type GroupRing, type HotList, queueKey } from '../hotlist/hotlist.ts';
import type { Announcement, Announcer } from './announcer.ts';
import { DatabaseTime } from './database_time.ts';
import { PARKING_DEFAULTS, Parking, type ParkingSettings } from './parking.ts';
import type { News } from './payload.ts';
import { Peers } from './peers.ts';
import { WakeScan } from './scan.ts';

/** A pop that waits for one partition, or for a partition that does not exist yet. */
export interface Watch {
  readonly key: string;
  readonly group: string;
  /** Null: it does not exist. */
  readonly partitionId: number | null;
  appended(partitionId: number, lastOffset: number): void;
  /** Look again: a lease ended, or what was known cannot be trusted. */
  stir(): void;
  /** The queue is no more, or another one: its partitions have other ids, if there are any. */
  lost(): void;
}

export interface WakeDeps {
  hotlist: HotList;
  /** Reads outside the pop lane. */
  read: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  /** Null: no notifications, neither sent nor heard. */
  session: (() => Promise<Session>) | null;
  sender: string;
  clock: Clock;
  log: StoreLog;
  parking?: ParkingSettings;
}

export class Wake implements Announcer {
  readonly parking: Parking;
  readonly time: DatabaseTime;
  readonly scan: WakeScan;
  readonly peers: Peers | null;
  readonly #hotlist: HotList;
  readonly #watches = new Map<string, Set<Watch>>();
  readonly #byPartition = new Map<number, Set<Watch>>();
  readonly #scopes = new Map<string, Set<string>>();
  readonly #strangers = new Map<string, Set<(queue: string) => void>>();
  /** Notifications were missed, or repairs published by a peer. */
  onRepairs: () => void = () => {};
  onGap: () => void = () => {};
  /** A switch of the cluster was set, or may have been. */
  onSwitches: () => void = () => {};
  /** A peer has scheduled timers. */
  onTimers: () => void = () => {};
  /** The queue was deleted or made anew. */
  onQueueReplaced: (tenant: string, queue: string) => void = () => {};

  constructor(deps: WakeDeps) {
    this.#hotlist = deps.hotlist;
    this.parking = new Parking(deps.clock, deps.parking ?? PARKING_DEFAULTS);
    this.time = new DatabaseTime(deps.clock);
    this.scan = new WakeScan({
      read: deps.read,
      clock: deps.clock,
      time: this.time,
      log: deps.log,
      wanted: () => this.#wanted(deps.clock.now()),
      onRow: (row) => this.#onScanRow(row),
      onClockJump: () => this.#onClockJump(),
    });
    this.peers =
      deps.session === null
        ? null
        : new Peers({
            session: deps.session,
            sender: deps.sender,
            clock: deps.clock,
            log: deps.log,
            onNews: (news) => this.#onNews(news),
            onGap: (again) => this.#onGap(again),
          });
    this.#hotlist.onReady = (ring) => this.#signalRing(ring);
    this.parking.onOccupied = () => this.scan.plan();
  }

  async start(): Promise<void> {
    await this.peers?.start();
  }

  async stop(): Promise<void> {
    this.scan.stop();
    this.parking.stop();
    this.#hotlist.stop();
    await this.peers?.stop();
  }

  pushed(list: readonly Announcement[]): void {
    for (const { tenant, queue, partitionId, lastOffset } of list) {
      this.#appended(tenant, queue, partitionId, lastOffset);
      this.peers?.appended(tenant, queue, partitionId, lastOffset);
    }
  }

  released(partitionId: number, group: string, committed?: number): void {
    const done = this.#released(partitionId, group, committed ?? null);
    // A completed batch of a partition that is used up is no news: a peer that looks there finds nothing.
    if (!done) this.peers?.released(partitionId, group, committed ?? null);
  }

  queueDeleted(tenant: string, queue: string): void {
    this.#replaced(tenant, queue, true);
    this.peers?.queueDeleted(tenant, queue);
  }

  /** Cursors were moved by hand (seek, group delete) and the repair is committed. */
  repairsPublished(): void {
    this.onRepairs();
    this.peers?.repairsPublished();
  }

  /** Tells the watch about its queue and partition until it is unwatched. */
  watch(watch: Watch): void {
    put(this.#watches, watch.key, watch);
    if (watch.partitionId !== null) put(this.#byPartition, watch.partitionId, watch);
  }

  unwatch(watch: Watch): void {
    take(this.#watches, watch.key, watch);
    if (watch.partitionId !== null) take(this.#byPartition, watch.partitionId, watch);
  }

  /** Signals for the queue reach the pops parked on this discovery scope too. */
  linkScope(queue: string, scope: string): void {
    put(this.#scopes, queue, scope);
  }

  unlinkScope(queue: string, scope: string): void {
    take(this.#scopes, queue, scope);
  }

  /** `listener` hears the name of every queue of the tenant that is written to. */
  hearQueues(tenant: string, listener: (queue: string) => void): void {
    put(this.#strangers, tenant, listener);
  }

  unhearQueues(tenant: string, listener: (queue: string) => void): void {
    take(this.#strangers, tenant, listener);
  }

  /** Somebody says that a queue was written to: whoever waits for it is woken when that is so. */
  noticed(tenant: string, queue: string): void {
    this.scan.look(tenant, queue);
  }

  /** A signal for a queue and the scopes that hold it. */
  signal(key: string): void {
    this.parking.signal(key);
    for (const scope of this.#scopes.get(key) ?? []) this.parking.signal(scope);
  }

  #appended(tenant: string, queue: string, partitionId: number, lastOffset: number): void {
    const key = queueKey(tenant, queue);
    this.#hotlist.mark(tenant, queue, partitionId, lastOffset);
    const back = this.#hotlist.back(tenant, queue);
    for (const watch of this.#watches.get(key) ?? []) watch.appended(partitionId, lastOffset);
    if (back || this.#watches.has(key)) this.signal(key);
    for (const listener of this.#strangers.get(tenant) ?? []) listener(queue);
  }

  #released(partitionId: number, group: string, committed: number | null): boolean {
    const done = this.#hotlist.released(partitionId, group, committed);
    for (const watch of this.#byPartition.get(partitionId) ?? []) {
      if (watch.group !== group) continue;
      watch.stir();
      this.signal(watch.key);
    }
    return done;
  }

  #replaced(tenant: string, queue: string, gone: boolean): void {
    this.#hotlist.replaced(tenant, queue, gone);
    for (const watch of [...(this.#watches.get(queueKey(tenant, queue)) ?? [])]) watch.lost();
    this.onQueueReplaced(tenant, queue);
  }

  #signalRing(ring: GroupRing): void {
    this.signal(queueKey(ring.tenant, ring.queue));
  }

  #onNews(news: News): void {
    for (const { tenant, queue } of news.deleted) this.#replaced(tenant, queue, true);
    for (const { tenant, queue, pairs } of news.appended) {
      if (pairs.length === 0) this.scan.look(tenant, queue);
      for (let i = 0; i + 1 < pairs.length; i += 2) {
        this.#appended(tenant, queue, pairs[i] as number, pairs[i + 1] as number);
      }
    }
    for (const { partitionId, group, committed } of news.released) {
      this.#released(partitionId, group, committed);
    }
    if (news.repairs) this.onRepairs();
    if (news.switches) this.onSwitches();
    if (news.timers) this.onTimers();
  }

  #onGap(again: boolean): void {
    this.onSwitches();
    if (!again) return;
    this.#hotlist.allStale();
    this.#stirAll();
    this.onRepairs();
    this.onGap();
  }

  #onClockJump(): void {
    this.#hotlist.clockJumped();
    this.#stirAll();
  }

  /** Cursors of a group were moved by hand: whoever waits for one of its partitions looks again. */
  stirGroup(group: string): void {
    for (const [key, watches] of this.#watches) {
      for (const watch of watches) {
        if (watch.group !== group) continue;
        watch.stir();
        this.signal(key);
      }
    }
  }

  #stirAll(): void {
    for (const [key, watches] of this.#watches) {
      for (const watch of watches) watch.stir();
      this.signal(key);
    }
  }

  #onScanRow(row: {
    tenant: string;
    queue: string;
    queueId: number;
    truncated: boolean | null;
    ids: number[] | null;
    lasts: number[] | null;
  }): void {
    const { tenant, queue, queueId, ids, lasts } = row;
    const known = this.#hotlist.queueIdOf(tenant, queue);
    if (known !== 0 && known !== queueId) {
      this.#replaced(tenant, queue, false);
    }
    for (let i = 0; ids !== null && lasts !== null && i < ids.length; i++) {
      this.#appended(tenant, queue, ids[i] as number, lasts[i] as number);
    }
    if (this.#hotlist.back(tenant, queue)) this.signal(queueKey(tenant, queue));
    if (row.truncated === true) {
      for (const ring of this.#hotlist.ringsOf(tenant, queue)) ring.seededFullAt = Number.NEGATIVE_INFINITY;
    }
  }

  #wanted(now: number) {
    if (this.parking.parked === 0) return null;
    const queues = [];
    const scopes = [];
    for (const key of this.parking.keys()) {
      const [tenant = '', queue = '', namespace, task] = key.split('\u001f');
      if (namespace !== undefined && task !== undefined) {
        scopes.push({ tenant, namespace, task });
        continue;
      }
      queues.push({ tenant, queue, knownId: this.#hotlist.queueIdOf(tenant, queue) });
      for (const ring of this.#hotlist.ringsOf(tenant, queue)) ring.usedAt = now;
    }
    return { queues, scopes };
  }
}

/** The key of a discovery scope among the keys of queues: a queue without a name does not exist. */
export function scopeKey(tenant: string, namespace: string, task: string): string {
  return `${tenant}\u001f\u001f${namespace}\u001f${task}`;
}

function put<K, V>(map: Map<K, Set<V>>, key: K, value: V): void {
  const set = map.get(key);
  if (set === undefined) map.set(key, new Set([value]));
  else set.add(value);
}

function take<K, V>(map: Map<K, Set<V>>, key: K, value: V): void {
  const set = map.get(key);
  if (set?.delete(value) === true && set.size === 0) map.delete(key);
}
