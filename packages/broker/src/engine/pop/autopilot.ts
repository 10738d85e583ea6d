/**
 * Chooses `batch` and `partitions` for pops that leave them to the broker. A lane is a (queue, group).
 *
 * The controller is simple on purpose. The batch is a constant; the number of partitions is what the ring's known
 * backlog needs to fill it: many partitions with little each are gathered, few with much are shared out one at a
 * time, so that consumers work side by side. A choice is kept for a while (time or pops, whichever ends first), since
 * a lease that spans many partitions is felt longer than the moment that called for it. `waitMs` is advice for the
 * caller's pause after an empty answer: at the age that a message may reach, minus what its batch usually waits.
 */
import { RecentQuantiles } from '../../observability/quantiles.ts';
import type { StoreLog } from '../../store/log.ts';
import type { Clock } from '../clock.ts';
import type { PopSettings } from './settings.ts';

export interface Choice {
  partitions: number;
  batch: number;
  waitMs: number;
}

export interface RingView {
  ready: number;
  /** Messages known to wait in the first `entries` partitions, up to `cap`. */
  backlog(entries: number, cap: number): number;
}

const PARTITIONS_MAX = 64;

interface Lane {
  choice: Choice;
  chosenAt: number;
  pops: number;
}

/** One line of the log over so much time, in milliseconds, when choices are only looked at. */
const SHADOW_LINE_MS = 10_000;

export class Autopilot {
  /** Choices that were computed; every pop in between repeats one. */
  choices = 0;
  /** Partitions of recent choices. */
  readonly partitions = new RecentQuantiles(256);
  readonly #clock: Clock;
  readonly #settings: PopSettings;
  /** In the order of their last use. */
  readonly #lanes = new Map<string, Lane>();

  readonly #log: { info(facts: object, message: string): void } | null;
  #shadow = { at: Number.NEGATIVE_INFINITY, choices: 0 };

  constructor(clock: Clock, settings: PopSettings, log: StoreLog | null = null) {
    this.#clock = clock;
    this.#settings = settings;
    this.#log = log;
  }

  get mode(): PopSettings['autopilot'] {
    return this.#settings.autopilot;
  }

  get lanes(): number {
    return this.#lanes.size;
  }

  choose(key: string, ring: RingView): Choice {
    const { autopilotDwellMs, autopilotDwellPops, autopilotLanesMax } = this.#settings;
    const now = this.#clock.now();
    let lane = this.#lanes.get(key);
    if (lane === undefined || now - lane.chosenAt >= autopilotDwellMs || ++lane.pops >= autopilotDwellPops) {
      lane = { choice: this.#compute(ring), chosenAt: now, pops: 0 };
      this.#note(key, lane.choice, now);
    }
    this.#lanes.delete(key);
    this.#lanes.set(key, lane);
    if (this.#lanes.size > autopilotLanesMax) {
      const [oldest] = this.#lanes.keys();
      if (oldest !== undefined) this.#lanes.delete(oldest);
    }
    return lane.choice;
  }

  /** Nobody sees what is chosen in the shadow, so the log tells: a line now and then, with one of them. */
  #note(key: string, choice: Choice, now: number): void {
    this.choices++;
    this.partitions.observe(choice.partitions);
    if (this.#settings.autopilot !== 'shadow') return;
    if (now - this.#shadow.at < SHADOW_LINE_MS) return;
    const [, queue, group] = key.split('\u001f');
    const [p50, most] = this.partitions.read([0.5, 1]) ?? [];
    const facts = { queue, group, ...choice, choices: this.choices - this.#shadow.choices, p50, most };
    this.#log?.info(facts, 'autopilot in the shadow: what pops would have been given');
    this.#shadow = { at: now, choices: this.choices };
  }

  #compute(ring: RingView): Choice {
    const { autopilotBatch, autopilotTargetAgeMs, autopilotBurstCap } = this.#settings;
    const batch = autopilotBatch;
    let partitions = 1;
    while (partitions < Math.min(ring.ready, PARTITIONS_MAX) && ring.backlog(partitions, batch) < batch) {
      partitions *= 2;
    }
    partitions = Math.min(partitions, PARTITIONS_MAX, Math.max(1, ring.ready));
    if (autopilotBurstCap > 0) partitions = Math.min(partitions, autopilotBurstCap);
    const full = ring.backlog(partitions, batch) >= batch;
    return { partitions, batch, waitMs: full ? 0 : autopilotTargetAgeMs };
  }
}
