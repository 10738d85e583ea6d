/**
 * The listener: one node:http server, hot routes first, Fastify behind them.
 *
 * Shutdown order: stop accepting, answer what is parked, let what is in flight finish (its connections end with
 * their answers), then cut what is left when the grace is over. Nothing is dropped in the middle before that.
 */
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { totalmem } from 'node:os';
import type { BrokerFace } from '../engine/types.ts';
import type { Log } from '../observability/log.ts';
import type { Metrics } from '../observability/metrics.ts';
import { Traffic } from '../observability/traffic.ts';
import { type AccessControl, OPEN_ACCESS } from './access/access.ts';
import { answerFault } from './answer.ts';
import { type App, createApp, type Route } from './app.ts';
import { type BodyLimits, BodyReceiver } from './body.ts';
import { Connections } from './connections.ts';
import { Fault } from './errors.ts';
import type { HotContext } from './hot/context.ts';
import { subscriptionMode } from './hot/pop.ts';
import { HOT_ROUTES, routeHot } from './hot/router.ts';
import { KnownPaths } from './methods.ts';
import type { Page } from './page.ts';
import { analyticsRoutes } from './routes/analytics.ts';
import { authRoutes } from './routes/auth.ts';
import { configureRoutes } from './routes/configure.ts';
import { type ConnectorsFace, connectorRoutes } from './routes/connectors.ts';
import { dlqRoutes } from './routes/dlq.ts';
import { fetchRoutes } from './routes/fetch.ts';
import { groupRoutes } from './routes/groups.ts';
import { kvRoutes } from './routes/kv.ts';
import { leaseRoutes } from './routes/lease.ts';
import { messageRoutes } from './routes/messages.ts';
import { openApiRoutes } from './routes/openapi.ts';
import { resourceRoutes } from './routes/resources.ts';
import { rootRoute } from './routes/root.ts';
import { standingRoutes } from './routes/standing.ts';
import { type PoolNumbers, type SealingNumbers, statusRoutes } from './routes/status.ts';
import { systemRoutes } from './routes/system.ts';
import { timerRoutes } from './routes/timers.ts';
import { traceRoutes } from './routes/traces.ts';
import { transactionRoutes } from './routes/transaction.ts';
import { splitTarget } from './target.ts';

export interface ServerOptions {
  broker: BrokerFace;
  metrics: Metrics;
  log: Log;
  version: string;
  serverId: string;
  /** Counts what passes; shared with the rate log. */
  traffic?: Traffic;
  /** Who may do what; default: everybody everything. */
  access?: AccessControl;
  /** QUEEN_MAX_BODY_BYTES. */
  bodyBytesMax?: number;
  /** How long `wait=true` waits when the caller sets no timeout, ms. */
  popTimeoutMs?: number;
  /** DEFAULT_SUBSCRIPTION_MODE, as the variable has it. */
  subscriptionMode?: string;
  /** Without them their routes are not there. */
  connectors?: ConnectorsFace;
  pool?: () => PoolNumbers;
  sealing?: () => SealingNumbers;
  /** The dashboard. Without it unknown paths are answered 404, whoever asks. */
  page?: Page;
  /** For tests; see `Timeouts` and `BodyLimits`. */
  timeouts?: Partial<Timeouts>;
  bodyLimits?: Partial<BodyLimits>;
}

/** All in ms. */
export interface Timeouts {
  /** From the first byte of a request to the end of its headers. */
  headers: number;
  /** From the first byte of a request to the last one of its body. */
  request: number;
  /** How long an idle connection stays open. Clients pool connections for up to 30 s. */
  keepAlive: number;
  /** How often the first two are checked. */
  check: number;
}

const TIMEOUTS: Timeouts = { headers: 20_000, request: 300_000, keepAlive: 65_000, check: 5_000 };
/** Enough for two names and a group of 255 characters, each of twelve encoded bytes, and a long token. */
const HEADER_BYTES_MAX = 32 * 1024;
const CONNECTIONS_MAX = 16_384;
const MIB = 1024 * 1024;

export interface HttpServer {
  /** All routes, in the order of their registration. */
  readonly routes: readonly Route[];
  /** Port 0: any free one. Rejects when the address is taken. */
  listen(port: number, host: string): Promise<{ host: string; port: number }>;
  /** Resolves when every connection is closed. */
  close(graceMs: number): Promise<void>;
}

