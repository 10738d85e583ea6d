/** Which methods a path has: so that a request with another one learns that the path is right. */
import type { Route } from './app.ts';

export class KnownPaths {
  readonly #routes: readonly Route[];
  #patterns: { pattern: RegExp; methods: string[] }[] | null = null;

  /** The list may still grow until the first question. */
  constructor(routes: readonly Route[]) {
    this.#routes = routes;
  }

  /** For the header `Allow`; null: no such path. */
  methodsOf(path: string): string | null {
    this.#patterns ??= patternsOf(this.#routes);
    const methods = new Set<string>();
    for (const { pattern, methods: allowed } of this.#patterns) {
      if (pattern.test(path)) for (const method of allowed) methods.add(method);
    }
    return methods.size === 0 ? null : [...methods].sort().join(', ');
  }
}

function patternsOf(routes: readonly Route[]): { pattern: RegExp; methods: string[] }[] {
  const methods = new Map<string, string[]>();
  for (const { method, path } of routes) methods.set(path, [...(methods.get(path) ?? []), method]);
  return [...methods].map(([path, allowed]) => {
    const source = path
      .split('/')
      .map((part) =>
        part === '*' ? '.+' : part.startsWith(':') ? '[^/]+' : part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'),
      )
      .join('/');
    return { pattern: new RegExp(`^${source}$`), methods: allowed };
  });
}
