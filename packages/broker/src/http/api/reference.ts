/** Every route as Markdown: the table of docs/routes.md, rendered by `npm run docs`. */
import { silentLog } from '../../observability/log.ts';
import { Metrics } from '../../observability/metrics.ts';
import { accessOf } from '../access/levels.ts';
import type { Route } from '../app.ts';
import { createServer } from '../server.ts';
import { TAGS } from './operation.ts';

/** The whole page docs/routes.md; a test keeps the file equal to it. */
export function routesPage(routes: readonly Route[]): string {
  const sections = Object.entries(TAGS).map(([tag, about]) => {
    const rows = routes
      .filter(({ method, operation }) => operation?.tag === tag && method !== 'HEAD')
      .map(({ method, path, operation }) => {
        const { level } = accessOf(method, path);
        return `| ${method} | \`${path}\` | ${level} | ${operation!.summary} |`;
      });
    return `## ${tag}\n\n${about}\n\n| | | Role | |\n|---|---|---|---|\n${rows.join('\n')}\n`;
  });
  return `# Routes

Every route, with the role that it takes where the broker asks for tokens: [access](access.md). What each takes and answers stands at
\`/docs\` of a running broker, and for programs at \`/openapi.json\`; how they are used in [the HTTP interface](http.md).

This page is rendered from what the broker registers: \`npm run docs\`.

${sections.join('\n')}`;
}

/** What a broker with everything registers. Nothing is asked of what it would work with. */
export function allRoutes(): readonly Route[] {
  const { routes } = createServer({
    broker: {} as never,
    metrics: new Metrics(),
    log: silentLog,
    version: '',
    serverId: '',
    connectors: { documentSchema: {} } as never,
  });
  return routes;
}

if (import.meta.main) process.stdout.write(routesPage(allRoutes()));
