/** Maintenance, switches, probes, metrics, and who is calling. */
import { Type } from 'typebox';
import { Fault } from '../errors.ts';
import { type Answer, answers, operation } from './operation.ts';
import { Count, Flag, Json, Maybe, Nullable, Quantity, RequiredName, Text, Word } from './schemas.ts';

const onOff = Type.Object(
  {
    enabled: Type.Boolean({
      refusal: () => new Fault('bad_body', { message: 'enabled (boolean) is required', field: 'enabled' }),
    }),
  },
  { title: 'OnOff' },
);
const buffered = { bufferedMessages: Count, bufferHealthy: Flag };
const common = { tag: 'Operation' } as const;

export const pushMaintenance = operation({
  operationId: 'pushMaintenance',
  ...common,
  summary: 'Whether pushes wait on disk',
  answers: {
    200: answers(
      'As the database has it.',
      Type.Object(
        {
          maintenanceMode: Flag,
          popMaintenanceMode: Flag,
          ...buffered,
          bufferStats: Type.Object({
            pendingCount: Count,
            failedCount: Count,
            dbHealthy: Flag,
            failedFiles: Type.Object({
              count: Count,
              totalBytes: Count,
              totalMB: Quantity,
              failoverCount: Count,
              qos0Count: Count,
            }),
          }),
        },
        { title: 'Maintenance' },
      ),
    ),
  },
});

export const setPushMaintenance = operation({
  operationId: 'setPushMaintenance',
  ...common,
  summary: 'Let pushes wait on disk, or store them again',
  about: 'For all brokers, and until it is switched back.',
  body: onOff,
  noBodyIsEmpty: true,
  bodyExample: { enabled: true },
  answers: { 200: answers('Switched.', Type.Object({ maintenanceMode: Flag, ...buffered, message: Text })) },
  refuses: ['bad_body'],
});

const popState = Type.Object({ popMaintenanceMode: Flag, message: Text });

export const popMaintenance = operation({
  operationId: 'popMaintenance',
  ...common,
  summary: 'Whether pops get nothing',
  answers: { 200: answers('As the database has it.', popState) },
});

export const setPopMaintenance = operation({
  operationId: 'setPopMaintenance',
  ...common,
  summary: 'Let pops get nothing, or messages again',
  about: 'For all brokers, and until it is switched back.',
  body: onOff,
  noBodyIsEmpty: true,
  bodyExample: { enabled: true },
  answers: { 200: answers('Switched.', popState) },
  refuses: ['bad_body'],
});

const switches = {
  kvEnabled: Flag,
  timersScheduleEnabled: Flag,
  timersFireEnabled: Flag,
  quotaTenants: Count,
  quotaAgeMs: Quantity,
  quotaHot: Count,
};

export const kvTimers = operation({
  operationId: 'kvTimersSwitches',
  ...common,
  summary: 'Whether keys and timers are switched on',
  answers: { 200: answers('As the database has it.', Type.Object(switches)) },
});

const switchFlag = (about: string) =>
  Maybe(Type.Boolean({ description: about, refusal: 'must be a boolean' }));

/** What the validator judges; the handler sees to it that one is given. */
const Switches = Type.Object({
  kv: switchFlag('The routes of keys.'),
  timersSchedule: switchFlag('Scheduling.'),
  timersFire: switchFlag('Firing; what is due fires late.'),
});

export const setKvTimers = operation({
  operationId: 'setKvTimersSwitches',
  ...common,
  summary: 'Switch keys and timers on and off',
  about: 'At least one of the three. For all brokers, and until it is switched back.',
  body: Switches,
  readBody: Type.Unsafe<unknown>({
    ...Switches,
    anyOf: Object.keys(Switches.properties).map((name) => ({
      required: [name],
      properties: { [name]: { type: 'boolean' } },
    })),
    title: 'KvTimersSwitches',
  }),
  noBodyIsEmpty: true,
  bodyExample: { timersFire: false },
  answers: {
    200: answers(
      '`mirrored`: the database has it, so it holds for all brokers.',
      Type.Object({ ...switches, mirrored: Flag }),
    ),
  },
  refuses: ['bad_body'],
});

const modes = { maintenance_mode: Flag, pop_maintenance_mode: Flag };

export const sharedState = operation({
  operationId: 'sharedState',
  ...common,
  summary: 'Switches, as other brokers of this family show them',
  memory: true,
  answers: { 200: answers('From memory.', Type.Object({ enabled: Flag, reason: Text, ...modes })) },
});

const peers = Type.Object(
  {
    enabled: Flag,
    reason: Type.Optional(Text),
    running: Type.Optional(Flag),
    server_id: Type.Optional(Text),
    transport: Type.Optional(Text),
    messages_sent: Type.Optional(Count),
    messages_received: Type.Optional(Count),
    messages_dropped: Type.Optional(Count),
    reconnects: Type.Optional(Count),
    ...modes,
  },
  { title: 'PeerStats' },
);
const peerAnswer = { 200: answers('Counts since the start.', peers) };

