/**
 * The engine, put together, behind its one face. What runs inside the process (HTTP routes, connectors) calls
 * this and knows none of the modules behind it.
 *
 * Start: the listening connection first, so that nothing that is pushed after the first ring was filled goes
 * unheard, then the background loops. Stop: parked pops are answered, pushes and acks that were taken get their
 * answers, the loops end, the pool closes last.
 */
import { randomUUID } from 'node:crypto';
import type { SealingKey } from '../log/envelope.ts';
import { Batches } from '../observability/batches.ts';
import { Database, type DatabaseOptions, type Queryable, statement } from '../store/database.ts';
import type { StoreLog } from '../store/log.ts';
import { choosePlace } from '../store/spool/place.ts';
import { databaseId } from '../store/system.ts';
import { AckPath, type AckSettings } from './ack/path.ts';
import { AckRegistry } from './ack/registry.ts';
import { Admission, type AdmissionSettings } from './admission/admission.ts';
import { PendingBytes } from './admission/pending_bytes.ts';
import { type Clock, systemClock } from './clock.ts';
import { DedupCache } from './dedup/cache.ts';
import { databaseWindows } from './dedup/hydration.ts';
import { DeadLetters } from './dlq/dead_letters.ts';
import { Groups } from './groups/groups.ts';
import { HotList } from './hotlist/hotlist.ts';
import { Reseed, type ReseedSettings } from './hotlist/reseed.ts';
import { type ExpirySettings, KvExpiry } from './kv/expiry.ts';
import { Kv, type KvSettings } from './kv/kv.ts';
import { Quotas } from './kv/quotas.ts';
import { KvUsage } from './kv/usage.ts';
import { PopPath } from './pop/pop.ts';
import type { PopSettings } from './pop/settings.ts';
import type { FusionSettings } from './push/fusion.ts';
import { PushPath } from './push/push_path.ts';
import { Queues } from './queues/queues.ts';
import { Messages } from './reads/messages.ts';
import { Records } from './reads/records.ts';
import { Garbage } from './retention/garbage.ts';
import { RetainedBytes } from './retention/retained_bytes.ts';
import { RetentionLoop, type RetentionSettings } from './retention/retention_loop.ts';
import { WatermarkWalk } from './retention/watermark_walk.ts';
import { refuseSealedQueues, Sealing } from './sealing.ts';
import { Restore } from './spool/restore.ts';
import { Spool, type SpoolDeps, type SpoolSettings } from './spool/spool.ts';
import { assembleStatistics, counted, type StatisticsSettings } from './statistics/assemble.ts';
import { Switches } from './system/switches.ts';
import { System } from './system/system.ts';
import { Backlog } from './timers/backlog.ts';
import { Firing } from './timers/firing.ts';
import { type SweeperSettings, TimerSweeper } from './timers/sweeper.ts';
import { Timers, type TimersSettings } from './timers/timers.ts';
import { Traces } from './traces/traces.ts';
import { TransactionPath } from './transaction/path.ts';
import type { BrokerFace } from './types.ts';
import type { ParkingSettings } from './wake/parking.ts';
import { Wake } from './wake/wake.ts';

export interface EngineSettings {
  admission: AdmissionSettings;
  /** The log has a line for each adaptation of the limit. */
  admissionTrace?: boolean;
  pendingBytesMax: number;
  zstdLevel: number;
  fusion: Partial<FusionSettings>;
  /** How long what is known of a queue's options is believed by pushes. Default 30 s. */
  placeMemoMs?: number;
  dedup: { enabled: boolean; maxBytes: number };
  pop: Partial<PopSettings>;
  parking: ParkingSettings;
  reseed: ReseedSettings;
  ack: { registry: boolean; registryBytesMax: number } & Omit<AckSettings, 'tenancy'>;
  retention: Partial<RetentionSettings>;
  retainedBytesMs: number;
  statistics: StatisticsSettings;
  safetyWalkMs: number;
  /** How far back of now a copying reader is safe when running transactions are hidden from this broker. */
  fetchSafeFloorMs: number;
  kv: KvSettings & {
    /** A tenant without a plan may use neither KV nor timers. */
    requireGrant: boolean;
    /** Expired keys are deleted, and timers fired here. */
    sweeper: boolean;
    expiry: ExpirySettings;
    usageMs: number;
  };
  /** Null: what the database does not take is refused. */
  spool: SpoolSettings | null;
  timers: TimersSettings & { sweep: SweeperSettings; attemptsMax: number };
  /** Several tenants share the database. */
  tenancy: boolean;
  /** Null: no queue can be encrypted here. */
  sealingKey: SealingKey | null;
}

