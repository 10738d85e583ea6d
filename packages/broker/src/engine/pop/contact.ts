/**
 * First contact of a group with a queue, and what is remembered of it: one registration a (queue, group) and broker,
 * after that nothing is asked until the ring goes. The ring's queue id is checked by every claim, so a memo of a queue
 * that was deleted and made anew is found out by the first candidate.
 */
import type { Queryable } from '../../store/database.ts';
import { StoreError } from '../../store/errors.ts';
import { type Registration, register, SINCE_CREATION, type Start } from '../../store/pop.ts';
import type { Clock } from '../clock.ts';
import { type GroupRing, type HotList, queueKey } from '../hotlist/hotlist.ts';
import { QUEUE_MODE_GROUP } from '../types.ts';
import type { DatabaseTime } from '../wake/database_time.ts';
import type { RingSupply } from './ring_source.ts';

const FOREIGN_KEY = '23503';

export interface ContactDeps {
  hotlist: HotList;
  clock: Clock;
  time: DatabaseTime;
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
}

export class Contact {
  readonly #deps: ContactDeps;
  readonly #pending = new Map<string, Promise<Registration>>();

  constructor(deps: ContactDeps) {
    this.#deps = deps;
  }

  /** The ring of a registered group. */
  async ring(
    tenant: string,
    queue: string,
    group: string,
    start: Start,
    conflate: boolean,
  ): Promise<GroupRing> {
    const { hotlist } = this.#deps;
    const known = hotlist.find(tenant, queue, group);
    if (known?.registered === true) return known;
    const registration = await this.register(tenant, queue, group, start, conflate);
    hotlist.back(tenant, queue);
    return hotlist.add({
      tenant,
      queue,
      group,
      queueId: registration.queueId,
      conflation: registration.conflation,
      registered: true,
      minPopWaitMs: registration.minPopWaitMs,
    });
  }

  /** Registers, once for all pops of the group that ask at the same time. */
  register(
    tenant: string,
    queue: string,
    group: string,
    start: Start,
    conflate: boolean,
  ): Promise<Registration> {
    const key = `${queueKey(tenant, queue)}\u001f${group}`;
    let pending = this.#pending.get(key);
    if (pending === undefined) {
      pending = this.#register(tenant, queue, group, start, conflate);
      this.#pending.set(key, pending);
      const forget = () => this.#pending.delete(key);
      pending.then(forget, forget);
    }
    return pending;
  }

  async #register(
    tenant: string,
    queue: string,
    group: string,
    start: Start,
    conflate: boolean,
  ): Promise<Registration> {
    const { hotlist, clock, time, run } = this.#deps;
    const present = hotlist.takePresent(tenant, queue, group);
    const from: Start = present && start.mode === 'new' ? { mode: 'new', fromMicros: SINCE_CREATION } : start;
    const askedAt = clock.now();
    const registration = await seeding(() => run((db) => register(db, tenant, queue, group, from, conflate)));
    time.observe(registration.nowMicros, askedAt);
    return registration;
  }
}

/** Runs a registration, once more when a partition was cleaned up while it was being seeded. */
export function seeding<T>(ask: () => Promise<T>): Promise<T> {
  return ask().catch((error: unknown) => {
    if (error instanceof StoreError && error.sqlState === FOREIGN_KEY) return ask();
    throw error;
  });
}

/** The one ring of a queue-wide pop. */
export class QueueSupply implements RingSupply {
  readonly keys: readonly string[];
  readonly group: string;
  readonly #contact: Contact;
  readonly #hotlist: HotList;
  readonly #tenant: string;
  readonly #queue: string;
  readonly #start: Start;
  readonly #conflate: boolean;

  constructor(
    contact: Contact,
    hotlist: HotList,
    pop: { tenant: string; queue: string; group: string; start: Start; conflate: boolean },
  ) {
    this.#contact = contact;
    this.#hotlist = hotlist;
    this.#tenant = pop.tenant;
    this.#queue = pop.queue;
    this.group = pop.group;
    this.#start = pop.start;
    this.#conflate = pop.conflate && pop.group !== QUEUE_MODE_GROUP;
    this.keys = [queueKey(pop.tenant, pop.queue)];
  }

  async prepare(): Promise<{ rings: GroupRing[]; conflation: boolean }> {
    const ring = await this.#contact.ring(this.#tenant, this.#queue, this.group, this.#start, this.#conflate);
    return { rings: [ring], conflation: ring.conflation };
  }

  outdated(): void {}

  unsettled(rings: readonly GroupRing[]): boolean {
    return rings.some((ring) => ring.dropped) && !this.#hotlist.isGone(this.#tenant, this.#queue);
  }
}
