/** The delivering side of a broker, wired together as the engine does it, without the other paths. */

import type { Lane } from '../../src/engine/admission/admission.ts';
import type { Clock } from '../../src/engine/clock.ts';
import { HotList } from '../../src/engine/hotlist/hotlist.ts';
import { Reseed } from '../../src/engine/hotlist/reseed.ts';
import { type PopDeps, PopPath } from '../../src/engine/pop/pop.ts';
import { POP_DEFAULTS, type PopSettings } from '../../src/engine/pop/settings.ts';
import type { PopAnswer, PopRequest } from '../../src/engine/types.ts';
import type { Announcer } from '../../src/engine/wake/announcer.ts';
import type { ParkingSettings } from '../../src/engine/wake/parking.ts';
import { Wake } from '../../src/engine/wake/wake.ts';
import type { Database } from '../../src/store/database.ts';
import type { StoreLog } from '../../src/store/log.ts';

export interface DeliverySettings {
  pop: Partial<PopSettings>;
  reseedMs: number;
  reseedFullMs: number;
  reseedWindowMs: number;
  idleSweepMs: number;
  parking?: ParkingSettings;
  /** Tell the other brokers on the database, and listen to them. */
  notify: boolean;
}

export const DELIVERY_DEFAULTS: DeliverySettings = {
  pop: {},
  reseedMs: 30_000,
  reseedFullMs: 300_000,
  reseedWindowMs: 120_000,
  idleSweepMs: 300_000,
  notify: true,
};

export interface DeliveryDeps {
  db: Database;
  admission: { run<T>(lane: Lane, work: () => Promise<T>): Promise<T> };
  ackRegistry: PopDeps['ackRegistry'];
  clock: Clock;
  log: StoreLog;
  /** Tells this broker from others on the database; unique a start. */
  sender: string;
  settings?: Partial<DeliverySettings>;
  paused?: () => boolean;
  open?: PopDeps['open'];
  /** Switches that are kept in memory may have changed unheard: read them again. */
  onGap?: () => void;
}

export class Delivery {
  readonly hotlist: HotList;
  readonly reseed: Reseed;
  readonly wake: Wake;
  readonly path: PopPath;

  constructor(deps: DeliveryDeps) {
    const settings = { ...DELIVERY_DEFAULTS, ...deps.settings };
    const { db, admission, clock, log } = deps;
    const pop = { ...POP_DEFAULTS, ...settings.pop };
    const read: PopDeps['run'] = (work) => admission.run('maintenance', () => work(db));
    const run: PopDeps['run'] = (work) => admission.run('pop', () => work(db));
    this.hotlist = new HotList(clock, { windowBatch: pop.windowBatch, idleSweepMs: settings.idleSweepMs });
    this.wake = new Wake({
      hotlist: this.hotlist,
      read,
      session: settings.notify ? () => db.session() : null,
      sender: deps.sender,
      clock,
      log,
      ...(settings.parking === undefined ? {} : { parking: settings.parking }),
    });
    this.reseed = new Reseed({
      hotlist: this.hotlist,
      read,
      clock,
      settings: {
        reseedMs: settings.reseedMs,
        fullMs: settings.reseedFullMs,
        windowMs: settings.reseedWindowMs,
        idleSweepMs: settings.idleSweepMs,
      },
      log,
      databaseNow: () => this.wake.time.now(),
      onRepair: (repair) => this.path.forgetGroup(repair.tenant, repair.group),
    });
    this.path = new PopPath({
      run,
      hotlist: this.hotlist,
      reseed: this.reseed,
      wake: this.wake,
      ackRegistry: deps.ackRegistry,
      clock,
      log,
      settings: pop,
      ...(deps.paused === undefined ? {} : { paused: deps.paused }),
      ...(deps.open === undefined ? {} : { open: deps.open }),
    });
    this.wake.onQueueReplaced = (tenant) => this.path.forgetQueue(tenant);
    this.wake.onRepairs = () => this.#inBackground(this.reseed.pollRepairs());
    this.wake.onGap = () => {
      this.#inBackground(this.reseed.pass());
      deps.onGap?.();
    };
  }

  get announcer(): Announcer {
    return this.wake;
  }

  async start(): Promise<void> {
    this.reseed.start();
    await this.wake.start();
  }

  /** Parked pops are answered, running claims finished. */
  async stop(): Promise<void> {
    await this.path.stop();
    this.reseed.stop();
    await this.wake.stop();
  }

  pop(request: PopRequest): Promise<PopAnswer> {
    return this.path.pop(request);
  }

  /** Cursors were moved by hand and the repair is committed: act on it here and at the peers. */
  repairsPublished(): void {
    this.wake.repairsPublished();
  }

  /** A failure was counted and is tried again by the loops. */
  #inBackground(work: Promise<void>): void {
    work.catch(() => {});
  }
}
