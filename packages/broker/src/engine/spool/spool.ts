/**
 * Messages that the database cannot take now, on this broker's disk until it can.
 *
 * The invariant: within a lane nothing overtakes. While messages of a lane lie here, what comes goes behind them or waits
 * until they are in the log; which of the two is asked anew each time (`way`), after everything of the lane that was under
 * way has landed. So the lane's order is: stored, then on disk in the order of the files, then waiting.
 *
 * Waiting is for the end of an outage: once the database takes what it is given and little is left on disk, producers are
 * held back for a moment instead of feeding the spool for ever.
 *
 * A message is on disk before its answer leaves (see store/spool/writer.ts). It is there in the clear only if its queue is
 * known not to encrypt, or if this broker has no key: then no queue it ever heard of encrypts, since with one it would
 * not have started.
 */
import { encodeSpoolRecord } from '../../log/spool_record.ts';
import { buggify } from '../../observability/buggify.ts';
import type { StoreLog } from '../../store/log.ts';
import type { SpoolPlace } from '../../store/spool/place.ts';
import { SpoolFull } from '../../store/spool/room.ts';
import { Shelf } from '../../store/spool/shelf.ts';
import type { Clock, Timer } from '../clock.ts';
import { EngineError } from '../errors.ts';
import type { Detour, Detoured, Way } from '../push/detour.ts';
import type { Seal } from '../push/draft.ts';
import { laneKey } from '../push/unit.ts';
import type { SpoolState } from '../system/face.ts';
import { DRAIN_DEFAULTS, Drain, type DrainCounters, type DrainDeps, type DrainSettings } from './drain.ts';
import { SpoolLanes } from './lanes.ts';

export interface SpoolSettings {
  /** Where the spool may lie, the preferred place first. */
  directories: readonly string[];
  flushMs: number;
  batchEvents: number;
  eventsPerFile: number;
  bytesMax: number;
}

export interface SpoolDeps {
  place: SpoolPlace;
  databaseId: string;
  settings: SpoolSettings & Partial<DrainSettings>;
  store: DrainDeps['store'];
  /** Pushes are paused, and what is here stays here. */
  paused: () => boolean;
  seal: Seal;
  clock: Clock;
  log: StoreLog;
}

export interface SpoolCounters extends DrainCounters {
  kept: number;
  /** Of these, since a flush had failed. */
  failovers: number;
  /** Messages that found no room. */
  refused: number;
}

const FILE_BYTES_MAX = 64 * 1024 * 1024;
const ADOPT_MS = 10_000;
/** With more than this on disk a push is not held back for its lane to get clear, and not for longer than this. */
const WAIT_EVENTS_MAX = 10_000;
const WAIT_MS = 2_000;
/** A start that stores what an earlier process left behind gives up waiting for a database that takes nothing. */
const STUCK_MS = 30_000;

export class Spool implements Detour {
  readonly #deps: SpoolDeps;
  readonly #shelf: Shelf;
  readonly #lanes: SpoolLanes;
  readonly #drain: Drain;
  readonly #kept = { kept: 0, failovers: 0, refused: 0 };
  #tick: Timer | null = null;
  #adoption: Timer | null = null;
  #running: Promise<unknown> | null = null;
  #started = false;
  #stopped = false;

  /** Takes a slot of the spool and looks through what an earlier process left there. */
  static async open(deps: SpoolDeps): Promise<Spool> {
    const lanes = new SpoolLanes(deps.clock);
    const { place, databaseId, settings, log } = deps;
    const { eventsPerFile, bytesMax } = settings;
    const options = { directory: place.directory, databaseId, eventsPerFile, bytesMax, log };
    const shelf = await Shelf.open({ ...options, fileBytesMax: FILE_BYTES_MAX }, ({ records }) => {
      const { tenant, queue, partition } = records[0]!;
      lanes.added(laneKey(tenant, queue, partition), records.length);
    });
    return new Spool(deps, shelf, lanes);
  }

