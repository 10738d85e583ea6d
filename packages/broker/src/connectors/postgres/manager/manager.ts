/**
 * The connectors of this node. One pass every few seconds reads which documents there are; what is new is started, what
 * changed is swapped, what is gone is stopped and forgotten. A pass that fails stops nothing.
 *
 * Every node runs every document: which of them does a source's work is settled by the source's own lease.
 */
import type { Clock, Timer } from '../../../engine/clock.ts';
import type { BrokerFace, TenantId } from '../../../engine/types.ts';
import type { SealingKey } from '../../../log/envelope.ts';
import { listConnectors, readConnectors, removeConnector } from '../../../store/connectors.ts';
import type { Queryable } from '../../../store/database.ts';
import type { StoreLog } from '../../../store/log.ts';
import { kindOfDocument, parseStored } from '../document/parse.ts';
import { openPassword } from '../document/seal.ts';
import type { ConnectorDocument } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { PgDialler } from '../session/dialler.ts';
import type { Lookup } from '../session/egress.ts';
import type { Unit } from '../unit.ts';
import { Runner, type Target } from './runner.ts';
import { ConnectorStatus, cleaned } from './status.ts';
import type { CreateUnit } from './units.ts';

export interface ManagerSettings {
  /** False: this node serves the API and runs nothing. */
  readonly enabled: boolean;
  readonly threads: number;
  readonly reloadMs: number;
  readonly leaseTtlMs: number;
  readonly shutdownGraceMs: number;
  readonly allowPrivate: boolean;
}

export interface ManagerDeps {
  readonly broker: BrokerFace;
  /** Lends a connection. */
  run<T>(work: (on: Queryable) => Promise<T>): Promise<T>;
  readonly sealingKey: SealingKey | null;
  readonly settings: ManagerSettings;
  readonly createUnit: CreateUnit;
  readonly lookup?: Lookup | undefined;
  readonly clock: Clock;
  readonly log: StoreLog;
  readonly node: string;
  readonly storeId: string;
  readonly version: string;
}

interface Entry {
  readonly tenant: TenantId;
  readonly name: string;
  readonly status: ConnectorStatus;
  readonly runner: Runner;
}

export class ConnectorManager {
  readonly #deps: ManagerDeps;
  readonly #entries = new Map<string, Entry>();
  /** Gone from the table, still ending: none of the same name may begin before. */
  readonly #leaving = new Map<string, Promise<void>>();
  #phase: 'disabled' | 'starting' | 'running' | 'stopping' | 'stopped' = 'starting';
  #documentsError: string | null = null;
  #pass: Promise<void> | null = null;
  /** Something changed while a pass was under way. */
  #again = false;
  #timer: Timer | null = null;
  #stop: Promise<void> | null = null;

  constructor(deps: ManagerDeps) {
    this.#deps = deps;
    if (!deps.settings.enabled) this.#phase = 'disabled';
  }

