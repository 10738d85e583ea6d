/**
 * The API of connectors: documents in, documents out, never a password.
 *
 * Every write replaces the document that was read, and loses against a write in between. A PUT tells that to its caller, who
 * wrote on the strength of what was there; a deletion and a resync mean the same whatever was there, and try again.
 */
import { EngineError, fromStore } from '../../../engine/errors.ts';
import type { TenantId } from '../../../engine/types.ts';
import type { SealingKey } from '../../../log/envelope.ts';
import { formatInstant, parseInstant } from '../../../log/instants.ts';
import {
  type ConnectorRow,
  connectorOfSlot,
  putConnector,
  readConnectors,
  removeConnector,
} from '../../../store/connectors.ts';
import type { Queryable } from '../../../store/database.ts';
import { databaseNow } from '../../../store/system.ts';
import type { PasswordChange } from '../document/connection.ts';
import { isConnectorName } from '../document/names.ts';
import { kindOfDocument, parseStored, parseWritten, WRITTEN_SCHEMA } from '../document/parse.ts';
import { DocumentFault, isObject } from '../document/reading.ts';
import { renderShown, renderStored } from '../document/render.ts';
import { sealPassword } from '../document/seal.ts';
import type { ConnectorDocument } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { type Lookup, resolveHost } from '../session/egress.ts';
import * as refusals from './refusals.ts';
import { renderUnreadable } from './unreadable.ts';

export interface ApiDeps {
  /** Lends a connection. */
  run<T>(work: (on: Queryable) => Promise<T>): Promise<T>;
  readonly sealingKey: SealingKey | null;
  readonly allowPrivate: boolean;
  readonly lookup?: Lookup | undefined;
  /** This node's view; null: it has none. */
  statusOf(tenant: TenantId, name: string): object | null;
  /** This node's view of all. */
  overview(): object;
  /** A document was written here. */
  changed(): void;
}

const DOCUMENT_BYTES_MAX = 256 * 1024;
const LOOKUP_MS = 5_000;
const ATTEMPTS = 5;

export class ConnectorsApi {
  readonly documentSchema: object = WRITTEN_SCHEMA;
  readonly #deps: ApiDeps;

  constructor(deps: ApiDeps) {
    this.#deps = deps;
  }

  checkName(name: string): void {
    if (!isConnectorName(name)) throw refusals.badName();
  }

  overview(): object {
    return this.#deps.overview();
  }

  async list(tenant: TenantId): Promise<object[]> {
    const rows = await this.#run((on) => readConnectors(on, tenant, null));
    return rows.map((row) => this.#render(tenant, row));
  }

  async get(tenant: TenantId, name: string): Promise<object> {
    return this.#render(tenant, await this.#read(tenant, name));
  }

  async put(tenant: TenantId, name: string, body: object): Promise<object> {
    const { document, password } = await this.#judge(tenant, name, body);
    const [row] = await this.#run((on) => readConnectors(on, tenant, name));
    const before: unknown = row === undefined ? null : JSON.parse(row.document);
    const kind = kindOfDocument(before);
    if (kind !== null && kind !== document.kind) throw refusals.kindChange(name, kind);
    const passwordSealed = this.#seal({ tenant, name }, password, before);
    const kept = isObject(before) ? before : {};
    const written: ConnectorDocument = {
      ...document,
      connection: { ...document.connection, passwordSealed },
      updatedAt: await this.#stamp(kept.updatedAt),
      resyncRequestedAt: typeof kept.resyncRequestedAt === 'string' ? kept.resyncRequestedAt : null,
    };
    if (!(await this.#write(tenant, written, row?.version ?? 0))) throw refusals.conflict(name);
    return renderShown(written);
  }

  async remove(
    tenant: TenantId,
    name: string,
    dropSlot: boolean,
  ): Promise<{ pending: boolean; answer: object }> {
    return this.#persist(name, async () => {
      const row = await this.#read(tenant, name);
      const document = parsed(row);
      if (document?.kind === 'sink') return this.#drop(tenant, row, false, { name, deleted: true });
      if (document === null || !dropSlot) {
        return this.#drop(tenant, row, true, { name, deleted: true, warning: leftBehind(document) });
      }
      const { slot, publication, managePublication } = document.source;
      const taken = managePublication
        ? `the slot ${slot} and the publication ${publication}`
        : `the slot ${slot}`;
      const detail = `its owner drops ${taken}, then the connector is gone; dropSlot=false removes it at once`;
      const answer = { pending: true, answer: { name, deleting: true, detail } };
      if (document.deleting !== null) return answer;
      const requestedAt = await this.#stamp(document.updatedAt);
      const written = { ...document, updatedAt: requestedAt, deleting: { dropSlot: true, requestedAt } };
      return (await this.#write(tenant, written, row.version)) ? answer : null;
    });
  }

  async resync(tenant: TenantId, name: string): Promise<object> {
    return this.#persist(name, async () => {
      const row = await this.#read(tenant, name);
      if (kindOfDocument(JSON.parse(row.document)) === 'sink') throw refusals.notASource(name);
      let document: ConnectorDocument;
      try {
        document = parseStored(JSON.parse(row.document), name);
      } catch (error) {
        throw refusals.unreadable(name, (error as Error).message);
      }
      if (document.deleting !== null) throw refusals.beingDeleted(name);
      const resyncRequestedAt = await this.#stamp(document.resyncRequestedAt ?? document.updatedAt);
      const written = { ...document, resyncRequestedAt };
      return (await this.#write(tenant, written, row.version)) ? { name, resyncRequestedAt } : null;
    });
  }

  /** What the document says by itself and against its neighbours, and whether its host may be reached. */
  async #judge(tenant: TenantId, name: string, body: object) {
    const written = parse(() => parseWritten(body, name));
    const { document } = written;
    const { host, port, database } = document.connection;
    if (document.kind === 'source') {
      const { slot } = document.source;
      const other = await this.#run((on) =>
        connectorOfSlot(on, { tenant, name, host, port, database, slot }),
      );
      if (other !== null) {
        throw refusals.invalid(
          `source.slot: ${slot} is the slot of connector ${other} already`,
          'source.slot',
        );
      }
    }
    if (!this.#deps.allowPrivate) await this.#guard(host);
    return written;
  }

