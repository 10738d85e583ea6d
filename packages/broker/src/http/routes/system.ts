/** What is about the cluster and the broker: maintenance, switches, the spool, and what brokers tell each other. */
import type { Type } from 'typebox';
import type { SpoolState, SystemFace } from '../../engine/system/face.ts';
import type { SwitchName, SwitchStates } from '../../engine/system/switches.ts';
import type { BrokerFace } from '../../engine/types.ts';
import {
  buffers,
  kvTimers,
  notify,
  peerStats,
  popMaintenance,
  pushMaintenance,
  setKvTimers,
  setPopMaintenance,
  setPushMaintenance,
  sharedState,
} from '../api/system.ts';
import type { App } from '../app.ts';
import { badBody } from '../errors.ts';

const MIB = 1024 * 1024;
/** Tools look for these words. */
const PUSH_ON = 'Maintenance mode ENABLED. All PUSHes routing to file buffer.';
const PUSH_OFF = 'Maintenance mode DISABLED. Background processor will drain buffer to DB.';
const POP_ON = 'Pop maintenance mode ENABLED. All POP operations will return empty arrays.';
const POP_OFF = 'Pop maintenance mode DISABLED. Normal operation.';
const POP_IS_ON = 'Pop maintenance mode is ON. All POP operations return empty arrays.';
const POP_IS_OFF = 'Pop maintenance mode is OFF. Normal operation.';

/** The names on the wire. */
const KV_TIMERS = [
  ['kv', 'kv_enabled'],
  ['timersSchedule', 'timers_schedule_enabled'],
  ['timersFire', 'timers_fire_enabled'],
] as const satisfies readonly (readonly [string, SwitchName])[];

export function systemRoutes(app: App, broker: BrokerFace, serverId: string): void {
  const { system } = broker;
  const config = { level: 'admin' } as const;
  // A body that is no JSON says nothing, and so not whether to switch on or off.
  const lenient = { level: 'admin', lenientBody: true } as const;

  app.get('/api/v1/system/maintenance', { config, schema: pushMaintenance }, async () => {
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
  app.post('/api/v1/system/maintenance', { config: lenient, schema: setPushMaintenance }, async (request) => {
    const { enabled } = request.body;
    await system.setSwitches({ maintenance_mode: enabled });
    return {
      maintenanceMode: enabled,
      ...buffered(system.spool()),
      message: enabled ? PUSH_ON : PUSH_OFF,
    };
  });

  app.get('/api/v1/system/maintenance/pop', { config, schema: popMaintenance }, async () => {
    const { pop_maintenance_mode: on } = await system.switches();
    return { popMaintenanceMode: on, message: on ? POP_IS_ON : POP_IS_OFF };
  });
  app.post(
    '/api/v1/system/maintenance/pop',
    { config: lenient, schema: setPopMaintenance },
    async (request) => {
      const { enabled } = request.body;
      await system.setSwitches({ pop_maintenance_mode: enabled });
      return { popMaintenanceMode: enabled, message: enabled ? POP_ON : POP_OFF };
    },
  );

  app.get('/api/v1/system/kv-timers', { config, schema: kvTimers }, async () =>
    renderKvTimers(system, await system.switches()),
  );
  app.post('/api/v1/system/kv-timers', { config: lenient, schema: setKvTimers }, async (request) => {
    const mirrored = await system.setSwitchesAnyhow(readKvTimers(request.body));
    return { ...renderKvTimers(system, system.knownSwitches()), mirrored };
  });

  app.get('/api/v1/system/shared-state', { config, schema: sharedState }, async () => ({
    enabled: false,
    reason: 'single_node_segments_broker',
    ...modes(system),
  }));
  for (const [path, schema] of Object.entries(peerStats)) {
    app.get(path, { config, schema }, async () => renderPeers(system, serverId));
  }
  app.post('/internal/api/notify', { config, schema: notify }, async (request) => {
    system.noticed(request.identity.tenant, request.body.queue);
    return { status: 'ok' };
  });

  app.get('/api/v1/status/buffers', { config: { level: 'read-only' }, schema: buffers }, async () => {
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

function renderKvTimers(system: SystemFace, states: SwitchStates) {
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

function renderPeers(system: SystemFace, serverId: string) {
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

function readKvTimers(body: Type.Static<typeof setKvTimers.body>): Partial<SwitchStates> {
  const changes: Partial<SwitchStates> = {};
  for (const [name, key] of KV_TIMERS) {
    const value = body[name];
    if (value != null) changes[key] = value;
  }
  if (Object.keys(changes).length > 0) return changes;
  throw badBody(`one of ${KV_TIMERS.map(([name]) => name).join(', ')} (boolean) is required`);
}
