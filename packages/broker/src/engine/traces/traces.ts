/** Traces: written and read, nothing else ever happens to them. */
import { requiredNameFault, transactionIdFault } from '../../log/names.ts';
import type { Queryable } from '../../store/database.ts';
import * as store from '../../store/traces.ts';
import { parsePartitionId, storableText } from '../ack/groups.ts';
import { fromStore, refused } from '../errors.ts';
import type { TenantId } from '../types.ts';
import type { NamedTrace, Trace, TraceName, TraceNote, TracesFace } from './face.ts';

export interface TracesDeps {
  db: Queryable;
  /** Takes a slot before a connection. */
  admission: { run<T>(lane: 'maintenance', work: () => Promise<T>): Promise<T> };
  /** Several tenants: a trace is only taken for a partition of its writer's. */
  tenancy: boolean;
  /** What stands as the worker of every trace that this broker takes. */
  worker: string;
}

/** Bytes of data and names in one answer; those of the first trace are always there. */
const PAGE_BYTES_MAX = 32 * 1024 * 1024;
/** Nobody looks through more notes on one message. */
const OF_MESSAGE = { limit: 10_000, bytesMax: PAGE_BYTES_MAX };
const EVENT_TYPE_CHARACTERS_MAX = 1_000;

export class Traces implements TracesFace {
  readonly #deps: TracesDeps;

  constructor(deps: TracesDeps) {
    this.#deps = deps;
  }

  async write(note: TraceNote): Promise<string | null> {
    const { tenancy, worker } = this.#deps;
    const partitionId = parsePartitionId(note.partitionId);
    if (partitionId === null) {
      if (tenancy) return null;
      throw refused('bad_trace', `${JSON.stringify(note.partitionId)} is no partition id`, 'partitionId');
    }
    const fault = transactionIdFault(note.transactionId, 'transactionId');
    if (fault !== null) throw refused('bad_name', fault, 'transactionId');
    for (const name of note.names) {
      const nameless = requiredNameFault(name, 'traceNames');
      if (nameless !== null) throw refused('bad_name', nameless, 'traceNames');
    }
    const group = requiredNameFault(note.group, 'consumerGroup');
    if (group !== null) throw refused('bad_name', group, 'consumerGroup');
    const { tenant, transactionId, data, names } = note;
    if (note.eventType.length > EVENT_TYPE_CHARACTERS_MAX) {
      const sentence = `eventType must have at most ${EVENT_TYPE_CHARACTERS_MAX} characters`;
      throw refused('bad_name', sentence, 'eventType');
    }
    const eventType = storableText(note.eventType).toWellFormed();
    return this.#run((db) =>
      store.writeTrace(db, {
        tenant,
        partitionId,
        transactionId,
        group: note.group,
        eventType,
        data,
        worker,
        names,
        owned: tenancy,
      }),
    );
  }

  async ofMessage(tenant: TenantId, partitionId: string, transactionId: string): Promise<Trace[]> {
    const id = parsePartitionId(partitionId);
    if (id === null || transactionIdFault(transactionId, 'transactionId') !== null) return [];
    return this.#run((db) => store.tracesOfMessage(db, tenant, id, transactionId, OF_MESSAGE));
  }

  async byName(
    tenant: TenantId,
    name: string,
    limit: number,
    skip: number,
  ): Promise<{ traces: NamedTrace[]; total: number }> {
    if (requiredNameFault(name, 'name') !== null) return { traces: [], total: 0 };
    const read = (page: { limit: number; skip: number; bytesMax: number }) =>
      this.#run((db) => store.tracesByName(db, tenant, name, page));
    const rows = await read({ limit, skip, bytesMax: PAGE_BYTES_MAX });
    const [counted] = rows.length > 0 ? rows : await read({ limit: 1, skip: 0, bytesMax: 0 });
    const traces = rows.map(({ total: _total, ...row }) => ({
      ...row,
      partitionId: String(row.partitionId),
    }));
    return { traces, total: counted?.total ?? 0 };
  }

  async names(tenant: TenantId, limit: number, skip: number): Promise<{ names: TraceName[]; total: number }> {
    const rows = await this.#run((db) => store.traceNames(db, tenant, limit, skip));
    const [counted] = rows.length > 0 ? rows : await this.#run((db) => store.traceNames(db, tenant, 1, 0));
    return { names: rows.map(({ total: _total, ...row }) => row), total: counted?.total ?? 0 };
  }

  async #run<T>(work: (db: Queryable) => Promise<T>): Promise<T> {
    try {
      return await this.#deps.admission.run('maintenance', () => work(this.#deps.db));
    } catch (error) {
      throw fromStore(error);
    }
  }
}
