/** A source in this process: a real engine, a real upstream, and a unit that is started and stopped by hand. */
import assert from 'node:assert/strict';
import { atEnd, type Cleanup } from '../../../../../test/kit/cleanup.ts';
import { openBroker } from '../../../../../test/kit/engine.ts';
import { freshDatabase, type TestDatabase } from '../../../../../test/kit/postgres.ts';
import { until } from '../../../../../test/kit/until.ts';
import type { UpstreamDatabase } from '../../../../../test/kit/upstream.ts';
import type {
  ConnectionSettings,
  SourceDocument,
  SourceSettings,
  SourceTable,
} from '../../../src/connectors/postgres/document/types.ts';
import type { ConnectorFault } from '../../../src/connectors/postgres/fault.ts';
import { PgDialler } from '../../../src/connectors/postgres/session/dialler.ts';
import { type Pointer, parsePointer } from '../../../src/connectors/postgres/source/pointer.ts';
import { leaseKey, pointerKey, SourceState } from '../../../src/connectors/postgres/source/state.ts';
import { SourceUnit } from '../../../src/connectors/postgres/source/unit.ts';
import type { Phase, UnitCounter, UnitStatus } from '../../../src/connectors/postgres/unit.ts';
import type { Broker } from '../../../src/engine/broker.ts';
import { systemClock } from '../../../src/engine/clock.ts';
import { type BrokerFace, DEFAULT_TENANT } from '../../../src/engine/types.ts';
import { silentLog } from '../../../src/store/log.ts';

export { until };

export interface Event {
  op: string;
  table: string;
  key: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
  before: Record<string, unknown> | null;
  unchanged?: string[];
  lsn: string;
  xid?: number;
  ts: string;
  seq: number;
}

export interface Message {
  queue: string;
  partition: string;
  offset: number;
  id: string;
  event: Event;
  /** As it was written. */
  text: string;
}

/** What a unit has shown. */
export class Shown implements UnitStatus {
  phase: Phase = 'starting';
  readonly phases: Phase[] = [];
  readonly facts: Record<string, unknown> = {};
  readonly counters: Partial<Record<UnitCounter, number>> = {};
  readonly gauges: Record<string, bigint | null> = {};
  fault: ConnectorFault | null = null;
  faults: ConnectorFault[] = [];
  owned = false;

  enter(phase: Phase, facts: Readonly<Record<string, unknown>> = {}): void {
    this.show(facts);
    if (phase !== 'error') this.fault = null;
    this.phase = phase;
    this.phases.push(phase);
  }

  fail(fault: ConnectorFault): void {
    this.enter('error');
    this.fault = fault;
    this.faults.push(fault);
    this.owned = false;
  }

  show(facts: Readonly<Record<string, unknown>>): void {
    Object.assign(this.facts, facts);
  }

  count(what: UnitCounter, by: number): void {
    this.counters[what] = (this.counters[what] ?? 0) + by;
  }

  gauge(what: string, value: bigint | null): void {
    this.gauges[what] = value;
  }

  owner(yes: boolean): void {
    this.owned = yes;
  }
}

export interface RunningUnit {
  readonly status: Shown;
  /** Asks it to end; rejects with what it threw. */
  stop(): Promise<void>;
  /** Its own end. */
  readonly ended: Promise<void>;
}

/** `id=…,name=…`: settings beside the defaults of a document. */
export type Asked = Partial<SourceSettings> & { tables: readonly SourceTable[] };

export function tableOf(name: string, more: Partial<SourceTable> = {}): SourceTable {
  const [schema, table] = name.includes('.') ? name.split('.') : ['public', name];
  return { schema: schema!, table: table!, queue: 'q', partitionBy: 'key', ...more };
}

export class SourceRig {
  readonly store: TestDatabase;
  readonly broker: Broker;
  readonly upstream: UpstreamDatabase;
  readonly state: SourceState;
  /** Removed by units that tore themselves down. */
  removed: string[] = [];
  readonly #t: Cleanup;
  readonly #read = new Map<string, Message[]>();

  private constructor(t: Cleanup, store: TestDatabase, broker: Broker, upstream: UpstreamDatabase) {
    this.#t = t;
    this.store = store;
    this.broker = broker;
    this.upstream = upstream;
    this.state = new SourceState(broker, DEFAULT_TENANT);
  }

  static async open(t: Cleanup, upstream: UpstreamDatabase): Promise<SourceRig> {
    const store = await freshDatabase(t);
    const broker = await openBroker(store);
    atEnd(t, () => broker.stop());
    return new SourceRig(t, store, broker, upstream);
  }

  document(name: string, asked: Asked, more: Partial<SourceDocument> = {}): SourceDocument {
    return {
      name,
      kind: 'source',
      enabled: true,
      connection: this.connection(),
      updatedAt: '2026-01-01T00:00:00.000000Z',
      resyncRequestedAt: null,
      deleting: null,
      source: {
        slot: `queen_${name}_${this.upstream.name}`,
        publication: `queen_${name}`,
        managePublication: true,
        snapshot: 'never',
        snapshotChunkRows: 2_000,
        maxBundleMessages: 1_000,
        maxBundleBytes: 4_194_304,
        lingerMs: 5,
        heartbeatSeconds: 1,
        onTruncate: 'skip',
        ...asked,
      },
      ...more,
    };
  }

