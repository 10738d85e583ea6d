/**
 * Fires timers, on every broker, without a leader: all work all of it, and SKIP LOCKED shares it out.
 *
 * A cycle claims due timers, fires them, and goes on while more are due, within limits. Then it sleeps until the next
 * one is due as the database says, at most a second while there are any, since others schedule too; half a minute when
 * there have been none for a while. What is scheduled on this broker shortens the sleep, and what a peer schedules ends the
 * long one.
 *
 * The claim lasts for a while (the lease), in which nobody else can take the timers or change them. A cycle claims nothing
 * more once half of it is gone: a broker that is that slow would only hold what others could fire.
 */
import { buggify } from '../../observability/buggify.ts';
import type { Queryable } from '../../store/database.ts';
import { claimTimers } from '../../store/timers.ts';
import type { Clock, Timer } from '../clock.ts';
import type { Firing } from './firing.ts';

export interface SweeperSettings {
  minSleepMs: number;
  maxSleepMs: number;
  /** When nothing is scheduled at all. */
  idleSleepMs: number;
  /** Cycles in a row that found nothing scheduled, before it sleeps that long. */
  idleAfterCycles: number;
  leaseMs: number;
  claimBatch: number;
  cycleRowsMax: number;
  fireBytesMax: number;
  /** Claims and fires at a time. Above 1 the timers of one partition may enter the log out of the order of their times. */
  parallelism: number;
}

export interface SweeperDeps {
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  firing: Pick<Firing, 'fire' | 'settleDebts'>;
  /** Firing is switched off, as far as this broker knows. The claim looks for itself. */
  paused: () => boolean;
  clock: Clock;
  settings: SweeperSettings;
  log: { warn(facts: object, message: string): void };
}

/** How a cycle ended. */
export type CycleEnd =
  /** Nothing more is due for `waitMs`; null: nothing is scheduled. */
  | { kind: 'done'; waitMs: number | null }
  /** More is due: a limit was reached. */
  | { kind: 'limit' }
  /** More is due, and held by others. */
  | { kind: 'held' }
  /** Firing is switched off. */
  | { kind: 'off' }
  /** The database has trouble. */
  | { kind: 'trouble' };

export interface Cycle {
  /** Timers that were claimed. */
  rows: number;
  end: CycleEnd;
}

const HELD_MIN_MS = 25;
const HELD_MAX_MS = 200;

export class TimerSweeper {
  readonly #deps: SweeperDeps;
  #timer: Timer | null = null;
  #dueAt = Number.POSITIVE_INFINITY;
  /** Something will be due then that the running cycle may not have seen. */
  #rungAt = Number.POSITIVE_INFINITY;
  #running: Promise<unknown> | null = null;
  #active = false;
  #stopping = false;
  #emptyCycles = 0;
  #heldMs = HELD_MIN_MS;
  #troubled = false;
  readonly counters: { cycles: number; rows: number; passedBy: number; off: number; troubles: number } = {
    cycles: 0,
    rows: 0,
    passedBy: 0,
    off: 0,
    troubles: 0,
  };
  readonly last: { cycleMs: number; sleepMs: number } = { cycleMs: 0, sleepMs: 0 };

  constructor(deps: SweeperDeps) {
    this.#deps = deps;
  }

