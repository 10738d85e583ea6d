import type { Level } from '../../../src/http/identity.ts';

/** Every route of the wire with what it asks of its caller, written down a second time: what the code must agree with. */
export interface ExpectedRoute {
  method: string;
  /** `:name` for a segment, `*` for the rest. */
  path: string;
  level: Level;
  /** It is about one tenant's data. */
  tenant: boolean;
}

type Line = readonly [methods: string, path: string, level: 'P' | 'R' | 'W' | 'RW' | 'A', tenant: 'T' | '-'];

const LINES: readonly Line[] = [
  ['POST', '/api/v1/push', 'W', 'T'],
  ['GET', '/api/v1/pop', 'RW', 'T'],
  ['GET', '/api/v1/pop/queue/:queue', 'RW', 'T'],
  ['GET', '/api/v1/pop/queue/:queue/partition/:partition', 'RW', 'T'],
  ['POST', '/api/v1/ack', 'RW', 'T'],
  ['POST', '/api/v1/ack/batch', 'RW', 'T'],
  ['POST', '/api/v1/lease/:leaseId/extend', 'RW', 'T'],
  ['POST', '/api/v1/configure', 'RW', 'T'],
  ['POST', '/api/v1/transaction', 'RW', 'T'],
  ['POST', '/api/v1/kv', 'RW', 'T'],
  ['GET', '/api/v1/kv/:ns/*', 'R', 'T'],
  ['PUT DELETE', '/api/v1/kv/:ns/*', 'RW', 'T'],
  ['GET', '/api/v1/resources/kv/namespaces', 'R', 'T'],
  ['POST', '/api/v1/resources/kv/list', 'R', 'T'],
  ['POST', '/api/v1/timers', 'W', 'T'],
  ['GET', '/api/v1/timers', 'R', 'T'],
  ['GET', '/api/v1/timers/:queue', 'R', 'T'],
  ['GET', '/api/v1/timers/:queue/*', 'R', 'T'],
  ['DELETE', '/api/v1/timers/:queue/*', 'RW', 'T'],
  ['GET', '/api/v1/messages', 'R', 'T'],
  ['GET', '/api/v1/messages/find', 'R', 'T'],
  ['GET', '/api/v1/messages/:partitionId/:transactionId', 'R', 'T'],
  ['DELETE', '/api/v1/messages/:partitionId/:transactionId', 'RW', 'T'],
  ['POST', '/api/v1/messages/:partitionId/:transactionId/retry', 'RW', 'T'],
  ['GET', '/api/v1/dlq', 'R', 'T'],
  ['GET', '/api/v1/dlq/:id', 'R', 'T'],
  ['DELETE', '/api/v1/dlq', 'A', 'T'],
  ['POST', '/api/v1/dlq/:id/replay', 'RW', 'T'],
  ['GET', '/api/v1/consumer-groups', 'R', 'T'],
  ['GET', '/api/v1/consumer-groups/lagging', 'R', 'T'],
  ['GET', '/api/v1/consumer-groups/:group', 'R', 'T'],
  ['GET', '/api/v1/consumer-groups/:group/queues/:queue', 'R', 'T'],
  ['POST', '/api/v1/consumer-groups/:group/subscription', 'RW', 'T'],
  ['POST', '/api/v1/consumer-groups/:group/queues/:queue/seek', 'RW', 'T'],
  ['POST', '/api/v1/consumer-groups/:group/queues/:queue/partitions/:partition/seek', 'RW', 'T'],
  ['DELETE', '/api/v1/consumer-groups/:group', 'A', 'T'],
  ['DELETE', '/api/v1/consumer-groups/:group/queues/:queue', 'A', 'T'],
  ['GET', '/api/v1/resources/queues', 'R', 'T'],
  ['GET', '/api/v1/resources/queues/:queue', 'R', 'T'],
  ['GET', '/api/v1/resources/queues/:queue/depth', 'R', 'T'],
  ['DELETE', '/api/v1/resources/queues/:queue', 'A', 'T'],
  ['GET', '/api/v1/resources/overview', 'R', 'T'],
  ['GET', '/api/v1/resources/namespaces', 'R', 'T'],
  ['GET', '/api/v1/resources/tasks', 'R', 'T'],
  ['POST', '/api/v1/fetch', 'R', 'T'],
  ['POST', '/api/v1/fetch/offsets', 'R', 'T'],
  ['POST', '/api/v1/partitions/changed', 'R', 'T'],
  ['POST', '/api/v1/traces', 'RW', 'T'],
  ['GET', '/api/v1/traces/names', 'R', 'T'],
  ['GET', '/api/v1/traces/by-name/:name', 'R', 'T'],
  ['GET', '/api/v1/traces/:partitionId/:transactionId', 'R', 'T'],
  ['POST', '/streams/v1/queries', 'RW', 'T'],
  ['POST', '/streams/v1/state/get', 'R', 'T'],
  ['POST', '/streams/v1/cycle', 'RW', 'T'],
  ['GET', '/health', 'P', '-'],
  ['GET', '/health/live', 'P', '-'],
  ['GET', '/status', 'R', '-'],
  ['GET', '/api/v1/status', 'R', '-'],
  ['GET', '/api/v1/status/queues', 'R', 'T'],
  ['GET', '/api/v1/status/queues/:queue', 'R', 'T'],
  ['GET', '/api/v1/status/queues/:queue/partitions/:partition', 'R', 'T'],
  ['GET', '/api/v1/status/analytics', 'R', 'T'],
  ['GET', '/api/v1/status/buffers', 'R', '-'],
  ['POST', '/api/v1/stats/refresh', 'A', '-'],
  ['GET', '/api/v1/analytics/queue-lag', 'R', 'T'],
  ['GET', '/api/v1/analytics/queue-ops', 'R', 'T'],
  ['GET', '/api/v1/analytics/queue-parked-replicas', 'R', 'T'],
  ['GET', '/api/v1/analytics/retention', 'R', 'T'],
  ['GET', '/api/v1/analytics/workload', 'R', 'T'],
  ['GET', '/api/v1/analytics/dlq-signatures', 'R', 'T'],
  ['GET', '/api/v1/analytics/partition-liveness', 'R', 'T'],
  ['GET', '/api/v1/analytics/system-metrics', 'R', '-'],
  ['GET', '/api/v1/analytics/worker-metrics', 'R', '-'],
  ['GET', '/api/v1/analytics/postgres-stats', 'R', '-'],
  ['GET', '/metrics', 'P', '-'],
  ['GET', '/metrics/prometheus', 'P', '-'],
  ['GET POST', '/api/v1/system/maintenance', 'A', '-'],
  ['GET POST', '/api/v1/system/maintenance/pop', 'A', '-'],
  ['GET POST', '/api/v1/system/kv-timers', 'A', '-'],
  ['GET', '/api/v1/system/shared-state', 'A', '-'],
  ['POST', '/internal/api/notify', 'A', 'T'],
  ['GET', '/internal/api/shared-state/stats', 'A', '-'],
  ['GET', '/internal/api/inter-instance/stats', 'A', '-'],
  ['GET', '/api/v1/connectors', 'R', 'T'],
  ['GET', '/api/v1/connectors/:name', 'R', 'T'],
  ['PUT DELETE', '/api/v1/connectors/:name', 'A', 'T'],
  ['POST', '/api/v1/connectors/:name/resync', 'A', 'T'],
  ['GET', '/auth/me', 'P', '-'],
  ['GET', '/auth/login', 'P', '-'],
  ['POST', '/auth/logout', 'P', '-'],
  ['GET', '/', 'P', '-'],
  ['GET', '/assets/*', 'P', '-'],
  ['GET', '/favicon.ico', 'P', '-'],
  ['GET', '/openapi.json', 'P', '-'],
  ['GET', '/docs', 'P', '-'],
];

const LEVELS = {
  P: 'public',
  R: 'read-only',
  W: 'write-only',
  RW: 'read-write',
  A: 'admin',
} as const;

export const ROUTES: readonly ExpectedRoute[] = LINES.flatMap(([methods, path, level, tenant]) =>
  methods
    .split(' ')
    .map(
      (method) => ({ method, path, level: LEVELS[level], tenant: tenant === 'T' }) satisfies ExpectedRoute,
    ),
);

export const ROLES = ['admin', 'read-write', 'read-only', 'write-only'] as const;

/** Which roles each level lets in. */
export const ADMITTED: { readonly [L in Level]: readonly (typeof ROLES)[number][] } = {
  public: ROLES,
  'read-only': ['admin', 'read-write', 'read-only'],
  'write-only': ['admin', 'read-write', 'write-only'],
  'read-write': ['admin', 'read-write'],
  admin: ['admin'],
};