export function createServer(options: ServerOptions): HttpServer {
  const traffic = options.traffic ?? new Traffic();
  const bodies = new BodyReceiver(bodyLimits(options));
  const access = options.access ?? OPEN_ACCESS;
  const { identify } = access;
  const { broker, log, metrics } = options;
  const connections = new Connections({
    refused: (reason) => traffic.refuse(reason),
    answered: (status) => {
      traffic.answers[Math.floor(status / 100)]!++;
    },
  });
  const context: HotContext = {
    broker,
    bodies,
    connections,
    identify,
    traffic,
    log,
    pop: {
      timeoutMs: options.popTimeoutMs ?? 30_000,
      subscriptionMode: subscriptionMode(options.subscriptionMode ?? null, 'new'),
    },
  };
  const routes: Route[] = [...HOT_ROUTES];
  const paths = new KnownPaths(routes);
  const app = createApp({
    methodsOf: (path) => paths.methodsOf(path),
    onRoute: (route) => routes.push(route),
    page: options.page,
    identify,
    bodies,
    traffic,
    log,
    serverFactory: (onward) => {
      const server = bareServer(options.timeouts, (request, response) => dispatch(request, response, onward));
      server.on('connection', (socket) => connections.opened(socket));
      return server;
    },
    parseError: (error, socket) => connections.parseError(error, socket),
  });

  function dispatch(
    request: IncomingMessage,
    response: ServerResponse,
    onward: (request: IncomingMessage, response: ServerResponse) => void,
  ): void {
    if (!connections.begin(response)) return;
    if (request.headers.expect !== undefined && !acceptExpectation(request, response, bodies)) return;
    if (routeHot(context, request, response)) return;
    if (request.url!.charCodeAt(0) !== 0x2f) {
      const { path, query } = splitTarget(request.url!);
      request.url = query === '' ? path : `${path}?${query}`;
    }
    // A body is JSON whatever its type says.
    request.headers['content-type'] = 'application/json';
    onward(request, response);
  }

  authRoutes(app, access);
  leaseRoutes(app, broker);
  configureRoutes(app, broker);
  resourceRoutes(app, broker);
  messageRoutes(app, broker.messages);
  dlqRoutes(app, broker.deadLetters);
  groupRoutes(app, broker.groups);
  fetchRoutes(app, broker.records, connections);
  traceRoutes(app, broker.traces);
  transactionRoutes(app, broker);
  kvRoutes(app, broker);
  systemRoutes(app, broker, options.serverId);
  standingRoutes(app, broker.statistics);
  analyticsRoutes(app, broker.statistics);
  timerRoutes(app, broker.timers);
  if (options.connectors !== undefined) connectorRoutes(app, options.connectors);
  statusRoutes(app, { ...options, traffic });
  openApiRoutes(app, routes, options.version);
  rootRoute(app, options.version, options.page);
  options.page?.register(app);
  registerMetrics(metrics, traffic, connections, bodies);
  return {
    routes,
    listen: (port, host) => listen(app, port, host),
    close: (graceMs) => {
      bodies.hurry();
      return close(app, connections, graceMs);
    },
  };
}

function bareServer(
  overrides: Partial<Timeouts> | undefined,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
): Server {
  const timeouts = { ...TIMEOUTS, ...overrides };
  const server = createHttpServer(
    {
      headersTimeout: timeouts.headers,
      requestTimeout: timeouts.request,
      keepAliveTimeout: timeouts.keepAlive,
      connectionsCheckingInterval: timeouts.check,
      maxHeaderSize: HEADER_BYTES_MAX,
      requireHostHeader: false,
      noDelay: true,
    },
    handle,
  );
  server.maxConnections = CONNECTIONS_MAX;
  server.on('checkContinue', handle);
  server.on('checkExpectation', handle);
  return server;
}

/** Asks for the body that the client holds back, unless it would be refused anyway. False: refused. */
function acceptExpectation(
  request: IncomingMessage,
  response: ServerResponse,
  bodies: BodyReceiver,
): boolean {
  if (request.headers.expect?.toLowerCase() !== '100-continue') {
    answerFault(response, new Fault('expectation_failed'));
    return false;
  }
  const tooLarge = Number(request.headers['content-length'] ?? 0) > bodies.limits.bodyBytesMax;
  if (!tooLarge && request.headers['content-encoding'] === undefined) response.writeContinue();
  return true;
}

function bodyLimits(options: ServerOptions): BodyLimits {
  const memory = Math.min(process.constrainedMemory() || Number.POSITIVE_INFINITY, totalmem());
  const bodyBytesMax = options.bodyBytesMax ?? 64 * MIB;
  return {
    bodyBytesMax,
    allBytesMax: Math.max(bodyBytesMax, Math.min(512 * MIB, Math.floor(memory / 4))),
    silenceMs: 15_000,
    pushPatienceMs: 2_000,
    patienceMs: 10_000,
    ...options.bodyLimits,
  };
}

function registerMetrics(
  metrics: Metrics,
  traffic: Traffic,
  connections: Connections,
  bodies: BodyReceiver,
): void {
  traffic.register(metrics);
  metrics.sources({
    queen_http_connections: () => connections.count,
    queen_http_requests_in_flight: () => connections.inFlight,
    queen_http_body_bytes: () => bodies.heldBytes,
  });
}

async function listen(app: App, port: number, host: string): Promise<{ host: string; port: number }> {
  await app.ready();
  const server = app.server;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port, host, backlog: 1024 }, () => {
      server.off('error', reject);
      resolve();
    });
  });
  const bound = server.address() as AddressInfo;
  return { host: bound.address, port: bound.port };
}

async function close(app: App, connections: Connections, graceMs: number): Promise<void> {
  const server = app.server;
  const closed = new Promise<void>((resolve) => {
    if (server.listening) server.close(() => resolve());
    else resolve();
  });
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, graceMs);
  });
  await Promise.race([connections.drain(), late]);
  clearTimeout(timer);
  // Every answer announced the end of its connection; what is still open is idle or out of time.
  server.closeIdleConnections();
  await Promise.race([closed, soon()]);
  server.closeAllConnections();
  await closed;
  await app.close();
}

/** Long enough for the last bytes of the last answers to leave. */
function soon(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, 100);
  });
}
