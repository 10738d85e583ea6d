/** A sink over a real engine and a real target, run as the manager runs it, with everything that it reports. */
import { randomUUID } from 'node:crypto';
import { connect, createServer, type Socket } from 'node:net';
import { atEnd, type Cleanup } from '../../../../../test/kit/cleanup.ts';
import { openBroker } from '../../../../../test/kit/engine.ts';
import { freshDatabase, type TestDatabase } from '../../../../../test/kit/postgres.ts';
import { until } from '../../../../../test/kit/until.ts';
import { Upstream, type UpstreamDatabase } from '../../../../../test/kit/upstream.ts';
import { parseWritten } from '../../../src/connectors/postgres/document/parse.ts';
import type {
  ConnectorDocument,
  SinkDocument,
  SourceDocument,
} from '../../../src/connectors/postgres/document/types.ts';
import { ConnectorFault } from '../../../src/connectors/postgres/fault.ts';
import { PgDialler } from '../../../src/connectors/postgres/session/dialler.ts';
import type { Dialler, SqlSession } from '../../../src/connectors/postgres/session/types.ts';
import { SinkUnit } from '../../../src/connectors/postgres/sink/unit.ts';
import { SourceUnit } from '../../../src/connectors/postgres/source/unit.ts';
import type {
  Phase,
  Unit,
  UnitContext,
  UnitCounter,
  UnitStatus,
} from '../../../src/connectors/postgres/unit.ts';
import type { Broker } from '../../../src/engine/broker.ts';
import { systemClock } from '../../../src/engine/clock.ts';
import type { BrokerFace, TenantId } from '../../../src/engine/types.ts';
import { silentLog } from '../../../src/store/log.ts';

export { until };

export const STORE_ID = '11111111-2222-3333-4444-555555555555';

type Major = 15 | 17 | 18;

/** Which server the sinks of a run write to: `QUEEN_TEST_TARGET=15` for all files, else what the file asks for. */
function targetMajor(asked: Major): Major {
  const wanted = Number(process.env.QUEEN_TEST_TARGET || asked);
  return wanted === 15 || wanted === 17 ? wanted : 18;
}

export interface StartOptions {
  name?: string;
  /** In front of the target. */
  port?: number;
  user?: string;
  broker?: Partial<BrokerFace>;
  watch?: (text: string, session: SqlSession) => Promise<void> | undefined;
  shutdownGraceMs?: number;
}

export class SinkRig {
  readonly broker: Broker;
  readonly target: UpstreamDatabase;
  /** Of this test alone, so that tests can share a broker. */
  readonly tenant = randomUUID();
  readonly #t: Cleanup;
  readonly #units: RunningUnit[] = [];

  private constructor(broker: Broker, target: UpstreamDatabase, t: Cleanup) {
    this.broker = broker;
    this.target = target;
    this.#t = t;
  }

  static async open(t: Cleanup, { broker, upstream }: Shared): Promise<SinkRig> {
    return new SinkRig(broker, await upstream.database(t), t);
  }

  sql(text: string, params?: unknown[]) {
    return this.target.sql(text, params);
  }

  document(sink: Record<string, unknown>, { name = 'copy', port, user }: StartOptions = {}): SinkDocument {
    const { host, port: own, user: owner } = this.target.server;
    const connection = {
      host,
      port: port ?? own,
      database: this.target.name,
      user: user ?? owner,
      sslMode: 'disable',
    };
    const { document } = parseWritten({ kind: 'sink', connection, sink: { queue: 'q', ...sink } }, name);
    return document as SinkDocument;
  }

