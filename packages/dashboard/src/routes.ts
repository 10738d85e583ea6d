/** Every page: its address, its file, its place in the navigation. A file is loaded when its page is first opened. */
import type { ComponentType } from 'preact';
import type { IconName } from './components/icons.tsx';
import { matchPath } from './router.ts';

/** What a page's component gets: the names in its address. */
export type PageParams = Record<string, string>;
export type PageComponent = ComponentType<{ params: PageParams }>;

export interface Route {
  /** `:name` stands for a part of the path. */
  path: string;
  load: () => Promise<{ default: PageComponent }>;
}

interface NavItem {
  text: string;
  to: string;
  icon: IconName;
}

export const NAVIGATION: readonly { title: string | null; items: readonly NavItem[] }[] = [
  { title: null, items: [{ text: 'Overview', to: '/', icon: 'overview' }] },
  {
    title: 'Data',
    items: [
      { text: 'Queues', to: '/queues', icon: 'queues' },
      { text: 'Messages', to: '/messages', icon: 'messages' },
      { text: 'Consumer groups', to: '/groups', icon: 'groups' },
      { text: 'Dead letters', to: '/dlq', icon: 'dead' },
      { text: 'Timers', to: '/timers', icon: 'timers' },
      { text: 'Keys and values', to: '/kv', icon: 'kv' },
    ],
  },
  {
    title: 'System',
    items: [
      { text: 'Connectors', to: '/connectors', icon: 'connectors' },
      { text: 'Brokers', to: '/brokers', icon: 'brokers' },
      { text: 'PostgreSQL', to: '/postgres', icon: 'database' },
    ],
  },
];

const ROUTES: readonly Route[] = [
  { path: '/', load: () => import('./pages/overview.tsx') },
  { path: '/queues', load: () => import('./pages/queues.tsx') },
  { path: '/queues/:queue', load: () => import('./pages/queue.tsx') },
  { path: '/queues/:queue/settings', load: () => import('./pages/queue_settings.tsx') },
  { path: '/queues/:queue/partitions/:partition', load: () => import('./pages/partition.tsx') },
  { path: '/messages', load: () => import('./pages/messages.tsx') },
  { path: '/messages/:partitionId/:transactionId', load: () => import('./pages/message.tsx') },
  { path: '/connectors', load: () => import('./pages/connectors.tsx') },
  { path: '/connectors/-/new', load: () => import('./pages/connector_document.tsx') },
  { path: '/connectors/:name', load: () => import('./pages/connector.tsx') },
  { path: '/connectors/:name/document', load: () => import('./pages/connector_document.tsx') },
  { path: '/brokers', load: () => import('./pages/brokers.tsx') },
  { path: '/postgres', load: () => import('./pages/postgres.tsx') },
  { path: '/groups', load: () => import('./pages/groups.tsx') },
  { path: '/groups/:group', load: () => import('./pages/group.tsx') },
  { path: '/groups/:group/queues/:queue', load: () => import('./pages/group_on_queue.tsx') },
  { path: '/dlq', load: () => import('./pages/dead_letters.tsx') },
  { path: '/dlq/:id', load: () => import('./pages/dead_letter.tsx') },
  { path: '/timers', load: () => import('./pages/timer_queues.tsx') },
  { path: '/timers/:queue', load: () => import('./pages/timers.tsx') },
  { path: '/timers/:queue/timer', load: () => import('./pages/timer.tsx') },
  { path: '/kv', load: () => import('./pages/namespaces.tsx') },
  { path: '/kv/:namespace', load: () => import('./pages/entries.tsx') },
  { path: '/kv/:namespace/entry', load: () => import('./pages/entry.tsx') },
];

export function routeOf(path: string): { route: Route; params: PageParams } | null {
  for (const route of ROUTES) {
    const params = matchPath(route.path, path);
    if (params !== null) return { route, params };
  }
  return null;
}

/** The item of the navigation that a path belongs to: the one with the longest beginning in common. */
export function currentItem(path: string): string | null {
  const items = NAVIGATION.flatMap(({ items: each }) => each.map(({ to }) => to));
  const fitting = items.filter((to) => path === to || (to !== '/' && path.startsWith(`${to}/`)));
  return fitting.sort((one, other) => other.length - one.length)[0] ?? null;
}
