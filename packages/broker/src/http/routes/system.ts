/** What is about the cluster and the broker: maintenance, switches, the spool, and what brokers tell each other. */
import type { SpoolState, SystemFace } from '../../engine/system/face.ts';
import type { SwitchName, SwitchStates } from '../../engine/system/switches.ts';
import type { BrokerFace } from '../../engine/types.ts';
import { requiredNameFault } from '../../log/names.ts';
import type { App } from '../app.ts';
import { badBody, Fault } from '../errors.ts';

const MIB = 1024 * 1024;
/** Tools look for these words. */
const PUSH_ON = 'Maintenance mode ENABLED. All PUSHes routing to file buffer.';
const PUSH_OFF = 'Maintenance mode DISABLED. Background processor will drain buffer to DB.';
const POP_ON = 'Pop maintenance mode ENABLED. All POP operations will return empty arrays.';
const POP_OFF = 'Pop maintenance mode DISABLED. Normal operation.';
const POP_IS_ON = 'Pop maintenance mode is ON. All POP operations return empty arrays.';
const POP_IS_OFF = 'Pop maintenance mode is OFF. Normal operation.';

/** The names on the wire. */
const KV_TIMERS: Readonly<Record<string, SwitchName>> = {
  kv: 'kv_enabled',
  timersSchedule: 'timers_schedule_enabled',
  timersFire: 'timers_fire_enabled',
};

export function systemRoutes(app: App, broker: BrokerFace, serverId: string): void {
  const { system } = broker;
  const admin = { config: { level: 'admin' } } as const;
  // A body that is no JSON says nothing, and so not whether to switch on or off.
  const adminBody = { config: { level: 'admin', lenientBody: true } } as const;

  app.get('/api/v1/system/maintenance', admin, async () => {
    const { maintenance_mode, pop_maintenance_mode } = await system.switches();
    const spool = system.spool();
    return {
      maintenanceMode: maintenance_mode,
      popMaintenanceMode: pop_maintenance_mode,
      ...buffered(spool),
      bufferStats: {
        pendingCount: spool.pending,
        failedCount: spool.failed,
        dbHealthy: spool.healthy,
        failedFiles: failedFiles(spool),
      },
    };
  });
  app.post('/api/v1/system/maintenance', adminBody, async (request) => {
    const enabled = readEnabled(request.body);
    await system.setSwitches({ maintenance_mode: enabled });
    return {
      maintenanceMode: enabled,
      ...buffered(system.spool()),
      message: enabled ? PUSH_ON : PUSH_OFF,
    };
  });

  app.get('/api/v1/system/maintenance/pop', admin, async () => {
    const { pop_maintenance_mode: on } = await system.switches();
    return { popMaintenanceMode: on, message: on ? POP_IS_ON : POP_IS_OFF };
  });
  app.post('/api/v1/system/maintenance/pop', adminBody, async (request) => {
    const enabled = readEnabled(request.body);
    await system.setSwitches({ pop_maintenance_mode: enabled });
    return { popMaintenanceMode: enabled, message: enabled ? POP_ON : POP_OFF };
  });

  app.get('/api/v1/system/kv-timers', admin, async () => kvTimers(system, await system.switches()));
  app.post('/api/v1/system/kv-timers', adminBody, async (request) => {
    const mirrored = await system.setSwitchesAnyhow(readKvTimers(request.body));
    return { ...kvTimers(system, system.knownSwitches()), mirrored };
  });

  app.get('/api/v1/system/shared-state', admin, async () => ({
    enabled: false,
    reason: 'single_node_segments_broker',
    ...modes(system),
  }));
  for (const path of ['/internal/api/shared-state/stats', '/internal/api/inter-instance/stats']) {
    app.get(path, admin, async () => peerStats(system, serverId));
  }
  app.post('/internal/api/notify', { config: { level: 'admin' } }, async (request) => {
    system.noticed(request.identity.tenant, readQueue(request.body));
    return { status: 'ok' };
  });

  app.get('/api/v1/status/buffers', { config: { level: 'read-only' } }, async () => {
    const answers = await broker.healthy();
    const { pending, failed, healthy } = system.spool();
    return { pending, failed, dbHealthy: healthy && answers, worker: 0 };
  });
}

function modes(system: SystemFace): { maintenance_mode: boolean; pop_maintenance_mode: boolean } {
  const { maintenance_mode, pop_maintenance_mode } = system.knownSwitches();
  return { maintenance_mode, pop_maintenance_mode };
}

function buffered(spool: SpoolState): { bufferedMessages: number; bufferHealthy: boolean } {
  return { bufferedMessages: spool.pending, bufferHealthy: spool.healthy };
}

function failedFiles({ failedFiles: { count, bytes }, failovers }: SpoolState) {
  return {
    count,
    totalBytes: bytes,
    totalMB: Math.round((bytes / MIB) * 100) / 100,
    failoverCount: failovers,
    qos0Count: 0,
  };
}

function kvTimers(system: SystemFace, states: SwitchStates) {
  const { tenants, ageMs, hot } = system.quotas();
  return {
    kvEnabled: states.kv_enabled,
    timersScheduleEnabled: states.timers_schedule_enabled,
    timersFireEnabled: states.timers_fire_enabled,
    quotaTenants: tenants,
    quotaAgeMs: ageMs ?? 0,
    quotaHot: hot,
  };
}

function peerStats(system: SystemFace, serverId: string) {
  const peers = system.peers();
  if (peers === null) return { enabled: false, reason: 'no_peers', ...modes(system) };
  return {
    enabled: true,
    running: peers.connected,
    server_id: serverId,
    transport: 'pg-notify',
    messages_sent: peers.sent,
    messages_received: peers.received,
    messages_dropped: peers.dropped,
    reconnects: peers.reconnects,
    ...modes(system),
  };
}

function readEnabled(body: unknown): boolean {
  const enabled = memberOf(body, 'enabled');
  if (typeof enabled === 'boolean') return enabled;
  throw new Fault('bad_body', { message: 'enabled (boolean) is required', field: 'enabled' });
}

function readKvTimers(body: unknown): Partial<SwitchStates> {
  const changes: Partial<SwitchStates> = {};
  for (const [name, key] of Object.entries(KV_TIMERS)) {
    const value = memberOf(body, name);
    if (value === undefined || value === null) continue;
    if (typeof value !== 'boolean') throw badBody(`${name} must be a boolean`, name);
    changes[key] = value;
  }
  if (Object.keys(changes).length > 0) return changes;
  throw badBody(`one of ${Object.keys(KV_TIMERS).join(', ')} (boolean) is required`);
}

function readQueue(body: unknown): string {
  const queue = memberOf(body, 'queue');
  const fault = requiredNameFault(queue, 'queue');
  if (fault !== null) throw badBody(fault, 'queue');
  return queue as string;
}

function memberOf(body: unknown, name: string): unknown {
  return typeof body === 'object' && body !== null ? (body as Record<string, unknown>)[name] : undefined;
}
