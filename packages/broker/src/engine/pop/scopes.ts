/**
 * Discovery scopes: which queues of a tenant match a namespace and task, and which groups are registered on the scope.
 * The list is asked for again after a while, and at once when a queue is written to that nobody here has placed yet.
 */
import type { Queryable } from '../../store/database.ts';
import { registerScope, type ScopeQueue, type Start, scopeQueues } from '../../store/pop.ts';
import type { Clock } from '../clock.ts';
import { type GroupRing, type HotList, queueKey } from '../hotlist/hotlist.ts';
import { scopeKey, type Wake } from '../wake/wake.ts';
import { seeding } from './contact.ts';
import type { RingSupply } from './ring_source.ts';

const SCOPES_MAX = 1_000;
const STRANGERS_MAX = 10_000;
const GROUPS_MAX = 10_000;

export interface ScopesDeps {
  hotlist: HotList;
  wake: Wake;
  clock: Clock;
  memoMs: number;
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
}

export class Scopes {
  readonly #deps: ScopesDeps;
  /** In the order of their last use. */
  readonly #scopes = new Map<string, Scope>();

  constructor(deps: ScopesDeps) {
    this.#deps = deps;
  }

  find(tenant: string, namespace: string, task: string): Scope {
    const key = scopeKey(tenant, namespace, task);
    let scope = this.#scopes.get(key);
    if (scope === undefined) {
      this.#evict();
      scope = new Scope(this.#deps, tenant, namespace, task, key);
    }
    this.#scopes.delete(key);
    this.#scopes.set(key, scope);
    return scope;
  }

  /** The registrations of a group are not what they were. */
  forgetGroup(tenant: string, group: string): void {
    for (const scope of this.#scopes.values()) if (scope.tenant === tenant) scope.forgetGroup(group);
  }

  /** A queue went, or is another one now. */
  forgetQueue(tenant: string): void {
    for (const scope of this.#scopes.values()) if (scope.tenant === tenant) scope.outdate();
  }

  #evict(): void {
    for (const [key, scope] of this.#scopes) {
      if (this.#scopes.size < SCOPES_MAX) return;
      if (this.#deps.wake.parking.isAwaited(key)) continue;
      scope.close();
      this.#scopes.delete(key);
    }
  }
}

export class Scope {
  readonly tenant: string;
  readonly namespace: string;
  readonly task: string;
  readonly key: string;
  readonly #deps: ScopesDeps;
  readonly #groups = new Map<string, Promise<boolean>>();
  readonly #heard = new Set<string>();
  readonly #others = new Set<string>();
  #queues = new Map<string, ScopeQueue>();
  #listedAt = Number.NEGATIVE_INFINITY;
  #listing: Promise<void> | null = null;
  #outdated = true;

  constructor(deps: ScopesDeps, tenant: string, namespace: string, task: string, key: string) {
    this.#deps = deps;
    this.tenant = tenant;
    this.namespace = namespace;
    this.task = task;
    this.key = key;
    deps.wake.hearQueues(tenant, this.#hear);
  }

  /** The list must be asked for before the next draw. */
  get outdated(): boolean {
    return this.#outdated;
  }

  outdate(): void {
    this.#outdated = true;
  }

  forgetGroup(group: string): void {
    this.#groups.delete(group);
  }

  /** The stored policy of the group, which is registered when it is not yet. */
  register(group: string, start: Start, conflate: boolean): Promise<boolean> {
    let known = this.#groups.get(group);
    if (known === undefined) {
      const { tenant, namespace, task } = this;
      known = seeding(() =>
        this.#deps.run((db) => registerScope(db, tenant, namespace, task, group, start, conflate)),
      ).then((row) => row.conflation);
      if (this.#groups.size >= GROUPS_MAX) this.#groups.clear();
      this.#groups.set(group, known);
      known.catch(() => this.#groups.delete(group));
    }
    return known;
  }

  async queues(): Promise<Iterable<ScopeQueue>> {
    const { clock, memoMs } = this.#deps;
    if (this.#outdated || clock.now() - this.#listedAt > memoMs) {
      this.#listing ??= this.#list().finally(() => {
        this.#listing = null;
      });
      await this.#listing;
    }
    return this.#queues.values();
  }

  close(): void {
    this.#deps.wake.unhearQueues(this.tenant, this.#hear);
    for (const queue of this.#queues.keys()) {
      this.#deps.wake.unlinkScope(queueKey(this.tenant, queue), this.key);
    }
  }

  async #list(): Promise<void> {
    const { run, clock, wake } = this.#deps;
    const heard = [...this.#heard];
    this.#heard.clear();
    this.#outdated = false;
    let rows: ScopeQueue[];
    try {
      rows = await run((db) => scopeQueues(db, this.tenant, this.namespace, this.task));
    } catch (error) {
      this.#outdated = true;
      throw error;
    }
    this.#listedAt = clock.now();
    const before = this.#queues;
    this.#queues = new Map(rows.map((row) => [row.queue, row]));
    for (const queue of before.keys()) {
      if (!this.#queues.has(queue)) wake.unlinkScope(queueKey(this.tenant, queue), this.key);
    }
    for (const queue of this.#queues.keys()) wake.linkScope(queueKey(this.tenant, queue), this.key);
    for (const queue of heard) if (!this.#queues.has(queue)) this.#others.add(queue);
  }

  readonly #hear = (queue: string): void => {
    if (this.#queues.has(queue)) return;
    // Another namespace may have been given to it meanwhile.
    if (this.#deps.clock.now() - this.#listedAt > this.#deps.memoMs || this.#others.size > STRANGERS_MAX) {
      this.#others.clear();
    }
    if (this.#others.has(queue)) return;
    this.#heard.add(queue);
    this.#outdated = true;
    this.#deps.wake.parking.signal(this.key);
  };
}

/** The rings of all queues of a scope. */
export class ScopeSupply implements RingSupply {
  readonly keys: readonly string[];
  readonly group: string;
  readonly #scope: Scope;
  readonly #hotlist: HotList;
  readonly #start: Start;
  readonly #conflate: boolean;

  constructor(scope: Scope, hotlist: HotList, pop: { group: string; start: Start; conflate: boolean }) {
    this.#scope = scope;
    this.#hotlist = hotlist;
    this.group = pop.group;
    this.#start = pop.start;
    this.#conflate = pop.conflate;
    this.keys = [scope.key];
  }

  async prepare(): Promise<{ rings: GroupRing[]; conflation: boolean }> {
    const { tenant } = this.#scope;
    const conflation = await this.#scope.register(this.group, this.#start, this.#conflate);
    const rings: GroupRing[] = [];
    for (const { queue, queueId, minPopWaitMs } of await this.#scope.queues()) {
      const known = this.#hotlist.find(tenant, queue, this.group);
      rings.push(
        known ??
          this.#hotlist.add({
            tenant,
            queue,
            group: this.group,
            queueId,
            conflation,
            registered: false,
            minPopWaitMs,
          }),
      );
    }
    return { rings, conflation };
  }

  outdated(why: 'foreign' | 'unregistered'): void {
    if (why === 'unregistered') this.#scope.forgetGroup(this.group);
    else this.#scope.outdate();
  }

  unsettled(rings: readonly GroupRing[]): boolean {
    return this.#scope.outdated || rings.some((ring) => ring.dropped);
  }
}