  start(): void {
    if (this.#phase === 'starting') this.poke();
  }

  /** Looks at the documents now. */
  poke(): void {
    if (this.#phase !== 'starting' && this.#phase !== 'running') return;
    if (this.#pass !== null) {
      this.#again = true;
      return;
    }
    this.#timer?.cancel();
    this.#again = false;
    this.#pass = this.#reload().finally(() => {
      this.#pass = null;
      if (this.#again) this.poke();
      else if (this.#phase === 'running') {
        this.#timer = this.#deps.clock.after(this.#deps.settings.reloadMs, () => this.poke());
      }
    });
  }

  /**
   * Hands everything over, or gives up after the grace: what is left undone is done again by whoever comes next. May be
   * called again.
   */
  stop(): Promise<void> {
    this.#stop ??= this.#phase === 'disabled' ? Promise.resolve() : this.#end();
    return this.#stop;
  }

  async #end(): Promise<void> {
    this.#phase = 'stopping';
    this.#timer?.cancel();
    const { settings, clock, log } = this.#deps;
    const ends = Array.from(this.#entries.values(), ({ runner }) => runner.stop());
    const all = Promise.all([this.#pass, ...ends, ...this.#leaving.values()]).then(() => true);
    let timer: Timer | null = null;
    const late = new Promise<boolean>((resolve) => {
      timer = clock.after(settings.shutdownGraceMs, () => resolve(false));
    });
    if (!(await Promise.race([all, late]))) {
      const names = [...this.#entries.values()]
        .filter(({ status }) => status.phase !== 'stopped')
        .map(({ name }) => name);
      log.warn({ connectors: names }, 'connectors did not end in time and are cut off');
    }
    (timer as Timer | null)?.cancel();
    this.#phase = 'stopped';
  }

  statusOf(tenant: TenantId, name: string): object | null {
    return this.#entries.get(keyOf(tenant, name))?.status.render() ?? null;
  }

  /** The block `pg` of `/status`. */
  overview(): object {
    const { threads, reloadMs } = this.#deps.settings;
    const connectors = this.statuses().map(({ tenant, status }) => {
      const { name, kind, ...rest } = status.render();
      return { tenant, name, kind, generation: status.generation, restarts: status.restarts, ...rest };
    });
    return {
      mode: 'in-process',
      phase: this.#phase,
      threads,
      reloadMs,
      documentsError: this.#documentsError,
      connectors,
    };
  }

  statuses(): readonly { tenant: TenantId; status: ConnectorStatus }[] {
    return Array.from(this.#entries.values(), ({ tenant, status }) => ({ tenant, status }));
  }

  async #reload(): Promise<void> {
    try {
      const rows = await this.#deps.run(listConnectors);
      const there = new Set(rows.map(({ tenant, name }) => keyOf(tenant, name)));
      for (const [key, entry] of this.#entries) if (!there.has(key)) this.#leave(key, entry);
      for (const { tenant, name, version } of rows) {
        const key = keyOf(tenant, name);
        if (this.#entries.get(key)?.runner.version === version || this.#leaving.has(key)) continue;
        await this.#renew(tenant, name);
      }
      this.#documentsError = null;
    } catch (error) {
      const why = cleaned(error instanceof Error ? error.message : String(error));
      if (this.#documentsError !== why) {
        this.#deps.log.warn({ err: error }, 'the connector documents were not read: what runs goes on');
      }
      this.#documentsError = why;
    }
    if (this.#phase === 'starting') this.#phase = 'running';
  }

  #leave(key: string, entry: Entry): void {
    this.#entries.delete(key);
    const gone = entry.runner.stop().finally(() => {
      this.#leaving.delete(key);
      this.poke();
    });
    this.#leaving.set(key, gone);
  }

  async #renew(tenant: TenantId, name: string): Promise<void> {
    const [row] = await this.#deps.run((on) => readConnectors(on, tenant, name));
    // After the stop nothing begins.
    if (row === undefined || (this.#phase !== 'starting' && this.#phase !== 'running')) return;
    const target: Target = { version: row.version, document: documentOf(row.name, row.document) };
    const entry = this.#entries.get(keyOf(tenant, name));
    if (entry !== undefined) {
      entry.runner.replace(target);
      return;
    }
    const { clock, log } = this.#deps;
    const status = new ConnectorStatus(name, kindOfDocument(JSON.parse(row.document)), log);
    const create = (now: { version: number; document: ConnectorDocument }) =>
      this.#unit(tenant, status, now.version, now.document);
    const runner = new Runner({ create, status, clock, log }, target);
    this.#entries.set(keyOf(tenant, name), { tenant, name, status, runner });
  }

  #unit(tenant: TenantId, status: ConnectorStatus, version: number, document: ConnectorDocument): Unit {
    const { broker, sealingKey, settings, createUnit, lookup, clock, log, node, storeId } = this.#deps;
    const { connection, name } = document;
    const password = () =>
      connection.passwordSealed === null
        ? null
        : openPassword(sealingKey, { tenant, name }, connection.passwordSealed);
    // A password that cannot be opened is known before anybody is bothered with it.
    password();
    return createUnit({
      tenant,
      document,
      broker,
      dialler: new PgDialler({
        connection,
        password,
        allowPrivate: settings.allowPrivate,
        ...(lookup === undefined ? {} : { lookup }),
      }),
      status,
      clock,
      log,
      node,
      storeId,
      applicationName: `queen-pg/${this.#deps.version}`,
      leaseTtlMs: settings.leaseTtlMs,
      shutdownGraceMs: settings.shutdownGraceMs,
      removeDocument: async () => {
        await this.#deps.run((on) => removeConnector(on, { tenant, name, expect: version, state: true }));
        this.poke();
      },
    });
  }
}

/** Neither a tenant nor a name holds a slash. */
function keyOf(tenant: TenantId, name: string): string {
  return `${tenant}/${name}`;
}

function documentOf(name: string, json: string): ConnectorDocument | ConnectorFault {
  try {
    return parseStored(JSON.parse(json), name);
  } catch (error) {
    const why = cleaned(error instanceof Error ? error.message : String(error));
    return new ConnectorFault('config', `the stored document is not understood (${why}): PUT it anew`);
  }
}
