/**
 * The safety net under the notifications: while anything is parked, one statement a second asks what was written
 * lately to the queues that are waited for, however many pops and queues that is. Whatever a lost notification hid is
 * found by it within about a second.
 *
 * It also notices a queue that was made anew under its old name, and a database clock that was set.
 */

import type { Queryable } from '../../store/database.ts';
import { type WakeQueue, type WakeRow, type WakeScope, wakeScan } from '../../store/hotlist.ts';
import type { StoreLog } from '../../store/log.ts';
import type { Clock, Timer } from '../clock.ts';
import type { DatabaseTime } from './database_time.ts';

const PERIOD_MS = 1_000;
const SOON_MS = 100;
/** `last_write_at` moves at most once a second and shows only after the commit. */
const SLACK_MICROS = 3_000_000;
/** How far back the first look at a queue goes. */
const FIRST_LOOK_MICROS = 10_000_000;
const COVERED_FOR_MS = 120_000;
const PARTITIONS_MAX = 10_000;

export interface ScanDeps {
  read: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  clock: Clock;
  time: DatabaseTime;
  log: StoreLog;
  /** What is waited for now; `knownId` 0: no ring knows the queue. Null: nothing is. */
  wanted: () => { queues: Omit<WakeQueue, 'sinceMicros'>[]; scopes: WakeScope[] } | null;
  onRow: (row: WakeRow & { tenant: string; queue: string; queueId: number }) => void;
  onClockJump: () => void;
}

export class WakeScan {
  readonly #deps: ScanDeps;
  /** By queue: the start of the last statement that covered it, on both clocks. */
  readonly #covered = new Map<string, { micros: number; at: number }>();
  readonly #asked = new Map<string, { tenant: string; queue: string }>();
  #scopesMicros: number | null = null;
  #timer: Timer | null = null;
  #dueAt = Number.POSITIVE_INFINITY;
  #startedAt = Number.NEGATIVE_INFINITY;
  #running: Promise<void> | null = null;
  #stopped = false;
  scans = 0;

  constructor(deps: ScanDeps) {
    this.#deps = deps;
  }

  /** Something was parked: makes sure that the next look is planned. */
  plan(): void {
    const now = this.#deps.clock.now();
    this.#at(Math.max(now + SOON_MS, this.#startedAt + PERIOD_MS));
  }

  /** A peer wrote to a queue without saying where: looks at it soon, waited for or not. */
  look(tenant: string, queue: string): void {
    this.#asked.set(`${tenant}\u001f${queue}`, { tenant, queue });
    const now = this.#deps.clock.now();
    this.#at(Math.max(now, this.#startedAt + SOON_MS));
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  /** One look. */
  async pass(): Promise<void> {
    const wanted = this.#deps.wanted();
    if (wanted === null && this.#asked.size === 0) return;
    const { clock, time } = this.#deps;
    const at = clock.now();
    this.#startedAt = at;
    const queues = this.#queues(wanted?.queues ?? [], at);
    const scopes = wanted?.scopes ?? [];
    this.scans++;
    const since = this.#scopesMicros === null ? -FIRST_LOOK_MICROS : this.#scopesMicros - SLACK_MICROS;
    const rows = await this.#deps.read((db) => wakeScan(db, queues, scopes, since, PARTITIONS_MAX));
    const nowMicros = (rows[0] as WakeRow).nowMicros;
    for (const { tenant, queue } of queues) {
      this.#covered.set(`${tenant}\u001f${queue}`, { micros: nowMicros, at });
    }
    this.#scopesMicros = scopes.length > 0 ? nowMicros : null;
    if (time.observe(nowMicros, at)) this.#deps.onClockJump();
    for (const row of rows) {
      if (row.tenant === null || row.queue === null || row.queueId === null) continue;
      this.#deps.onRow(row as WakeRow & { tenant: string; queue: string; queueId: number });
    }
  }

  #queues(parked: readonly Omit<WakeQueue, 'sinceMicros'>[], at: number): WakeQueue[] {
    for (const [key, covered] of this.#covered) {
      if (covered.at < at - COVERED_FOR_MS) this.#covered.delete(key);
    }
    const queues = new Map<string, WakeQueue>();
    const add = (queue: Omit<WakeQueue, 'sinceMicros'>) => {
      const key = `${queue.tenant}\u001f${queue.queue}`;
      const covered = this.#covered.get(key);
      const sinceMicros = covered === undefined ? -FIRST_LOOK_MICROS : covered.micros - SLACK_MICROS;
      queues.set(key, { ...queue, sinceMicros });
    };
    for (const { tenant, queue } of this.#asked.values()) add({ tenant, queue, knownId: 0 });
    this.#asked.clear();
    for (const queue of parked) add(queue);
    return [...queues.values()];
  }

  #at(due: number): void {
    if (this.#stopped || this.#running !== null || due >= this.#dueAt) return;
    this.#timer?.cancel();
    this.#dueAt = due;
    this.#timer = this.#deps.clock.after(Math.max(0, due - this.#deps.clock.now()), () => this.#run());
  }

  #run(): void {
    this.#timer = null;
    this.#dueAt = Number.POSITIVE_INFINITY;
    this.#running = this.pass()
      .catch((error: unknown) => this.#deps.log.warn({ err: error }, 'the look for missed writes failed'))
      .finally(() => {
        this.#running = null;
        if (this.#asked.size > 0) this.#at(this.#startedAt + SOON_MS);
        if (this.#deps.wanted() !== null) this.#at(this.#startedAt + PERIOD_MS);
      });
  }
}
