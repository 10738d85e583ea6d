/**
 * What every route asks of its caller, in one table: the first rule that fits decides, and what no rule names needs
 * a role that may read and write. The rules are matched against the route's own path (`/api/v1/kv/:ns/*`), never
 * against what a client sent: an escaped letter in a request must not lead to another rule than the one of the
 * handler that it reaches.
 */
import type { Access, Level, Role } from '../identity.ts';

/** A set of roles satisfies a level; levels are no ladder: who may only write cannot read. */
export const LEVEL_ROLES: { readonly [L in Exclude<Level, 'public'>]: ReadonlySet<Role> } = {
  'read-only': new Set<Role>(['read-only', 'read-write', 'admin']),
  'write-only': new Set<Role>(['write-only', 'read-write', 'admin']),
  'read-write': new Set<Role>(['read-write', 'admin']),
  admin: new Set<Role>(['admin']),
};

type Methods = 'any' | 'GET' | 'POST' | 'DELETE' | 'writes';

interface Rule {
  readonly level: Level;
  readonly methods: Methods;
  /** Each is a path; with `*` at its end whatever begins with what stands before. */
  readonly paths: readonly string[];
}

export const RULES: readonly Rule[] = [
  {
    level: 'public',
    methods: 'any',
    paths: [
      '/health',
      '/health/live',
      '/metrics',
      '/metrics/prometheus',
      '/',
      '/assets/*',
      '/favicon*',
      '/openapi.json',
      '/docs',
      '/auth/me',
      '/auth/login',
      '/auth/logout',
    ],
  },
  { level: 'admin', methods: 'any', paths: ['/api/v1/system/*', '/internal/*', '/api/v1/stats/refresh'] },
  {
    level: 'admin',
    methods: 'DELETE',
    paths: ['/api/v1/consumer-groups/*', '/api/v1/resources/queues/*', '/api/v1/dlq'],
  },
  { level: 'admin', methods: 'writes', paths: ['/api/v1/connectors*'] },
  { level: 'write-only', methods: 'POST', paths: ['/api/v1/push', '/api/v1/timers'] },
  {
    level: 'read-only',
    methods: 'GET',
    paths: [
      '/status',
      '/api/v1/status*',
      '/api/v1/analytics*',
      '/api/v1/resources/*',
      '/api/v1/messages*',
      '/api/v1/consumer-groups*',
      '/api/v1/dlq*',
      '/api/v1/traces*',
      '/api/v1/kv*',
      '/api/v1/timers*',
      '/api/v1/connectors*',
    ],
  },
  {
    level: 'read-only',
    methods: 'POST',
    paths: [
      '/streams/v1/state/get',
      '/api/v1/resources/kv/list',
      '/api/v1/fetch',
      '/api/v1/fetch/offsets',
      '/api/v1/partitions/changed',
    ],
  },
];

/** What is about the broker and not about one tenant's data: the tenant header means nothing here. */
const CELL_WIDE: readonly string[] = [
  '/health',
  '/health/live',
  '/metrics*',
  '/status',
  '/api/v1/status',
  '/api/v1/status/buffers',
  '/api/v1/stats/refresh',
  '/api/v1/analytics/system-metrics',
  '/api/v1/analytics/worker-metrics',
  '/api/v1/analytics/postgres-stats',
  '/api/v1/system/*',
  '/internal/*',
  '/auth/*',
  '/',
  '/assets/*',
  '/favicon*',
  '/openapi.json',
  '/docs',
];
const TENANT_INSIDE_CELL_WIDE: ReadonlySet<string> = new Set(['/internal/api/notify']);

/** What a route asks, by its method and its path as it was registered; for what no route answers, the path as sent. */
export function accessOf(method: string, path: string): Access {
  const tenant = TENANT_INSIDE_CELL_WIDE.has(path) || !CELL_WIDE.some((pattern) => fits(pattern, path));
  for (const { level, methods, paths } of RULES) {
    if (fitsMethod(methods, method) && paths.some((pattern) => fits(pattern, path))) return { level, tenant };
  }
  return { level: 'read-write', tenant };
}

/** Whether roles satisfy a level. */
export function satisfies(roles: readonly Role[], level: Level): boolean {
  if (level === 'public') return true;
  const enough = LEVEL_ROLES[level];
  return roles.some((role) => enough.has(role));
}

function fits(pattern: string, path: string): boolean {
  return pattern.endsWith('*') ? path.startsWith(pattern.slice(0, -1)) : pattern === path;
}

function fitsMethod(methods: Methods, method: string): boolean {
  const reads = method === 'GET' || method === 'HEAD';
  if (methods === 'any') return true;
  if (methods === 'writes') return !reads;
  return methods === 'GET' ? reads : methods === method;
}