  start(): void {
    if (this.#active) return;
    this.#active = true;
    this.#stopping = false;
    this.#sleep(0);
  }

  /** Resolves when what was claimed is fired. */
  async stop(): Promise<void> {
    this.#active = false;
    this.#stopping = true;
    this.#timer?.cancel();
    this.#timer = null;
    await this.#running;
    this.#stopping = false;
  }

  /** Something was scheduled here, due in so many ms. */
  ring(delayMs: number): void {
    if (!this.#active) return;
    this.#emptyCycles = 0;
    const { clock, settings } = this.#deps;
    const at = clock.now() + Math.max(delayMs, settings.minSleepMs);
    if (this.#running !== null) this.#rungAt = Math.min(this.#rungAt, at);
    else if (at < this.#dueAt) this.#sleep(at - clock.now());
  }

  /** A peer has scheduled something: while nothing was, this one slept for long. */
  heard(): void {
    const { clock, settings } = this.#deps;
    if (!this.#active) return;
    this.#emptyCycles = 0;
    if (this.#running !== null) this.#rungAt = Math.min(this.#rungAt, clock.now() + settings.minSleepMs);
    else if (this.#dueAt - clock.now() > settings.maxSleepMs) this.#sleep(settings.minSleepMs);
  }

  /** One cycle. Rejects when the database does not carry a claim out. */
  async pass(): Promise<Cycle> {
    const { clock, firing, settings } = this.#deps;
    const begunAt = clock.now();
    await firing.settleDebts();
    const cycle: Cycle = { rows: 0, end: { kind: 'limit' } };
    const ends = await Promise.all(
      Array.from({ length: settings.parallelism }, () => this.#work(cycle, begunAt)),
    );
    // The one that saw trouble or the end knows more than the one that met a limit.
    const order = ['trouble', 'off', 'done', 'held', 'limit'] as const;
    const kind = order.find((wanted) => ends.some((end) => end.kind === wanted))!;
    cycle.end = ends.find((end) => end.kind === kind)!;
    this.counters.cycles++;
    this.last.cycleMs = clock.now() - begunAt;
    return cycle;
  }

  async #work(cycle: Cycle, begunAt: number): Promise<CycleEnd> {
    const { clock, firing, paused, run, settings } = this.#deps;
    const { leaseMs, fireBytesMax: bytesMax } = settings;
    for (;;) {
      const limit = Math.min(settings.claimBatch, settings.cycleRowsMax - cycle.rows);
      if (limit <= 0 || this.#stopping || clock.now() - begunAt > leaseMs / 2) return { kind: 'limit' };
      const claim = paused() ? null : await run((db) => claimTimers(db, { limit, bytesMax, leaseMs }));
      const claimedAt = clock.now();
      if (claim === null || !claim.enabled) {
        this.counters.off++;
        return { kind: 'off' };
      }
      cycle.rows += claim.timers.length;
      this.counters.rows += claim.timers.length;
      this.counters.passedBy += claim.passedBy;
      if (claim.timers.length > 0) {
        buggify('timers.claimed');
        if (!(await firing.fire(claim.timers))) return { kind: 'trouble' };
      } else if (claim.more) return { kind: 'held' };
      if (claim.more) continue;
      // What was claimed just now is gone; until the next look nothing tells whether anything is left.
      if (claim.waitMs === null) return { kind: 'done', waitMs: null };
      return { kind: 'done', waitMs: Math.max(0, claim.waitMs - (clock.now() - claimedAt)) };
    }
  }

  #sleep(ms: number): void {
    const { clock } = this.#deps;
    this.#timer?.cancel();
    this.#dueAt = clock.now() + ms;
    this.last.sleepMs = ms;
    this.#timer = clock.after(ms, () => {
      this.#rungAt = Number.POSITIVE_INFINITY;
      this.#running = this.#look().then((next) => {
        this.#running = null;
        if (!this.#active) return;
        const rung = this.#rungAt - clock.now();
        this.#sleep(Math.max(0, Math.min(next, rung)));
      });
    });
  }

  /** Answers the ms to the next cycle; never rejects. */
  async #look(): Promise<number> {
    try {
      const { end } = await this.pass();
      if (end.kind !== 'trouble') this.#troubled = false;
      return this.#pauseAfter(end);
    } catch (err) {
      this.#told(err);
      return this.#deps.settings.maxSleepMs;
    }
  }

  #pauseAfter(end: CycleEnd): number {
    const { minSleepMs, maxSleepMs, idleSleepMs, idleAfterCycles } = this.#deps.settings;
    if (end.kind !== 'held') this.#heldMs = HELD_MIN_MS;
    if (end.kind !== 'done' || end.waitMs !== null) this.#emptyCycles = 0;
    switch (end.kind) {
      case 'limit':
        return minSleepMs;
      case 'held': {
        const pause = this.#heldMs;
        this.#heldMs = Math.min(HELD_MAX_MS, pause * 2);
        return pause;
      }
      case 'off':
        return maxSleepMs;
      case 'trouble':
        this.counters.troubles++;
        return maxSleepMs;
      case 'done':
        if (end.waitMs !== null) return Math.min(maxSleepMs, Math.max(minSleepMs, end.waitMs));
        return ++this.#emptyCycles >= idleAfterCycles ? idleSleepMs : maxSleepMs;
    }
  }

  /** Once for as long as it lasts. */
  #told(err: unknown): void {
    this.counters.troubles++;
    if (this.#troubled) return;
    this.#troubled = true;
    this.#deps.log.warn({ err }, 'due timers could not be claimed, trying again');
  }
}
