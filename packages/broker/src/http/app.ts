/**
 * The Fastify side of the wire: everything that is not push, pop or ack. Schemas are TypeBox and are applied as they
 * stand: nothing is coerced, filled in or removed behind a handler's back.
 */
import type { RequestListener, Server } from 'node:http';
import type { Socket } from 'node:net';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import {
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  fastify,
  type RawReplyDefaultExpression,
  type RawRequestDefaultExpression,
} from 'fastify';
import type { Log } from '../observability/log.ts';
import type { Traffic } from '../observability/traffic.ts';
import { accessOf } from './access/levels.ts';
import { answerFault, faultAnswer } from './answer.ts';
import type { Operation } from './api/operation.ts';
import { type BodyReceiver, ClientGone } from './body.ts';
import { Fault, faultOf, type Wording } from './errors.ts';
import type { Identify, Identity, Level } from './identity.ts';
import { MANAGEMENT_BODY_BYTES_MAX, parseJsonBody } from './json_body.ts';
import type { Page } from './page.ts';
import { splitTarget } from './target.ts';
import { AJV, buildValidator, validationFault } from './validation.ts';

declare module 'fastify' {
  interface FastifyRequest {
    identity: Identity;
  }
  interface FastifyContextConfig {
    /** What the route asks of its caller, for the reader of the route: the table of levels decides, and must agree. */
    level?: Level;
    wording?: Wording;
    /** A body that is no JSON object counts as none. */
    lenientBody?: boolean;
    bodyBytesMax?: number;
    /** A body over it is answered in the envelope too, not in plain text. */
    envelopeAlways?: boolean;
    /** The body stays bytes (see raw_body.ts), as large as any may be. */
    rawBody?: boolean;
    /** A body that finds no room is refused as a push is. */
    bodyLane?: 'push';
  }
}

export type App = FastifyInstance<
  Server,
  RawRequestDefaultExpression<Server>,
  RawReplyDefaultExpression<Server>,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

export interface Route {
  method: string;
  /** As registered: `:name` for a segment, `*` for the rest. */
  path: string;
  /** Undefined: the route is no part of the interface, but serves a page. */
  operation?: Operation | undefined;
}

export interface AppOptions {
  identify: Identify;
  bodies: BodyReceiver;
  traffic: Traffic;
  log: Log;
  /** Gets Fastify's request listener and answers with the server that will call it. */
  serverFactory: (handler: RequestListener) => Server;
  /** The methods of a path, for `Allow`; null: there is no such path. */
  methodsOf: (path: string) => string | null;
  /** What answers a browser where no route does. */
  page?: Page | undefined;
  /** Hears of every route. */
  onRoute: (route: Route) => void;
  parseError: (error: NodeJS.ErrnoException, socket: Socket) => void;
}

/** A path of names is long when everything in it is percent-encoded: 255 characters of twelve bytes each. */
const PARAM_BYTES_MAX = 16 * 1024;

