/** A whole broker in the test's own process: the engine on a real database, and the wire over it. */
import { ConnectorsApi } from '../../packages/broker/src/connectors/postgres/manager/api.ts';
import type { Broker, EngineOptions, EngineSettings } from '../../packages/broker/src/engine/broker.ts';
import {
  type BrokerFace,
  DEFAULT_TENANT,
  type PopAnswer,
  type PopRequest,
} from '../../packages/broker/src/engine/types.ts';
import { createServer, type ServerOptions } from '../../packages/broker/src/http/server.ts';
import { silentLog } from '../../packages/broker/src/observability/log.ts';
import { Metrics } from '../../packages/broker/src/observability/metrics.ts';
import { type Database, statement } from '../../packages/broker/src/store/database.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { openBroker } from '../kit/engine.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';
import { brokersWanted, startRoundRobin } from '../kit/round_robin.ts';
import { type Answer, Client } from './client.ts';

export interface Live {
  readonly database: TestDatabase;
  readonly broker: Broker;
  readonly client: Client;
  /** Any request, with headers of the test's own. */
  ask<T = Record<string, unknown>>(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<Answer<T>>;
  stop(): Promise<void>;
}

export interface LiveOptions {
  /** Another broker's: a test that starts its brokers one by one gets no more of them. */
  database?: TestDatabase;
  settings?: Partial<EngineSettings>;
  engine?: Partial<EngineOptions>;
  server?: Partial<ServerOptions>;
  /** With the API of connectors; none runs. */
  connectors?: boolean;
  /** Why the test needs one broker even where two behind a round-robin are asked for. */
  alone?: string;
  /** Parts of the face that the wire is to see instead of the broker's. */
  face?: (broker: Broker) => Partial<BrokerFace>;
}

/** It goes away with the test. */
export async function openLive(t: Cleanup, options: LiveOptions = {}): Promise<Live> {
  const database = options.database ?? (await freshDatabase(t));
  const single = await openOne(database, options);
  const all = [single];
  while (options.database === undefined && all.length < brokersWanted(options.alone))
    all.push(await openOne(database, options));
  const { broker } = single;
  let stopped: Promise<void> | null = null;
  const stop = () => {
    stopped ??= Promise.all(all.map((one) => one.stop())).then(() => {});
    return stopped;
  };
  atEnd(t, stop);
  const { url } =
    all.length === 1
      ? single
      : await startRoundRobin(
          all.map((one) => one.url),
          t,
        );
  return {
    database,
    broker,
    client: new Client(url),
    stop,
    async ask(method, path, body, headers = {}) {
      const response = await fetch(url + path, {
        method,
        headers: { 'Content-Type': 'application/json', ...headers },
        ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      });
      const text = await response.text();
      return { status: response.status, body: text === '' ? null : JSON.parse(text) };
    },
  };
}

async function openOne(database: TestDatabase, options: LiveOptions) {
  const broker = await openBroker(database, options.settings, options.engine);
  const server = createServer({
    broker: { ...broker, ...options.face?.(broker) },
    metrics: new Metrics(),
    log: silentLog,
    version: 'test',
    serverId: 'test',
    ...(options.connectors === true ? { connectors: connectorsOf(broker) } : {}),
    ...options.server,
  });
  const { port } = await server.listen(0, '127.0.0.1');
  return {
    broker,
    url: `http://127.0.0.1:${port}`,
    stop: () => server.close(50).then(() => broker.stop()),
  };
}

function connectorsOf(broker: Broker): ConnectorsApi {
  return new ConnectorsApi({
    run: (work) => broker.admission.run('maintenance', () => work(broker.db)),
    sealingKey: null,
    allowPrivate: true,
    statusOf: () => null,
    overview: () => ({}),
    changed() {},
  });
}

const byText = new Map<string, ReturnType<typeof statement>>();

/** Any SQL of a test. */
export function sql<Row extends object>(
  db: Pick<Database, 'query'>,
  text: string,
  params: (string | number | boolean | Buffer | null)[] = [],
): Promise<Row[]> {
  let known = byText.get(text);
  if (known === undefined) {
    known = statement(`live_test_${byText.size}`, text);
    byText.set(text, known);
  }
  return db.query<Row>(known, params);
}

/** Lets the statement of that name fail until the answer is called. */
export function failStatement(live: Live, name: string, error: Error): () => void {
  const { db } = live.broker;
  const whole = db.query;
  db.query = ((statement: { name: string }, ...rest: [never, never]) =>
    statement.name === name
      ? Promise.reject(error)
      : whole.call(db, statement as never, ...rest)) as typeof whole;
  return () => {
    db.query = whole;
  };
}

/** A pop at the engine's face: a named group that reads everything, without waiting. */
export function popRequest(queue: string, group: string, over: Partial<PopRequest> = {}): PopRequest {
  return {
    tenant: DEFAULT_TENANT,
    scope: { kind: 'queue', queue },
    group,
    batch: 100,
    partitions: 0,
    autoAck: false,
    waitMs: 0,
    leaseSeconds: 0,
    subscriptionMode: 'all',
    subscriptionFrom: null,
    conflation: null,
    autopilot: false,
    signal: null,
    ...over,
  };
}

/** The payloads of an answer, by partition. */
export function payloads(answer: PopAnswer): Record<string, unknown[]> {
  const found: Record<string, unknown[]> = {};
  for (const { partition, messages } of answer.claims) {
    found[partition] = messages.map(({ payload }) => JSON.parse(payload.toString()));
  }
  return found;
}