  private constructor(deps: SpoolDeps, shelf: Shelf, lanes: SpoolLanes) {
    this.#deps = deps;
    this.#shelf = shelf;
    this.#lanes = lanes;
    const { store, paused, clock, log, settings } = deps;
    this.#drain = new Drain({
      shelf,
      store,
      gone: (key, messages) => lanes.gone(key, messages),
      paused,
      clock,
      settings: { ...DRAIN_DEFAULTS, ...settings },
      log,
    });
  }

  get counters(): SpoolCounters {
    return { ...this.#drain.counters, ...this.#kept };
  }

  state(): SpoolState {
    const { place } = this.#deps;
    const { events, bytes, failed } = this.#shelf;
    return {
      directory: place.directory,
      lasting: place.lasting,
      pending: events,
      bytes,
      failed: failed.events,
      failedFiles: { count: failed.count, bytes: failed.bytes },
      failovers: this.#kept.failovers,
      healthy: this.#drain.healthy,
    };
  }

  way(key: string): Way | Promise<Way> {
    if (this.#deps.paused()) return 'spool';
    // When nothing gets through, each lane need not find that out by itself: a push would wait for a connection first.
    if (!this.#lanes.has(key)) return this.#drain.down && this.#shelf.events > 0 ? 'spool' : 'log';
    if (this.#stopped || !this.#drain.healthy || this.#shelf.events > WAIT_EVENTS_MAX) return 'spool';
    return this.#lanes.clear(key, WAIT_MS).then((clear) => (clear ? this.way(key) : 'spool'));
  }

  async keep(messages: Detoured, failed: boolean): Promise<void> {
    const { frames, key } = messages;
    try {
      await this.#shelf.append(this.#encode(messages), frames.length);
    } catch (error) {
      this.#kept.refused += frames.length;
      const full = error instanceof SpoolFull || (error as NodeJS.ErrnoException).code === 'ENOSPC';
      const message = full ? 'the disk of the spool is full' : 'the spool cannot be written';
      throw new EngineError('unavailable', full ? 'spool_full' : 'spool_failed', message, { cause: error });
    }
    buggify('spool.kept');
    if (this.#lanes.size === 0) this.#told(failed);
    this.#lanes.added(key, frames.length);
    this.#kept.kept += frames.length;
    if (failed) {
      this.#kept.failovers += frames.length;
      this.#drain.failedElsewhere();
      this.#lanes.giveUp();
    }
    this.#arm();
  }

  /**
   * Before the first client comes: stores what an earlier process left behind. Ends when nothing is left, when `asked`
   * settles, when pushes are paused, when the database takes nothing for a while, or after `withinMs`; what is left then
   * is stored beside the clients' work, and still before what comes after it.
   */
  async recover(withinMs: number, asked: Promise<unknown> | null): Promise<void> {
    const { paused, clock, log, settings } = this.#deps;
    const found = this.#shelf.events;
    if (found === 0) return;
    log.warn(
      { messages: found, directory: this.#shelf.path },
      'storing the messages that an earlier process kept on disk',
    );
    let stop = false;
    void asked?.then(() => {
      stop = true;
    });
    const began = clock.now();
    let moved = began;
    let left = found;
    while (
      left > 0 &&
      !stop &&
      !paused() &&
      clock.now() - began < withinMs &&
      clock.now() - moved < STUCK_MS
    ) {
      await this.#pass();
      if (this.#shelf.events < left) moved = clock.now();
      else await pause(clock, settings.flushMs);
      left = this.#shelf.events;
    }
    const facts = { messages: found - left, left, ms: Math.round(clock.now() - began) };
    log.info(facts, 'the messages that an earlier process kept on disk are stored');
  }

  start(): void {
    this.#started = true;
    this.#arm();
    this.#planAdoption();
  }

  /** Pushes are not paused any more: whoever waits, and what lies here, need not wait for the next tick. */
  resumed(): void {
    this.#tick?.cancel();
    this.#tick = null;
    this.#run();
  }

  /** The database has shown itself after a while: nobody need rest any more. */
  databaseBack(): void {
    this.#drain.awake();
  }

  /** One look for what other processes left behind. */
  async adopt(): Promise<number> {
    const files = await this.#shelf.adopt();
    if (files > 0) this.#arm();
    return files;
  }

  /** What is here stays here. No push may come any more. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#tick?.cancel();
    this.#adoption?.cancel();
    this.#drain.stop();
    this.#lanes.giveUp();
    await this.#running;
    await this.#shelf.close();
    const { events } = this.#shelf;
    if (events === 0) return;
    this.#deps.log.warn(
      { messages: events, directory: this.#shelf.path },
      'messages stay on disk until the next start',
    );
  }

  #encode({ tenant, queue, partition, frames, encrypts }: Detoured): Buffer {
    const { seal } = this.#deps;
    const last = frames.length - 1;
    return Buffer.concat(
      frames.map((plain, i) => {
        const frame =
          seal === null || encrypts === false
            ? plain
            : { ...plain, encrypted: true, payload: seal(plain.payload) };
        return encodeSpoolRecord({ tenant, queue, partition, frame, more: i < last });
      }),
    );
  }

  #told(failed: boolean): void {
    const why = failed ? 'the database does not take pushes' : 'pushes are paused';
    this.#deps.log.warn({ directory: this.#shelf.path }, `${why}: they are kept on disk`);
  }

  #arm(): void {
    if (!this.#started || this.#stopped || this.#tick !== null || this.#shelf.events === 0) return;
    this.#tick = this.#deps.clock.after(this.#deps.settings.flushMs, () => {
      this.#tick = null;
      this.#run();
    });
  }

  #run(): void {
    if (!this.#started || this.#stopped || this.#running !== null) return;
    if (this.#deps.paused()) {
      this.#arm();
      return;
    }
    this.#running = this.#pass().finally(() => {
      this.#running = null;
      this.#arm();
    });
  }

  async #pass(): Promise<void> {
    const before = this.#drain.counters.stored;
    await this.#drain.pass();
    if (!this.#drain.healthy) this.#lanes.giveUp();
    else if (this.#shelf.events === 0 && this.#drain.counters.stored > before) {
      this.#deps.log.info({}, 'all messages that were kept on disk are stored');
    }
  }

  #planAdoption(): void {
    this.#adoption = this.#deps.clock.after(ADOPT_MS, () => {
      this.adopt()
        .catch((error: unknown) =>
          this.#deps.log.warn({ err: error }, 'the spool directory could not be looked through'),
        )
        .finally(() => {
          if (!this.#stopped) this.#planAdoption();
        });
    });
  }
}

function pause(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => {
    clock.after(ms, resolve);
  });
}