  /** A name that does not resolve, or not in time, is no verdict: it is looked up again at every connect. */
  async #guard(host: string): Promise<void> {
    const { lookup } = this.#deps;
    try {
      await resolveHost(host, {
        allowPrivate: false,
        timeoutMs: LOOKUP_MS,
        ...(lookup === undefined ? {} : { lookup }),
      });
    } catch (error) {
      if (error instanceof ConnectorFault && error.code === 'egress')
        throw refusals.egressRefused(error.message);
    }
  }

  #seal(owner: { tenant: TenantId; name: string }, change: PasswordChange, before: unknown): string | null {
    if (change.kind === 'remove') return null;
    if (change.kind === 'keep') {
      const connection = isObject(before) && isObject(before.connection) ? before.connection : {};
      return typeof connection.passwordSealed === 'string' ? connection.passwordSealed : null;
    }
    const { sealingKey } = this.#deps;
    if (sealingKey === null) throw refusals.encryptionRequired();
    try {
      return sealPassword(sealingKey, owner, change.password);
    } catch (error) {
      throw refusals.sealFailed(error);
    }
  }

  async #read(tenant: TenantId, name: string): Promise<ConnectorRow> {
    const [row] = await this.#run((on) => readConnectors(on, tenant, name));
    if (row === undefined) throw refusals.notFound(name);
    return row;
  }

  /** False: another write won. */
  async #write(tenant: TenantId, written: ConnectorDocument, expect: number): Promise<boolean> {
    const { name } = written;
    const document = JSON.stringify(renderStored(written));
    const bytes = Buffer.byteLength(document);
    if (bytes > DOCUMENT_BYTES_MAX) throw refusals.documentTooLarge(bytes, DOCUMENT_BYTES_MAX);
    const version = await this.#run((on) => putConnector(on, { tenant, name, document, expect }));
    if (version !== null) this.#deps.changed();
    return version !== null;
  }

  async #drop(tenant: TenantId, row: ConnectorRow, state: boolean, answer: object) {
    const { name, version: expect } = row;
    const done = await this.#run((on) => removeConnector(on, { tenant, name, expect, state }));
    if (done) this.#deps.changed();
    return done ? { pending: false, answer } : null;
  }

  /** Repeats what lost against another write (null). */
  async #persist<T>(name: string, attempt: () => Promise<T | null>): Promise<T> {
    for (let i = 0; i < ATTEMPTS; i++) {
      const answer = await attempt();
      if (answer !== null) return answer;
    }
    throw refusals.conflict(name);
  }

  /** Now, by the store's clock; later than `last` even if that clock went back. */
  async #stamp(last: unknown): Promise<string> {
    const now = await this.#run(databaseNow);
    const before = typeof last === 'string' ? parseInstant(last) : null;
    return formatInstant(before === null ? now : Math.max(now, before + 1));
  }

  #render(tenant: TenantId, row: ConnectorRow): object {
    const document = parsed(row);
    const json: unknown = JSON.parse(row.document);
    const isSource = kindOfDocument(json) === 'source';
    return {
      ...(document === null ? renderUnreadable(row.name, json) : renderShown(document)),
      status: this.#deps.statusOf(tenant, row.name) ?? { phase: 'unknown' },
      state: isSource ? { pointer: objectOf(row.pointer), lease: objectOf(row.lease) } : null,
    };
  }

  async #run<T>(work: (on: Queryable) => Promise<T>): Promise<T> {
    try {
      return await this.#deps.run(work);
    } catch (error) {
      throw error instanceof EngineError ? error : fromStore(error);
    }
  }
}

/** Null: what is stored does not parse any more. */
function parsed(row: ConnectorRow): ConnectorDocument | null {
  try {
    return parseStored(JSON.parse(row.document), row.name);
  } catch {
    return null;
  }
}

function parse<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof DocumentFault)) throw error;
    throw refusals.invalid(error.message, error.field);
  }
}

function leftBehind(document: ConnectorDocument | null): string {
  if (document?.kind !== 'source') {
    return 'the document could not be read: if it was a source, its slot still holds WAL until it is dropped by hand';
  }
  const { slot } = document.source;
  return `the slot ${slot} is left, and holds WAL until it is dropped: SELECT pg_drop_replication_slot('${slot}')`;
}

function objectOf(json: string | null): object | null {
  try {
    const value: unknown = json === null ? null : JSON.parse(json);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}
