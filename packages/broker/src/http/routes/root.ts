/** GET /: the dashboard, and for programs that ask for JSON where to go from here. */
import type { App } from '../app.ts';
import { type Page, wantsPage } from '../page.ts';

/** Without a page everybody gets the JSON. */
export function rootRoute(app: App, version: string, page: Page | undefined): void {
  app.get('/', { config: { level: 'public' } }, async (request, reply) => {
    reply.header('Vary', 'Accept');
    if (page !== undefined && wantsPage(request)) return page.send(reply);
    return {
      name: 'Queen',
      version,
      links: {
        health: '/health',
        live: '/health/live',
        metrics: '/metrics/prometheus',
        status: '/api/v1/status',
        overview: '/api/v1/resources/overview',
        docs: '/docs',
        openapi: '/openapi.json',
      },
    };
  });
}
