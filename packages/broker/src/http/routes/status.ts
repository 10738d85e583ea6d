/**
 * Probes and metrics. Two probes because they answer different questions: `/health/live` asks whether to restart the
 * process (never because its database is away), `/health` whether to send it traffic.
 */
import type { SystemFace } from '../../engine/system/face.ts';
import type { BrokerFace } from '../../engine/types.ts';
import type { Metrics } from '../../observability/metrics.ts';
import type { Traffic } from '../../observability/traffic.ts';
import { health, live, metricsJson, metricsText, statusOfBroker } from '../api/system.ts';
import type { App } from '../app.ts';

export interface PoolNumbers {
  size: number;
  idle: number;
  waiting: number;
}

export interface SealingNumbers {
  /** This broker has a key. */
  key: boolean;
  /** Payloads that were delivered sealed, since no key of ours opens them. */
  unopened: number;
}

export interface StatusOptions {
  broker: BrokerFace;
  metrics: Metrics;
  traffic: Traffic;
  version: string;
  serverId: string;
  /** What becomes of encrypted payloads here; absent in tests. */
  sealing?: (() => SealingNumbers) | undefined;
  connectors?: { overview(): object } | undefined;
  /** The numbers of the database pool; absent in tests without one. */
  pool?: (() => PoolNumbers) | undefined;
}

const ENGINE = 'segments';
/** A database that needs longer for one round trip is not there. */
const HEALTH_TIMEOUT_MS = 3_000;
const open = { level: 'public' } as const;

export function statusRoutes(app: App, options: StatusOptions): void {
  const { broker, metrics, version, serverId } = options;

  app.get('/health', { config: open, schema: health }, async (_request, reply) => {
    const healthy = await within(broker.healthy(), HEALTH_TIMEOUT_MS);
    if (!healthy) reply.code(503);
    return {
      status: healthy ? 'healthy' : 'unhealthy',
      database: healthy ? 'connected' : 'disconnected',
      engine: ENGINE,
      version,
      serverId,
      ...(options.sealing === undefined ? {} : { encryption: options.sealing() }),
      ...spoolOf(broker.system),
    };
  });

  app.get('/health/live', { config: open, schema: live }, async () => ({ status: 'ok' }));

  app.get('/status', { config: { level: 'read-only' }, schema: statusOfBroker }, async () => ({
    status: 'ok',
    engine: ENGINE,
    version,
    pg: options.connectors?.overview() ?? {},
  }));

  app.get('/metrics', { config: open, schema: metricsJson }, async () => renderMetrics(options));

  app.get('/metrics/prometheus', { config: open, schema: metricsText }, async (_request, reply) => {
    reply.header('Cache-Control', 'no-cache').type('text/plain; version=0.0.4; charset=utf-8');
    return metrics.expose();
  });
}

function spoolOf(system: SystemFace) {
  const { directory, lasting, pending, failed, healthy } = system.spool();
  const { maintenance_mode: push, pop_maintenance_mode: pop } = system.knownSwitches();
  return {
    maintenance: { push, pop },
    // What waits makes no broker unhealthy: that is what it is for.
    spool:
      directory === null ? null : { pending, failed, draining: !push && healthy && pending > 0, lasting },
  };
}

/** The answer of the check, or false when it fails or takes too long. */
async function within(check: Promise<boolean>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(resolve, ms, false);
  });
  try {
    return await Promise.race([check, late]);
  } catch {
    return false;
  } finally {
    clearTimeout(timer);
  }
}

function renderMetrics({ traffic, pool }: StatusOptions) {
  const { size, idle, waiting } = pool?.() ?? { size: 0, idle: 0, waiting: 0 };
  const { rss, heapTotal, heapUsed, external, arrayBuffers } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  return {
    uptime: process.uptime(),
    requests: { total: traffic.pushRequests + traffic.popRequests + traffic.ackRequests, rate: 0 },
    messages: { total: traffic.pushMessages + traffic.popMessages, rate: 0 },
    database: { poolSize: size, idleConnections: idle, waitingRequests: waiting },
    memory: { rss, heapTotal, heapUsed, external, arrayBuffers },
    cpu: { user, system },
  };
}