export interface EngineOptions {
  database: DatabaseOptions;
  settings: EngineSettings;
  /** Names this broker in leases of background work and among its peers. */
  serverId: string;
  log: StoreLog;
  clock?: Clock;
  /** False: neither sends nor hears notifications (tests). */
  notifications?: boolean;
  /** Scheduling delay of the event loop, for the statistics. */
  loopLagMs?: () => number;
}

/** How long a request that finds too many pending bytes is held before it is refused. */
const PENDING_HOLD_MS = 1_000;
/** What an earlier process left in the spool is stored for so long before the first client is heard. */
const RECOVERY_MS = 3_600_000;
const PING = statement('ping', 'SELECT 1 AS one');

export type Broker = Awaited<ReturnType<typeof createBroker>>;

/** Throws a StoreError when the database cannot be reached, an EngineError when it needs a key that is missing. */
export async function createBroker(options: EngineOptions) {
  const { settings, log, serverId, clock = systemClock } = options;
  const db = await Database.open(options.database);
  try {
    if (settings.sealingKey === null) await refuseSealedQueues(db);
    return await assemble(db, options, settings, log, serverId, clock);
  } catch (error) {
    await db.close();
    throw error;
  }
}

/** Null: there is to be none, or none can be had. Then a broker is still worth having. */
async function openSpool(
  db: Database,
  settings: SpoolSettings | null,
  deps: Omit<SpoolDeps, 'place' | 'databaseId' | 'settings'>,
): Promise<Spool | null> {
  const place = settings === null ? null : choosePlace(settings.directories, deps.log);
  if (settings === null || place === null) return null;
  try {
    return await Spool.open({ ...deps, place, databaseId: await databaseId(db), settings });
  } catch (err) {
    deps.log.error({ err, ...place }, 'no spool: pushes that the database does not take are refused');
    return null;
  }
}

