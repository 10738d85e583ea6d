/** GET /openapi.json, and GET /docs: the same for people. Public, since they say nothing about anybody's data. */
import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { openApiDocument } from '../api/document.ts';
import { docs, openApi } from '../api/system.ts';
import type { App, Route } from '../app.ts';
import { type Document, docsPage } from '../docs/page.ts';

interface Rendered {
  readonly bytes: Buffer;
  readonly zipped: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

const open = { level: 'public' } as const;
const compressed = promisify(gzip);

/**
 * Both are made when they are first asked for, since that takes a tenth of a second, and kept.
 *
 * @param routes of the whole broker; complete before the first request
 */
export function openApiRoutes(app: App, routes: readonly Route[], version: string): void {
  let document: Record<string, unknown> | undefined;
  const documentOnce = () => {
    document ??= openApiDocument(routes, version);
    return document;
  };
  const json = once(() => render(JSON.stringify(documentOnce()), 'application/json', {}));
  const page = once(() => {
    const { html, policy } = docsPage(documentOnce() as unknown as Document);
    return render(html, 'text/html; charset=utf-8', { 'Content-Security-Policy': policy });
  });

  app.get('/openapi.json', { config: open, schema: openApi }, async (request, reply) =>
    send(request, reply, await json()),
  );
  app.get('/docs', { config: open, schema: docs }, async (request, reply) =>
    send(request, reply, await page()),
  );
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

async function render(text: string, type: string, more: Record<string, string>): Promise<Rendered> {
  const bytes = Buffer.from(text);
  const zipped = await compressed(bytes);
  const tag = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  const headers = {
    'Content-Type': type,
    'Cache-Control': 'no-cache',
    'X-Content-Type-Options': 'nosniff',
    Vary: 'Accept-Encoding',
    ETag: `W/"${tag}"`,
    ...more,
  };
  return { bytes, zipped, headers };
}

function send(request: FastifyRequest, reply: FastifyReply, { bytes, zipped, headers }: Rendered) {
  reply.headers(headers);
  if (matches(request.headers['if-none-match'], headers.ETag!)) return reply.code(304).send();
  if (!accepts(request.headers['accept-encoding'], 'gzip')) return reply.send(bytes);
  return reply.header('Content-Encoding', 'gzip').send(zipped);
}

/** Weakly, as a GET may. */
function matches(header: string | undefined, tag: string): boolean {
  const given = (header ?? '').split(',').map((each) => each.trim().replace(/^W\//, ''));
  return given.includes('*') || given.includes(tag.replace(/^W\//, ''));
}

function accepts(header: string | undefined, coding: string): boolean {
  return (header ?? '').split(',').some((each) => {
    const [name, ...parameters] = each.split(';').map((part) => part.trim().toLowerCase());
    return name === coding && !parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter));
  });
}
