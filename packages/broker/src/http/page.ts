/**
 * The dashboard: files that `npm run build -w packages/dashboard` made, served from where they lie. Its page answers
 * every GET that no route answers, since the page's own paths (`/queues/orders`) mean nothing to the broker. It holds no
 * data and so no secret: what it shows, it asks for with its user's token.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import fastifyStatic from '@fastify/static';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { App } from './app.ts';
import { splitTarget } from './target.ts';

/** Everything comes from here, nothing is inline, nobody frames it. Charts place their parts through the DOM's own calls. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "font-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const YEAR_MS = 365 * 24 * 3_600_000;
/** Paths that are never the page's, whatever they lack. */
const NOT_THE_PAGE = /^\/(api|auth|assets|internal|streams)(\/|$)|^\/favicon/;

const NOT_BUILT = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Queen</title></head>
<body><h1>Queen</h1><p>The broker runs. Its dashboard is not built, or cannot be read: run <code>npm run build -w packages/dashboard</code>
in the repository and load this page again.</p><p><a href="/health">Health</a>, <a href="/metrics/prometheus">metrics</a></p>
</body></html>
`;

export class Page {
  readonly #directory: string;

  /** `directory` need not exist yet: it is looked for with each request. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** The files that never change under their names, and the icon. */
  register(app: App): void {
    app.register(fastifyStatic, {
      root: join(this.#directory, 'assets'),
      prefix: '/assets/',
      preCompressed: true,
      immutable: true,
      maxAge: YEAR_MS,
      index: false,
      acceptRanges: false,
      setHeaders: (reply) => reply.header('X-Content-Type-Options', 'nosniff'),
      suppressWarning: true,
    });
    app.get('/favicon.svg', { config: { level: 'public' } }, (_request, reply) =>
      reply.sendFile('favicon.svg', this.#directory, {
        maxAge: 24 * 3_600_000,
        immutable: false,
        acceptRanges: false,
      }),
    );
  }

  /** Whether a request that no route answers is for the page. Who asks for JSON and nothing else gets the error. */
  answers(request: FastifyRequest): boolean {
    if (request.method !== 'GET' && request.method !== 'HEAD') return false;
    return !NOT_THE_PAGE.test(splitTarget(request.raw.url!).path) && wantsPage(request);
  }

  /**
   * Sends it. A status of 401 still brings the page: a browser that opens one of its paths cannot send a token, and
   * the page asks for one.
   */
  async send(reply: FastifyReply, status = 200): Promise<FastifyReply> {
    reply.header('Content-Security-Policy', POLICY);
    reply.header('X-Content-Type-Options', 'nosniff');
    reply.header('Referrer-Policy', 'same-origin');
    reply.header('Cache-Control', 'no-cache');
    if (status === 401) reply.header('WWW-Authenticate', 'Bearer');
    return reply
      .code(status)
      .type('text/html; charset=utf-8')
      .send(await this.#text());
  }

  async #text(): Promise<string> {
    try {
      return await readFile(join(this.#directory, 'index.html'), 'utf8');
    } catch {
      return NOT_BUILT;
    }
  }
}

/** Programs that name JSON, and not HTML, among what they accept are no browsers. */
export function wantsPage(request: FastifyRequest): boolean {
  const accept = request.headers.accept?.toLowerCase() ?? '*/*';
  return accept.includes('text/html') || !accept.includes('application/json');
}
