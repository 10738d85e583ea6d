/**
 * The switches of the whole cluster, as this broker knows them.
 *
 * They live in the database. A broker hears of a change by a notification that the change itself sends, and reads
 * them all again; after a gap in what it heard it does so too. The look for itself is only the net below that: when
 * somebody asks and what is known is old, they are read. So an idle broker reads nothing, and a busy one a statement in
 * ten seconds.
 *
 * While the database does not answer, what was read last holds.
 */
import type { Queryable } from '../../store/database.ts';
import type { StoreLog } from '../../store/log.ts';
import { readSwitches, setSwitches } from '../../store/system.ts';
import type { Clock } from '../clock.ts';
import { fromStore } from '../errors.ts';

/** By key in the database, with what an absent one means. */
export const SWITCHES = {
  maintenance_mode: false,
  pop_maintenance_mode: false,
  kv_enabled: true,
  timers_schedule_enabled: true,
  timers_fire_enabled: true,
} as const;

export type SwitchName = keyof typeof SWITCHES;
export type SwitchStates = Record<SwitchName, boolean>;

/** One of them, for a module that knows no other. */
export interface Switch {
  /** As it was last read while the database does not answer. Never rejects. */
  on(): Promise<boolean>;
}

export interface SwitchesDeps {
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  clock: Clock;
  log: StoreLog;
  /** Notifications arrive: what is known is as good as new. */
  hearing: () => boolean;
}

/** How old an answer may be that nobody would have been told to change. */
const DEAF_MEMO_MS = 1_000;
const HEARING_MEMO_MS = 10_000;

export class Switches {
  readonly #deps: SwitchesDeps;
  #states: SwitchStates = { ...SWITCHES };
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | null = null;
  /** A change arrived while a read was under way, which may have missed it. */
  #again = false;
  #failing = false;
  readonly #listeners: ((now: SwitchStates, before: SwitchStates) => void)[] = [];

  constructor(deps: SwitchesDeps) {
    this.#deps = deps;
  }

  /** Called after every change, whoever made it. */
  onChange(listener: (now: SwitchStates, before: SwitchStates) => void): void {
    this.#listeners.push(listener);
  }

  /** For hot paths: answers at once from memory, and looks again beside it when that is old. */
  now(name: SwitchName): boolean {
    if (this.#isOld()) void this.refresh();
    return this.#states[name];
  }

  one(name: SwitchName): Switch {
    return {
      on: async () => {
        if (this.#isOld()) await this.refresh();
        return this.#states[name];
      },
    };
  }

  /** All of them, read anew. Never rejects. */
  async all(): Promise<SwitchStates> {
    await this.refresh();
    return { ...this.#states };
  }

  /** All of them, as they are known. */
  known(): SwitchStates {
    return { ...this.#states };
  }

  /** Throws an EngineError when the database did not take it; then nothing has changed. */
  async set(changes: Partial<SwitchStates>): Promise<void> {
    const map = new Map(Object.entries(changes));
    try {
      await this.#deps.run((db) => setSwitches(db, map));
    } catch (error) {
      throw fromStore(error);
    }
    this.override(changes);
  }

  /** For this broker alone, until it reads again. */
  override(changes: Partial<SwitchStates>): void {
    this.#readAt = this.#deps.clock.now();
    this.#change({ ...this.#states, ...changes });
  }

  /** Somebody changed one, or somebody may have. */
  heard(): void {
    this.#again = this.#reading !== null;
    void this.refresh();
  }

  /** Reads them now. Never rejects. */
  refresh(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null;
      if (!this.#again) return;
      this.#again = false;
      void this.refresh();
    });
    return this.#reading;
  }

  #isOld(): boolean {
    const { clock, hearing } = this.#deps;
    return clock.now() - this.#readAt >= (hearing() ? HEARING_MEMO_MS : DEAF_MEMO_MS);
  }

  async #read(): Promise<void> {
    const { run, clock, log } = this.#deps;
    try {
      const set = await run(readSwitches);
      const states = { ...SWITCHES } as SwitchStates;
      for (const name of Object.keys(SWITCHES) as SwitchName[])
        states[name] = set.get(name) ?? SWITCHES[name];
      this.#failing = false;
      this.#change(states);
    } catch (error) {
      if (!this.#failing) log.warn({ err: error }, 'the switches cannot be read: the last known ones hold');
      this.#failing = true;
    } finally {
      // After a failure too: it is not tried again with every push of an outage.
      this.#readAt = clock.now();
    }
  }

  #change(now: SwitchStates): void {
    const before = this.#states;
    const changed = (Object.keys(now) as SwitchName[]).filter((name) => now[name] !== before[name]);
    if (changed.length === 0) return;
    this.#states = now;
    const { log } = this.#deps;
    for (const name of changed) log.warn({ switch: name, on: now[name] }, 'a switch of the cluster was set');
    for (const listener of this.#listeners) listener(now, before);
  }
}