  /** A source of the same database, until the test ends or it is stopped. */
  startSource(source: Record<string, unknown>, name = 'origin'): RunningUnit {
    const { host, port, user } = this.target.server;
    const connection = { host, port, database: this.target.name, user, sslMode: 'disable' };
    const { document } = parseWritten({ kind: 'source', connection, source }, name);
    const dialler = new PgDialler({
      connection: document.connection,
      password: () => '',
      allowPrivate: true,
    });
    return this.#run(
      new RunningUnit(this.tenant, document, this.broker, dialler, 10_000, (context) => {
        return new SourceUnit(context as UnitContext<SourceDocument>);
      }),
    );
  }

  /** Runs it until the test ends or it is stopped. */
  start(sink: Record<string, unknown>, options: StartOptions = {}): RunningUnit {
    const document = this.document(sink, options);
    const { connection } = document;
    const dialler = new PgDialler({ connection, password: () => '', allowPrivate: true });
    return this.#run(
      new RunningUnit(
        this.tenant,
        document,
        { ...this.broker, ...options.broker } as BrokerFace,
        options.watch === undefined ? dialler : watched(dialler, options.watch),
        options.shutdownGraceMs ?? 10_000,
        (context) => new SinkUnit(context as UnitContext<SinkDocument>),
      ),
    );
  }

  #run(running: RunningUnit): RunningUnit {
    this.#units.push(running);
    atEnd(this.#t, () => running.stop());
    return running;
  }

  /** `payload`: JSON text, or what JSON.stringify makes of anything else. */
  async push(items: readonly (readonly [partition: string, payload: unknown])[], queue = 'q'): Promise<void> {
    const results = await this.broker.push({
      tenant: this.tenant,
      producerSub: null,
      items: items.map(([partition, payload]) => ({
        queue,
        partition,
        payload: Buffer.from(typeof payload === 'string' ? payload : JSON.stringify(payload)),
        transactionId: null,
      })),
    });
    const bad = results.find(({ status }) => status !== 'queued');
    if (bad !== undefined) throw new Error(`not queued: ${bad.status} ${bad.error}`);
  }

  /** Messages of the queue that are leased. */
  async held(): Promise<number> {
    const depth = await this.broker.queueDepth(this.tenant, 'q', 'pg-copy');
    return depth!.partitions.reduce((sum, { processing }) => sum + processing, 0);
  }

  /** The group has seen everything that is in the queue. */
  async drained(queue = 'q', group = 'pg-copy'): Promise<void> {
    const drained = async () => {
      const depth = await this.broker.queueDepth(this.tenant, queue, group);
      return depth?.partitions.every(({ pending, processing }) => pending + processing === 0) === true;
    };
    await until(`${queue} is drained`, drained).catch(async (error: unknown) => {
      throw new Error(`${error}: ${await this.trouble()}`);
    });
  }

  /** What the units of this test say of themselves. */
  async trouble(): Promise<string> {
    const units = this.#units.map(({ fault, status }) => {
      const errors = status.errors.slice(-2).map(({ code, message }) => `${code}: ${message}`);
      return `${status.phase} ${JSON.stringify(status.counters)} ${fault ?? ''} ${errors.join('; ')}`;
    });
    const letters = (await this.letters()).map(({ error }) => error);
    return [...units, ...letters.slice(0, 3)].join(' | ').slice(0, 2000);
  }

  /** Newest last. */
  async letters(queue = 'q'): Promise<{ partition: string; error: string; payload: string }[]> {
    const filter = { queue, partition: null, group: null, fromMicros: null, toMicros: null };
    const { letters } = await this.broker.deadLetters.list(this.tenant, {
      ...filter,
      limit: 1000,
      skip: 0,
      payloads: true,
    });
    return letters
      .map(({ partition, error, payload }) => ({ partition, error: error ?? '', payload: String(payload) }))
      .reverse();
  }
}

/** What the manager keeps of a unit. */
export class StatusBook implements UnitStatus {
  phase: Phase = 'stopped';
  readonly phases: Phase[] = [];
  readonly errors: ConnectorFault[] = [];
  readonly shown: Record<string, unknown> = {};
  readonly counters: Partial<Record<UnitCounter, number>> = {};

  enter(phase: Phase): void {
    this.phase = phase;
    this.phases.push(phase);
  }

  fail(fault: ConnectorFault): void {
    this.errors.push(fault);
    this.count('errors', 1);
    this.enter('error');
  }

