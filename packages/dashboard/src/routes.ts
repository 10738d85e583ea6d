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
    ],
  },
  {
    title: 'System',
    items: [
      { text: 'Brokers', to: '/brokers', icon: 'brokers' },
      { text: 'PostgreSQL', to: '/postgres', icon: 'database' },
    ],
  },
];

export const ROUTES: readonly Route[] = [
  { path: '/', load: () => import('./pages/overview.tsx') },
  { path: '/queues', load: () => import('./pages/queues.tsx') },
  { path: '/queues/:queue', load: () => import('./pages/queue.tsx') },
  { path: '/queues/:queue/settings', load: () => import('./pages/queue_settings.tsx') },
  { path: '/queues/:queue/partitions/:partition', load: () => import('./pages/partition.tsx') },
  { path: '/messages', load: () => import('./pages/messages.tsx') },
  { path: '/messages/:partitionId/:transactionId', load: () => import('./pages/message.tsx') },
  { path: '/brokers', load: () => import('./pages/brokers.tsx') },
  { path: '/postgres', load: () => import('./pages/postgres.tsx') },
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
