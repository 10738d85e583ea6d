/**
 * Where long polls wait: without connection, without admission slot, costing a few objects each. A seat is woken by
 * a signal for one of its queues (coalesced on a short tick), by its back-off look at memory, by its deadline, or
 * because its client left.
 *
 * Waking is thrifty: as many seats of a group are woken as its ring has READY partitions, first come first served;
 * with a thousand pops parked on a queue, one message does not set off a thousand claims. A seat that is woken in
 * vain parks again; one that was not woken looks for itself, so a lost signal costs at most the back-off.
 */
import type { Clock, Timer } from '../clock.ts';

export interface ParkingSettings {
  /** Signals are gathered for so long. */
  readonly tickMs: number;
  /** The look for itself of a parked pop: `initialMs`, so often, then times `multiplier` up to `maxMs`. */
  readonly initialMs: number;
  readonly threshold: number;
  readonly multiplier: number;
  readonly maxMs: number;
}

export const PARKING_DEFAULTS: ParkingSettings = {
  tickMs: 5,
  initialMs: 100,
  threshold: 3,
  multiplier: 2,
  maxMs: 1_000,
};

export type Outcome = 'woken' | 'timeout' | 'aborted' | 'stopped';

/** What a parked pop waits for. */
export interface Wish {
  /** The queues by key (see hotlist.ts). */
  readonly keys: readonly string[];
  readonly group: string;
  /** READY partitions that the pops of this group on this queue have to share; null: the wish is about other things. */
  readonly ready: ((key: string) => number) | null;
  /** Whether an attempt is worth it now. Looks at memory only. */
  wants(): boolean;
}

interface Seat {
  readonly wish: Wish;
  readonly deadline: number;
  /** Looks taken so far. */
  looks: number;
  /** When the next look is due. */
  due: number;
  leave(outcome: Outcome): void;
}

/** Looks share a timer when they fall into the same quarter of their wait: a thousand parked pops wake four times a second. */
const LOOK_GRID = 1 / 4;

export class Parking {
  readonly #clock: Clock;
  readonly #settings: ParkingSettings;
  readonly #seats = new Map<string, Map<string, Set<Seat>>>();
  readonly #looks = new Map<number, { timer: Timer; seats: Set<Seat> }>();
  readonly #signalled = new Set<string>();
  #tick: Timer | null = null;
  #parked = 0;
  #stopped = false;
  /** Called when the first seat is taken. */
  onOccupied: () => void = () => {};

  constructor(clock: Clock, settings: ParkingSettings = PARKING_DEFAULTS) {
    this.#clock = clock;
    this.#settings = settings;
  }

  get parked(): number {
    return this.#parked;
  }