export function createApp(options: AppOptions): App {
  const app = fastify({
    logger: false,
    serverFactory: (handler) => options.serverFactory(handler as RequestListener),
    clientErrorHandler: (error, socket) => options.parseError(error, socket as Socket),
    routerOptions: { maxParamLength: PARAM_BYTES_MAX },
    ajv: AJV,
    schemaController: { compilersFactory: { buildValidator } },
    frameworkErrors: (_error, _request, reply) => {
      options.traffic.refuse('malformed_url');
      send(reply, new Fault('malformed_url'));
    },
  }).withTypeProvider<TypeBoxTypeProvider>();

  app.decorateRequest('identity', null as unknown as Identity);
  app.addHook('onRoute', ({ method, url, config, schema }) => {
    const operation = schema?.operationId === undefined ? undefined : (schema as Operation);
    for (const each of [method].flat()) {
      options.onRoute({ method: each, path: url, operation });
      const { level } = accessOf(each, url);
      if (config?.level === undefined || config.level === level) continue;
      throw new Error(`${each} ${url} is for ${config.level}, but the table of levels says ${level}`);
    }
  });
  app.addHook('onRequest', async (request) => {
    const path = request.routeOptions.url ?? splitTarget(request.raw.url!).path;
    request.identity = await options.identify(request.raw, accessOf(request.method, path));
  });
  app.addHook('preValidation', async (request) => {
    if (request.routeOptions.schema?.noBodyIsEmpty === true) request.body ??= {};
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', (request: FastifyRequest) =>
    readBody(options.bodies, request),
  );
  app.setNotFoundHandler((request, reply) => {
    const methods = options.methodsOf(splitTarget(request.raw.url!).path);
    // A route of files has the method, and not the file.
    if (methods === null || methods.split(', ').includes(request.method)) {
      if (options.page?.answers(request)) return options.page.send(reply);
      return send(reply, new Fault('no_such_route'));
    }
    reply.header('Allow', methods);
    send(reply, new Fault('method_not_allowed', { message: `Method Not Allowed (expected ${methods})` }));
  });
  app.setErrorHandler((error, request, reply) => refuse(options, error, request, reply));
  return app as App;
}

async function readBody(bodies: BodyReceiver, request: FastifyRequest): Promise<unknown> {
  // Nobody is going to look at it.
  if (request.is404) return undefined;
  const { lenientBody, bodyBytesMax, rawBody, bodyLane } = request.routeOptions.config;
  const bytesMax = bodyBytesMax ?? (rawBody === true ? Number.POSITIVE_INFINITY : MANAGEMENT_BODY_BYTES_MAX);
  const body = await bodies.receive(request.raw, { lane: bodyLane ?? 'other', bytesMax });
  if (rawBody === true) return body;
  try {
    const value = parseJsonBody(body.bytes);
    const said = typeof value === 'object' && !Array.isArray(value);
    return lenientBody === true && !said ? undefined : value;
  } catch (error) {
    if (lenientBody === true) return undefined;
    throw error;
  } finally {
    body.release();
  }
}

function refuse(options: AppOptions, error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const { wording, envelopeAlways } = request.routeOptions.config;
  const fault = frameworkFault(error) ?? faultOf(error, wording);
  if (fault.status >= 500) {
    options.log.error(
      { err: fault.cause ?? fault, code: fault.code, path: request.routeOptions.url },
      'request failed',
    );
  } else options.traffic.refuse(fault.code);
  if (request.is404 && options.page?.answers(request)) {
    if (fault.status === 401) {
      void options.page.send(reply, fault.status);
      return;
    }
    // A link from another site to a path of the page: the page asks for what it shows by itself.
    if (fault.kind === 'cross_site') {
      void options.page.send(reply);
      return;
    }
  }
  if (error instanceof ClientGone || reply.raw.destroyed) {
    reply.hijack();
    return;
  }
  if (!request.raw.complete) {
    // Part of the body is still on its way: this answer must outlive the connection (see answerFault).
    reply.hijack();
    answerFault(reply.raw, fault, envelopeAlways);
    return;
  }
  send(reply, fault, envelopeAlways);
}

function send(reply: FastifyReply, fault: Fault, envelopeAlways?: boolean): void {
  const { headers, body } = faultAnswer(fault, envelopeAlways);
  reply.code(fault.status).headers(headers).send(body);
}

/** Fastify's own errors, in our words. Null: it is not one of those. */
function frameworkFault(error: unknown): Fault | null {
  const { validation, validationContext, statusCode } = error as FastifyError;
  if (validation !== undefined) return validationFault(validation[0]!, validationContext ?? 'body');
  if (error instanceof Fault || typeof statusCode !== 'number' || statusCode < 400 || statusCode >= 500)
    return null;
  // A path that leads out of the directory of the files: there is nothing.
  if (statusCode === 403) return new Fault('no_such_route');
  return new Fault('malformed_http', { message: (error as FastifyError).message });
}