  show(facts: Readonly<Record<string, unknown>>): void {
    Object.assign(this.shown, facts);
  }

  count(what: UnitCounter, by: number): void {
    this.counters[what] = this.of(what) + by;
  }

  of(what: UnitCounter): number {
    return this.counters[what] ?? 0;
  }

  gauge(): void {}
  owner(): void {}
}

export class RunningUnit {
  readonly status = new StatusBook();
  /** What it ended with; null while it runs, or when it ended in order. */
  fault: unknown = null;
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;

  constructor(
    tenant: TenantId,
    document: ConnectorDocument,
    broker: BrokerFace,
    dialler: Dialler,
    shutdownGraceMs: number,
    create: (context: UnitContext<ConnectorDocument>) => Unit,
  ) {
    const unit = create({
      tenant,
      document,
      broker,
      dialler,
      status: this.status,
      clock: systemClock,
      log: silentLog,
      node: 'node-1',
      storeId: STORE_ID,
      applicationName: 'queen-pg/test',
      leaseTtlMs: 10_000,
      shutdownGraceMs,
      removeDocument: () => Promise.resolve(),
    });
    this.#ended = unit.run(this.#stop.signal).catch((error: unknown) => {
      this.fault = error;
    });
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#ended;
  }

  /** The fault that it ends with. */
  async failed(): Promise<ConnectorFault> {
    await this.#ended;
    if (!(this.fault instanceof ConnectorFault)) throw new Error(`no fault of a connector: ${this.fault}`);
    return this.fault;
  }
}

/** Calls `watch` before each statement; what it answers is waited for. */
function watched(dialler: Dialler, watch: NonNullable<StartOptions['watch']>): Dialler {
  return {
    replication: (name) => dialler.replication(name),
    async sql(name, role, signal) {
      const session = await dialler.sql(name, role, signal);
      const query = session.query.bind(session);
      session.query = (text, params, options) => {
        const wait = watch(text, session);
        return wait === undefined
          ? query(text, params, options)
          : wait.then(() => query(text, params, options));
      };
      return session;
    },
  };
}

/** In front of a target: forwards everything, and on demand swallows the answer to the next COMMIT and cuts the connection. */
export async function commitCutter(t: Cleanup, to: { host: string; port: number }) {
  const state = { armed: 0, cuts: 0 };
  const sockets = new Set<Socket>();
  const listener = createServer((client) => {
    const server = connect(to.port, to.host);
    let cutting = false;
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on('error', () => {});
      socket.on('close', () => {
        client.destroy();
        server.destroy();
      });
    }
    client.on('data', (chunk: Buffer) => {
      if (state.armed > 0 && chunk.includes('COMMIT\0')) {
        state.armed--;
        cutting = true;
      }
      server.write(chunk);
    });
    server.on('data', (chunk: Buffer) => {
      if (!cutting) {
        client.write(chunk);
        return;
      }
      // The answer to the commit is the last one: everything before it belongs to statements in front of it.
      if (!chunk.includes('COMMIT\0')) return;
      state.cuts++;
      client.destroy();
    });
  });
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  atEnd(t, async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise<void>((resolve) => listener.close(() => resolve()));
  });
  return Object.assign(state, { port: (listener.address() as { port: number }).port });
}

/** What the tests of a file share: a broker, and a server for their tables. */
export interface Shared {
  readonly store: TestDatabase;
  readonly broker: Broker;
  readonly upstream: Upstream;
}

export function sharedServer(
  hooks: { before(fn: () => Promise<void>): void; after(fn: () => Promise<void>): void },
  major: Major = 18,
): () => Shared {
  let shared: Shared | null = null;
  hooks.before(async () => {
    const upstream = await Upstream.start({ major: targetMajor(major) });
    const store = await freshDatabase();
    shared = { upstream, store, broker: await openBroker(store) };
  });
  hooks.after(async () => {
    await shared?.broker.stop();
    // A file that runs by itself has its server stopped before this.
    await shared?.store.drop().catch(() => {});
    await shared?.upstream.remove();
  });
  return () => shared!;
}