  /** Waits until the wish is worth an attempt, at most until `deadline` (ms of the clock). */
  park(wish: Wish, deadline: number, signal: AbortSignal | null): Promise<Outcome> {
    if (this.#stopped) return Promise.resolve('stopped');
    if (signal?.aborted === true) return Promise.resolve('aborted');
    if (deadline <= this.#clock.now()) return Promise.resolve('timeout');
    if (wish.wants()) return Promise.resolve('woken');
    return new Promise((resolve) => {
      const onAbort = () => seat.leave('aborted');
      const seat: Seat = {
        wish,
        deadline,
        looks: 0,
        due: 0,
        leave: (outcome) => {
          signal?.removeEventListener('abort', onAbort);
          this.#remove(seat);
          resolve(outcome);
        },
      };
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#add(seat);
      this.#planLook(seat);
    });
  }

  /** Something may have become available in a queue. */
  signal(key: string): void {
    if (!this.#seats.has(key)) return;
    this.#signalled.add(key);
    this.#tick ??= this.#clock.after(this.#settings.tickMs, () => this.#turn());
  }

  /** The queues that somebody waits for. */
  keys(): IterableIterator<string> {
    return this.#seats.keys();
  }

  /** The same with how many wait; a discovery scope has a key of its own. */
  *counts(): Generator<{ key: string; pops: number }> {
    for (const [key, groups] of this.#seats) {
      let pops = 0;
      for (const seats of groups.values()) pops += seats.size;
      yield { key, pops };
    }
  }

  isAwaited(key: string): boolean {
    return this.#seats.has(key);
  }

  /** Everybody gets up and looks around. */
  wakeAll(): void {
    for (const seat of this.#everySeat()) seat.leave('woken');
  }

  /** Answers everything that is parked; nothing parks any more. */
  stop(): void {
    this.#stopped = true;
    this.#tick?.cancel();
    for (const seat of this.#everySeat()) seat.leave('stopped');
  }

  #turn(): void {
    this.#tick = null;
    const keys = [...this.#signalled];
    this.#signalled.clear();
    for (const key of keys) {
      for (const seats of [...(this.#seats.get(key)?.values() ?? [])]) this.#wakeGroup(key, seats);
    }
  }

  #wakeGroup(key: string, seats: ReadonlySet<Seat>): void {
    let budget = -1;
    for (const seat of seats) {
      const { ready } = seat.wish;
      if (ready === null) {
        if (seat.wish.wants()) seat.leave('woken');
        continue;
      }
      if (budget < 0) budget = ready(key);
      if (budget === 0) return;
      budget--;
      seat.leave('woken');
    }
  }

  #planLook(seat: Seat): void {
    const now = this.#clock.now();
    const waitMs = this.#backOff(seat.looks++);
    const gridMs = waitMs * LOOK_GRID;
    seat.due = Math.min(Math.floor((now + waitMs) / gridMs) * gridMs, seat.deadline);
    const present = this.#looks.get(seat.due);
    if (present !== undefined) {
      present.seats.add(seat);
      return;
    }
    const { due } = seat;
    const timer = this.#clock.after(Math.max(0, due - now), () => this.#look(due));
    this.#looks.set(due, { timer, seats: new Set([seat]) });
  }

  #look(due: number): void {
    const look = this.#looks.get(due);
    this.#looks.delete(due);
    const now = this.#clock.now();
    for (const seat of look?.seats ?? []) {
      if (seat.wish.wants()) seat.leave('woken');
      else if (seat.deadline <= now) seat.leave('timeout');
      else this.#planLook(seat);
    }
  }

  #backOff(round: number): number {
    const { initialMs, threshold, multiplier, maxMs } = this.#settings;
    return Math.min(maxMs, initialMs * multiplier ** Math.max(0, round - threshold + 1));
  }

  #add(seat: Seat): void {
    const occupied = this.#parked > 0;
    this.#parked++;
    for (const key of seat.wish.keys) {
      let groups = this.#seats.get(key);
      if (groups === undefined) {
        groups = new Map();
        this.#seats.set(key, groups);
      }
      const seats = groups.get(sharing(seat.wish));
      if (seats === undefined) groups.set(sharing(seat.wish), new Set([seat]));
      else seats.add(seat);
    }
    if (!occupied) this.onOccupied();
  }

  #remove(seat: Seat): void {
    this.#parked--;
    const look = this.#looks.get(seat.due);
    if (look?.seats.delete(seat) === true && look.seats.size === 0) {
      look.timer.cancel();
      this.#looks.delete(seat.due);
    }
    for (const key of seat.wish.keys) {
      const groups = this.#seats.get(key);
      const seats = groups?.get(sharing(seat.wish));
      seats?.delete(seat);
      if (seats?.size === 0) groups?.delete(sharing(seat.wish));
      if (groups?.size === 0) this.#seats.delete(key);
    }
  }

  *#everySeat(): Generator<Seat> {
    const seen = new Set<Seat>();
    for (const groups of this.#seats.values()) {
      for (const seats of groups.values()) for (const seat of seats) seen.add(seat);
    }
    yield* seen;
  }
}

/** Who shares what is READY; those that wait for other things are all asked. No group is named ''. */
function sharing(wish: Wish): string {
  return wish.ready === null ? '' : wish.group;
}
