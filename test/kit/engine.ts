import {
  type Broker,
  createBroker,
  type EngineOptions,
  type EngineSettings,
} from '../../packages/broker/src/engine/broker.ts';
import { PARKING_DEFAULTS } from '../../packages/broker/src/engine/wake/parking.ts';
import { silentLog } from '../../packages/broker/src/store/log.ts';
import type { TestDatabase } from './postgres.ts';

/** The settings of a broker whose environment says nothing, for a pool of eight. */
export const ENGINE_DEFAULTS: EngineSettings = {
  admission: {
    min: 6,
    max: 8,
    init: 6,
    tickMs: 500,
    shares: { push: 0.25, pop: 0.4, ack: 0.3, maintenance: 0.05 },
  },
  pendingBytesMax: 64 * 1024 * 1024,
  zstdLevel: 3,
  fusion: {},
  dedup: { enabled: true, maxBytes: 64 * 1024 * 1024 },
  pop: {},
  parking: PARKING_DEFAULTS,
  reseed: { reseedMs: 30_000, fullMs: 300_000, windowMs: 120_000, idleSweepMs: 300_000 },
  ack: { registry: true, registryBytesMax: 16 * 1024 * 1024, fusion: true, fusionShards: 8, fusionHoldMs: 3 },
  retention: {},
  retainedBytesMs: 600_000,
  statistics: { refreshMs: 10_000, flushMs: 60_000 },
  safetyWalkMs: 86_400_000,
  fetchSafeFloorMs: 30_000,
  kv: {
    valueBytesMax: 65_536,
    readBytesMax: 4_194_304,
    pageMax: 1000,
    connections: 4,
    reads: null,
    writes: null,
    requireGrant: false,
    sweeper: true,
    expiry: { everyMs: 1000, batchRows: 1000 },
    usageMs: 300_000,
  },
  spool: null,
  timers: {
    payloadBytesMax: 1_048_576,
    horizonSeconds: 7_776_000,
    reads: null,
    writes: null,
    attemptsMax: 5,
    sweep: {
      minSleepMs: 5,
      maxSleepMs: 1000,
      idleSleepMs: 30_000,
      idleAfterCycles: 5,
      leaseMs: 30_000,
      claimBatch: 200,
      cycleRowsMax: 5000,
      fireBytesMax: 8_388_608,
      parallelism: 1,
    },
  },
  tenancy: false,
  sealingKey: null,
};

let opened = 0;

/**
 * A whole engine in this process, with its connections to the test database, but without its background loops:
 * a test calls the pass that it wants. The caller stops it.
 */
export async function openBroker(
  database: TestDatabase,
  settings: Partial<EngineSettings> = {},
  options: Partial<EngineOptions> = {},
): Promise<Broker> {
  const broker = await createBroker({
    database: database.options,
    settings: { ...ENGINE_DEFAULTS, ...settings },
    serverId: `broker-${++opened}`,
    log: silentLog,
    ...options,
  });
  await broker.wake.start();
  return broker;
}
