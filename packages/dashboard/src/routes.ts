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
];

export const ROUTES: readonly Route[] = [{ path: '/', load: () => import('./pages/overview.tsx') }];

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