async function assemble(
  db: Database,
  options: EngineOptions,
  settings: EngineSettings,
  log: StoreLog,
  serverId: string,
  clock: Clock,
) {
  const trace = settings.admissionTrace
    ? (facts: object) => log.info(facts, 'admission: the limit was looked at')
    : undefined;
  const admission = new Admission({ ...settings.admission, trace }, clock);
  const pending = new PendingBytes({ maxBytes: settings.pendingBytesMax, holdMs: PENDING_HOLD_MS }, clock);
  const read = <T>(work: (on: Queryable) => Promise<T>) => admission.run('maintenance', () => work(db));

  const hotlist = new HotList(clock, {
    windowBatch: settings.pop.windowBatch ?? 100,
    idleSweepMs: settings.reseed.idleSweepMs,
  });
  const wake = new Wake({
    hotlist,
    read,
    session: options.notifications === false ? null : () => db.session(),
    // Two brokers may bear one name (replicas of one container image on one host); each hears the other.
    sender: `${serverId}/${randomUUID()}`,
    clock,
    log,
    parking: settings.parking,
  });
  const reseed = new Reseed({
    hotlist,
    read,
    clock,
    settings: settings.reseed,
    log,
    databaseNow: () => wake.time.now(),
    onRepair: (repair) => popPath.forgetGroup(repair.tenant, repair.group),
  });
  wake.onRepairs = () => void reseed.pollRepairs().catch((err) => log.warn({ err }, 'repairs not read'));
  wake.onGap = () => {
    spool?.databaseBack();
    void reseed.pass().catch((err) => log.warn({ err }, 'hot list not refreshed'));
  };
  wake.onQueueReplaced = (tenant) => popPath.forgetQueue(tenant);
  const switches = new Switches({ run: read, clock, log, hearing: () => wake.peers?.connected === true });
  wake.onSwitches = () => switches.heard();
  // Whoever waits gets the answer of a paused pop now, and not at the end of the wait.
  switches.onChange((now) => now.pop_maintenance_mode && wake.parking.wakeAll());

  const dedup = new DedupCache({
    ...settings.dedup,
    // Not in the push lane: a push waits for its hydration, perhaps while its lane is full of such pushes.
    hydrate: databaseWindows(db, (work) => admission.run('maintenance', work)),
    clock,
    log,
  });
  db.onServerReplaced(() => {
    // Hashes and offsets of a server that is gone vouch for nothing; ids and windows are checked by every push.
    dedup.clear();
    hotlist.allStale();
  });
  const background = { db, admission, clock, log, holder: serverId };
  const { ledger, writer, refresh, statistics, scrape } = assembleStatistics({
    db,
    background,
    wake,
    clock,
    log,
    server: serverId,
    loopLagMs: options.loopLagMs ?? (() => 0),
    settings: settings.statistics,
  });
  const batches = { push: new Batches(), pop: new Batches(), ack: new Batches() };
  const registry = new AckRegistry({ clock, bytesMax: settings.ack.registryBytesMax });
  const sealing = new Sealing(settings.sealingKey, log, clock);
  const spool = await openSpool(db, settings.spool, {
    store: (units) => restore.store(units),
    paused: () => switches.now('maintenance_mode'),
    seal: sealing.seal,
    clock,
    log,
  });
  switches.onChange((now, before) => {
    if (before.maintenance_mode && !now.maintenance_mode) spool?.resumed();
  });
  const pushPath = new PushPath({
    db,
    admission,
    pending,
    dedup,
    announcer: wake,
    clock,
    zstdLevel: settings.zstdLevel,
    fusion: settings.fusion,
    memoMs: settings.placeMemoMs,
    seal: sealing.seal,
    detour: spool,
    log,
    fired: (items, ms) => batches.push.note(items, ms),
  });
  const restore = new Restore({
    db,
    admission,
    dedup,
    memo: pushPath.memo,
    provisioner: pushPath.provisioner,
    announcer: wake,
    zstdLevel: settings.zstdLevel,
    seal: sealing.seal,
    unseal: sealing.openOurs,
    log,
  });
  pushPath.provisioner.onCreated = (tenant, queue, partitions) => ledger.created(tenant, queue, partitions);
  const popPath: PopPath = new PopPath({
    run: (work) => admission.run('pop', () => work(db)),
    hotlist,
    reseed,
    wake,
    ackRegistry: settings.ack.registry ? registry : { delivered() {} },
    clock,
    log,
    settings: settings.pop,
    paused: () => switches.now('pop_maintenance_mode'),
    open: () => sealing.open,
    fired: (items, ms) => batches.pop.note(items, ms),
  });
  const ackPath = new AckPath({
    db,
    admission,
    announcer: wake,
    registry: settings.ack.registry ? registry : null,
    clock,
    settings: { ...settings.ack, tenancy: settings.tenancy },
    log,
    fired: (items, ms) => batches.ack.note(items, ms),
  });
  const garbage = new Garbage(background);
  const queues = new Queues({
    db,
    admission,
    announcer: wake,
    deleted: () => garbage.soon(),
    canEncrypt: settings.sealingKey !== null,
  });
  const quotas = new Quotas({ read, clock, requireGrant: settings.kv.requireGrant });
  const kvExpiry = new KvExpiry({ run: read, clock, settings: settings.kv.expiry, log });
  const kvPath = new Kv({
    db,
    quotas,
    enabled: switches.one('kv_enabled'),
    expiry: kvExpiry,
    clock,
    settings: settings.kv,
  });
  // In the lane of the pushes: a timer's message is one like theirs, and has a time to keep.
  const sweep = <T>(work: (on: Queryable) => Promise<T>) => admission.run('push', () => work(db));
  const firing = new Firing({
    run: sweep,
    memo: pushPath.memo,
    provisioner: pushPath.provisioner,
    dedup,
    announcer: wake,
    quotas,
    ledger,
    seal: sealing.seal,
    zstdLevel: settings.zstdLevel,
    clock,
    settings: { ...settings.timers.sweep, attemptsMax: settings.timers.attemptsMax },
    log,
  });
  const timerSweeper = new TimerSweeper({
    run: sweep,
    firing,
    paused: () => !switches.now('timers_fire_enabled'),
    clock,
    settings: settings.timers.sweep,
    log,
  });
  wake.onTimers = () => timerSweeper.heard();
  switches.onChange((now, before) => {
    if (now.timers_fire_enabled && !before.timers_fire_enabled) timerSweeper.ring(0);
  });
  const timers = new Timers({
    run: (work) => kvPath.lend(work),
    quotas,
    enabled: switches.one('timers_schedule_enabled'),
    scheduled: (delayMs) => timerSweeper.ring(delayMs),
    // Who finds nothing scheduled looks again after this long: what is due later needs no word.
    soonMs: settings.timers.sweep.idleSleepMs,
    tellPeers: () => wake.peers?.timersScheduled(),
    seal: sealing.seal,
    memo: pushPath.memo,
    clock,
    settings: settings.timers,
  });
  const timerBacklog = new Backlog(read, clock);
  const transactionPath = new TransactionPath({
    db,
    admission,
    pending,
    memo: pushPath.memo,
    provisioner: pushPath.provisioner,
    dedup,
    zstdLevel: settings.zstdLevel,
    seal: sealing.seal,
    announcer: wake,
    registry: settings.ack.registry ? registry : null,
    kv: kvPath,
    timers: timers.ride,
    tenancy: settings.tenancy,
    concurrency: Math.max(2, Math.floor(settings.admission.min / 2)),
    clock,
    log,
  });
  const deadLetters = new DeadLetters({
    db,
    admission,
    announcer: {
      pushed(list) {
        for (const { tenant, queue } of list) ledger.stored(tenant, queue, 1);
        wake.pushed(list);
      },
    },
    dedup,
    sealing,
    zstdLevel: settings.zstdLevel,
    pushPaused: () => switches.one('maintenance_mode').on(),
  });
  const groups = new Groups({
    db,
    admission,
    repaired: async (tenant, group, queues) => {
      wake.peers?.repairsPublished();
      try {
        await reseed.pollRepairs();
      } catch (err) {
        log.warn({ err }, 'repairs not read: what is known of the group is dropped instead');
        for (const queue of queues) hotlist.drop(tenant, queue, group);
      }
      // A scope's registration has no queue to be repaired on.
      popPath.forgetGroup(tenant, group);
    },
  });
  const messages = new Messages({ db, admission, sealing, log });
  const records = new Records({
    run: (work) => admission.run('pop', () => work(db)),
    wake,
    clock,
    open: sealing.open,
    log,
    safeFloorMs: settings.fetchSafeFloorMs,
  });
  const system = new System({ switches, spool, wake, quotas });
  const traces = new Traces({ db, admission, tenancy: settings.tenancy, worker: serverId });
  const retention = new RetentionLoop(
    {
      ...background,
      retained: (queueId, rule, deleted) => ledger.retained(queueId, rule, deleted),
      cleaned: (queueId, partitions) => ledger.cleaned(queueId, partitions),
    },
    settings.retention,
  );
  const loops = [
    retention,
    garbage,
    new WatermarkWalk(background, { intervalMs: settings.safetyWalkMs }),
    new RetainedBytes(background, { intervalMs: settings.retainedBytesMs }),
    new KvUsage(background, { intervalMs: settings.kv.usageMs }),
    refresh,
    ...(settings.kv.sweeper ? [kvExpiry, timerSweeper] : []),
  ];

  const face: BrokerFace = {
    ...counted(
      {
        push: (request) => pushPath.push(request),
        pop: (request) => popPath.pop(request),
        ack: (request) => ackPath.ack(request),
        transaction: (request) => transactionPath.transaction(request),
      },
      ledger,
    ),
    extend: (tenant, leaseId, seconds) => ackPath.extend(tenant, leaseId, seconds),
    configure: (request) => queues.configure(request),
    listQueues: (tenant) => queues.listQueues(tenant),
    inspectQueue: (tenant, queue) => queues.inspectQueue(tenant, queue),
    queueDepth: (tenant, queue, group) => queues.queueDepth(tenant, queue, group),
    namespaces: (tenant) => queues.namespaces(tenant),
    tasks: (tenant) => queues.tasks(tenant),
    deleteQueue: (tenant, queue) => queues.deleteQueue(tenant, queue),
    deadLetters,
    groups,
    messages,
    records,
    traces,
    system,
    statistics,
    timers,
    kv: (request) => kvPath.kv(request),
    kvNamespaces: (tenant) => kvPath.kvNamespaces(tenant),
    kvList: (request) => kvPath.kvList(request),
    healthy: () =>
      db.query(PING, [], { readOnly: true, timeoutMs: 4_000 }).then(
        () => true,
        () => false,
      ),
  };

  return {
    ...face,
    db,
    admission,
    pending,
    dedup,
    hotlist,
    wake,
    reseed,
    registry,
    pushPath,
    popPath,
    ackPath,
    transactionPath,
    kvPath,
    kvExpiry,
    switches,
    spool,
    timers,
    timerSweeper,
    timerBacklog,
    firing,
    quotas,
    retention,
    garbage,
    sealing,
    ledger,
    writer,
    scrape,
    batches,

    /** @param asked settles when somebody wants the start to end */
    async start(asked: Promise<unknown> | null = null): Promise<void> {
      await Promise.all([wake.start(), switches.refresh()]);
      await spool?.recover(RECOVERY_MS, asked);
      spool?.start();
      reseed.start();
      for (const loop of loops) loop.start();
      writer.start();
    },

    async stop(): Promise<void> {
      await popPath.stop();
      await Promise.all([pushPath.drain(), ackPath.drain(), transactionPath.drain()]);
      await spool?.stop();
      await reseed.stop();
      await Promise.all(loops.map((loop) => loop.stop()));
      await writer.stop();
      await wake.stop();
      await db.close();
    },
  };
}
