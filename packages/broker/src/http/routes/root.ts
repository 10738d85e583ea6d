/** GET /: where to go from here, until a page is served there. */
import type { App } from '../app.ts';

export function rootRoute(app: App, version: string): void {
  app.get('/', { config: { level: 'public' } }, async () => ({
    name: 'Queen',
    version,
    links: {
      health: '/health',
      live: '/health/live',
      metrics: '/metrics/prometheus',
      status: '/api/v1/status',
      overview: '/api/v1/resources/overview',
      docs: 'docs/http.md',
    },
  }));
}
