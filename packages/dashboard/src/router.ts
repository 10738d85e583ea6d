/** The page's own addresses, over the browser's history: links are plain `<a href>`. */
import { useMemo } from 'preact/hooks';
import { store, useStore } from './store.ts';

export interface Place {
  path: string;
  search: string;
}

const here = (): Place => ({ path: location.pathname, search: location.search });
const place = store<Place>(here());

/** Whether a path is one of the page's; the rest of the links are the browser's. Set by the shell. */
let isOurs: (path: string) => boolean = () => false;

export function startRouter(ours: (path: string) => boolean): void {
  isOurs = ours;
  addEventListener('popstate', () => place.set(here()));
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest('a');
    if (
      link === null ||
      link.target !== '' ||
      link.hasAttribute('download') ||
      link.origin !== location.origin
    )
      return;
    // Within the page the browser scrolls.
    if (link.hash !== '' && link.pathname === location.pathname && link.search === location.search) return;
    if (!isOurs(link.pathname)) return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
}

/** Goes to a path with its query. `replace`: without a step in the history, as for what is typed into a filter. */
export function navigate(to: string, { replace = false }: { replace?: boolean } = {}): void {
  if (to === location.pathname + location.search) return;
  if (replace) history.replaceState(null, '', to);
  else history.pushState(null, '', to);
  place.set(here());
}

export function usePlace(): Place {
  return useStore(place);
}

/**
 * The query of the address, and how to change it: what a page shows (filters, which page of a table) lives there, so that
 * links and the back button keep it. Null, undefined and '' remove a value.
 */
export function useSearch(): [
  URLSearchParams,
  (changes: Record<string, string | number | null | undefined>, options?: { replace?: boolean }) => void,
] {
  const { search } = usePlace();
  return useMemo(() => {
    const change = (
      changes: Record<string, string | number | null | undefined>,
      options: { replace?: boolean } = {},
    ) => {
      const next = new URLSearchParams(location.search);
      for (const [name, value] of Object.entries(changes)) {
        if (value === null || value === undefined || value === '') next.delete(name);
        else next.set(name, String(value));
      }
      const text = next.toString();
      navigate(location.pathname + (text === '' ? '' : `?${text}`), options);
    };
    return [new URLSearchParams(search), change] as const;
  }, [search]) as ReturnType<typeof useSearch>;
}

/** The names in a path by its pattern (`/queues/:queue`); null: it does not fit. */
export function matchPath(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split('/');
  const given = path.split('/');
  if (wanted.length !== given.length) return null;
  const names: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    if (!part.startsWith(':')) {
      if (part !== given[index]) return null;
      continue;
    }
    try {
      names[part.slice(1)] = decodeURIComponent(given[index]!);
    } catch {
      return null;
    }
  }
  return names;
}