export const peerStats = {
  '/internal/api/shared-state/stats': operation({
    operationId: 'sharedStateStats',
    ...common,
    summary: 'How brokers hear of each other',
    memory: true,
    answers: peerAnswer,
  }),
  '/internal/api/inter-instance/stats': operation({
    operationId: 'interInstanceStats',
    ...common,
    summary: 'How brokers hear of each other',
    memory: true,
    answers: peerAnswer,
  }),
};

export const notify = operation({
  operationId: 'notify',
  ...common,
  summary: 'Let this broker look at a queue now',
  memory: true,
  body: Type.Object({ queue: RequiredName }, { title: 'Notify' }),
  noBodyIsEmpty: true,
  bodyExample: { queue: 'orders' },
  answers: { 200: answers('Noticed.', Type.Object({ status: Text })) },
  refuses: ['bad_body'],
});

export const buffers = operation({
  operationId: 'buffers',
  tag: 'Statistics',
  summary: "What waits on this broker's disk for the database",
  answers: {
    200: answers('Now.', Type.Object({ pending: Count, failed: Count, dbHealthy: Flag, worker: Count })),
  },
});

// ---- probes and metrics ------------------------------------------------------------------------------

const Health = Type.Object(
  {
    status: Word(['healthy', 'unhealthy']),
    database: Word(['connected', 'disconnected']),
    engine: Text,
    version: Text,
    serverId: Text,
    encryption: Type.Optional(Type.Object({ key: Flag, unopened: Count })),
    maintenance: Type.Object({ push: Flag, pop: Flag }),
    spool: Nullable(Type.Object({ pending: Count, failed: Count, draining: Flag, lasting: Flag })),
  },
  { title: 'Health' },
);

export const health = operation({
  operationId: 'health',
  ...common,
  summary: 'Whether to send traffic here',
  memory: true,
  answers: {
    200: answers('The database answers.', Health),
    503: answers('It does not.', Health),
  },
});

export const live = operation({
  operationId: 'live',
  ...common,
  summary: 'Whether the process serves',
  about: 'Never asks the database: a restart would not bring it back.',
  memory: true,
  answers: { 200: answers('It does.', Type.Object({ status: Text })) },
});

export const statusOfBroker = operation({
  operationId: 'status',
  ...common,
  summary: "The broker and its connectors, from this one's memory",
  memory: true,
  answers: {
    200: answers('Now.', Type.Object({ status: Text, engine: Text, version: Text, pg: Json })),
  },
});

export const metricsJson = operation({
  operationId: 'metrics',
  ...common,
  summary: 'A few metrics as JSON',
  memory: true,
  answers: {
    200: answers(
      'Of this process, since its start.',
      Type.Object({
        uptime: Quantity,
        requests: Type.Object({ total: Count, rate: Quantity }),
        messages: Type.Object({ total: Count, rate: Quantity }),
        database: Type.Object({ poolSize: Count, idleConnections: Count, waitingRequests: Count }),
        memory: Type.Object({
          rss: Count,
          heapTotal: Count,
          heapUsed: Count,
          external: Count,
          arrayBuffers: Count,
        }),
        cpu: Type.Object({ user: Count, system: Count }),
      }),
    ),
  },
});

export const metricsText = operation({
  operationId: 'prometheus',
  ...common,
  summary: 'All metrics for a scraper',
  memory: true,
  answers: {
    200: {
      description: "Prometheus' text format.",
      schema: Text,
      type: 'text/plain; version=0.0.4; charset=utf-8',
    },
  },
});

export const openApi = operation({
  operationId: 'openapi',
  ...common,
  summary: 'This document',
  memory: true,
  answers: { 200: answers('OpenAPI 3.1.', Json), 304: { description: 'Not changed.', schema: null } },
});

export const docs = operation({
  operationId: 'docs',
  ...common,
  summary: 'This document, for people',
  memory: true,
  answers: { 200: html('A page.'), 304: { description: 'Not changed.', schema: null } },
});

// ---- access ------------------------------------------------------------------------------------------

function html(description: string): Answer {
  return { description, schema: Text, type: 'text/html; charset=utf-8' };
}

const User = Type.Object({ id: Nullable(Text), name: Nullable(Text), role: Nullable(Text) });

export const whoAmI = operation({
  operationId: 'whoAmI',
  tag: 'Access',
  summary: 'Who the token names',
  memory: true,
  answers: {
    200: answers(
      '`standalone`: no token is asked for here.',
      Type.Object(
        {
          standalone: Flag,
          cluster: Text,
          role: Nullable(Text),
          roles: Type.Array(Text),
          user: User,
        },
        { title: 'Identity' },
      ),
    ),
  },
  refuses: ['auth_required'],
});

export const loginPage = operation({
  operationId: 'loginPage',
  tag: 'Access',
  summary: 'A page that asks for a token',
  memory: true,
  answers: { 200: html('A page.') },
});

export const logout = operation({
  operationId: 'logout',
  tag: 'Access',
  summary: 'Nothing: the broker keeps no sessions',
  memory: true,
  answers: { 200: answers('Done.', Type.Object({ success: Flag })) },
});