  connection(more: Partial<ConnectionSettings> = {}): ConnectionSettings {
    const { host, port, user } = this.upstream.server;
    return {
      host,
      port,
      database: this.upstream.name,
      user,
      passwordSealed: null,
      sslMode: 'disable',
      sslRootCert: null,
      connectTimeoutMs: 5_000,
      ...more,
    };
  }

  /** Runs it until it is stopped; a test that ends stops it. */
  start(
    document: SourceDocument,
    options: { node?: string; ttlMs?: number; face?: BrokerFace; warn?: (text: string) => void } = {},
  ): RunningUnit {
    const status = new Shown();
    const abort = new AbortController();
    const unit = new SourceUnit({
      tenant: DEFAULT_TENANT,
      document,
      broker: options.face ?? this.broker,
      dialler: new PgDialler({ connection: document.connection, password: () => '', allowPrivate: true }),
      status,
      clock: systemClock,
      log: { ...silentLog, warn: (_, text) => options.warn?.(text) },
      node: options.node ?? 'node-1',
      storeId: 'store',
      applicationName: 'queen-pg/test',
      leaseTtlMs: options.ttlMs ?? 3_000,
      shutdownGraceMs: 5_000,
      removeDocument: async () => {
        this.removed.push(document.name);
      },
    });
    const ended = unit.run(abort.signal);
    ended.catch(() => {});
    const stop = async (): Promise<void> => {
      abort.abort();
      await ended;
    };
    atEnd(this.#t, () => stop().catch(() => {}));
    return { status, ended, stop };
  }

  /** Runs it and waits until it streams. */
  async stream(
    document: SourceDocument,
    options: { node?: string; ttlMs?: number; face?: BrokerFace } = {},
  ): Promise<RunningUnit> {
    const unit = this.start(document, options);
    await streaming(unit);
    return unit;
  }

  /** Everything that a queue holds by now, by the upstream's order. */
  async messages(queue = 'q'): Promise<Message[]> {
    const known = this.#read.get(queue) ?? [];
    this.#read.set(queue, known);
    for (;;) {
      const answer = await this.broker.pop({
        tenant: DEFAULT_TENANT,
        scope: { kind: 'queue', queue },
        group: 'reader',
        batch: 10_000,
        partitions: 0,
        autoAck: true,
        waitMs: 0,
        leaseSeconds: 0,
        subscriptionMode: 'all',
        subscriptionFrom: null,
        conflation: null,
        autopilot: false,
        signal: null,
      });
      if (answer.claims.length === 0) return known.sort(byPlace);
      for (const { partition, messages } of answer.claims) {
        for (const { offset, transactionId: id, payload } of messages) {
          const text = payload.toString('utf8');
          known.push({ queue, partition, offset, id, event: JSON.parse(text) as Event, text });
        }
      }
    }
  }

  /** Waits until a queue holds so many messages, and no more. */
  async arrived(count: number, queue = 'q', withinMs = 20_000): Promise<Message[]> {
    let found: Message[] = [];
    const what = () => `${count} messages are in ${queue} (${found.length})`;
    await until(
      what,
      async () => {
        found = await this.messages(queue);
        return found.length >= count;
      },
      withinMs,
    );
    assert.equal(found.length, count);
    return found;
  }

  async pointer(name: string): Promise<Pointer | null> {
    const entry = await this.state.read(pointerKey(name));
    return entry === null ? null : parsePointer(entry.value);
  }

  async lease(name: string): Promise<{ node: string } | null> {
    const entry = await this.state.read(leaseKey(name));
    return entry === null ? null : (JSON.parse(entry.value) as { node: string });
  }

  async slot(name: string): Promise<Record<string, unknown> | null> {
    const rows = await this.upstream.sql('SELECT * FROM pg_replication_slots WHERE slot_name = $1', [name]);
    return rows[0] ?? null;
  }
}

function byPlace(a: Message, b: Message): number {
  const key = (message: Message) =>
    message.event.lsn
      .split('/')
      .map((part) => part.padStart(8, '0'))
      .join('');
  const [one, other] = [key(a), key(b)];
  if (one !== other) return one < other ? -1 : 1;
  return a.event.seq - b.event.seq || (a.id < b.id ? -1 : 1);
}

export function streaming(unit: RunningUnit): Promise<void> {
  return inPhase(unit, 'streaming');
}

/** Fails at once when the unit shows an error instead. */
export async function inPhase({ status }: RunningUnit, phase: Phase): Promise<void> {
  const failed = () => phase !== 'error' && status.fault !== null;
  await until(
    () => `it is ${phase} (${status.phase})`,
    () => failed() || status.phase === phase,
  );
  if (failed()) throw status.fault;
}

/** The error that the unit shows. */
export async function faultOf(unit: RunningUnit): Promise<ConnectorFault> {
  await until(
    () => `it shows an error (${unit.status.phase})`,
    () => unit.status.fault !== null,
  );
  return unit.status.fault!;
}
