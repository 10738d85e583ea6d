/**
 * Queues as things to configure, count and delete. Everything that must hold under concurrency is in SQL under
 * the queue's row lock; here are the checks before it and the shapes after it.
 */
import { nameFault } from '../../log/names.ts';
import type { Queryable } from '../../store/database.ts';
import * as store from '../../store/queues.ts';
import { fromStore, refused } from '../errors.ts';
import type {
  BrokerFace,
  ConfigureRequest,
  ConfigureResult,
  Grouping,
  PartitionStats,
  QueueDepth,
  QueueDetail,
  QueueOptions,
  QueueSummary,
  TenantId,
} from '../types.ts';
import type { Announcer } from '../wake/announcer.ts';
import { checkOptions, withoutEffect } from './options.ts';

export interface QueuesDeps {
  db: Queryable;
  /** Takes a slot before a connection. */
  admission: { run<T>(lane: 'maintenance', work: () => Promise<T>): Promise<T> };
  announcer: Pick<Announcer, 'queueDeleted'>;
  /** A log was left to be removed. */
  deleted(): void;
  /** Whether this broker holds a key. Without one no queue may be told to encrypt. */
  canEncrypt: boolean;
}

type Face = Pick<
  BrokerFace,
  'configure' | 'listQueues' | 'inspectQueue' | 'queueDepth' | 'namespaces' | 'tasks' | 'deleteQueue'
>;

export class Queues implements Face {
  readonly #deps: QueuesDeps;

  constructor(deps: QueuesDeps) {
    this.#deps = deps;
  }

  /**
   * Merges (or replaces) options, creating the queue when it is absent.
   *
   * @throws EngineError refused: `bad_name`, `bad_mode`, `invalid_option` (field: the option),
   *   `encryption_required`. Nothing was written then.
   */
  async configure(request: ConfigureRequest): Promise<ConfigureResult> {
    const { tenant, queue, mode } = request;
    const named = request.options as Record<string, unknown>;
    const fault = nameFault(queue, 'queue');
    if (fault !== null) throw refused('bad_name', fault, 'queue');
    if (mode !== 'merge' && mode !== 'replace') {
      throw refused('bad_mode', `mode must be "merge" or "replace", got ${JSON.stringify(mode)}`, 'mode');
    }
    const options = checkOptions(named);
    if (options.encryptionEnabled === true && !this.#deps.canEncrypt) {
      throw refused(
        'encryption_required',
        'encryptionEnabled needs a key: start the broker with QUEEN_ENCRYPTION_KEY (64 hex digits)',
        'encryptionEnabled',
      );
    }
    const stored = await this.#run((db) =>
      store.configureQueue(db, tenant, queue, mode === 'replace', options),
    );
    return {
      queueId: String(stored.queueId),
      queue,
      options: stored.options as unknown as QueueOptions,
      ignored: withoutEffect(named),
    };
  }

  /** By name. Bytes and segment counts are as of the last refresh, the counters as of now. */
  async listQueues(tenant: TenantId): Promise<QueueSummary[]> {
    const queues = await this.#run((db) => store.listQueues(db, tenant));
    return queues.map((queue) => ({
      id: String(queue.id),
      name: queue.name,
      namespace: queue.namespace,
      task: queue.task,
      createdAtMicros: queue.createdAtMicros,
      partitions: queue.partitions,
      retainedBytes: queue.retainedBytes,
      segments: { segments: queue.segments, messages: queue.total },
      messages: { total: queue.total, pending: queue.pending, processing: queue.processing },
    }));
  }

  /** Null: no such queue. */
  async inspectQueue(tenant: TenantId, name: string): Promise<QueueDetail | null> {
    const read = await this.#read(tenant, name, null);
    if (read === null) return null;
    const totals: PartitionStats = { total: 0, pending: 0, processing: 0, completed: 0, deadLetter: 0 };
    const partitions = read.partitions.map((partition) => {
      const stats = partitionStats(partition);
      for (const key of Object.keys(totals) as (keyof PartitionStats)[]) totals[key] += stats[key];
      return {
        id: String(partition.id),
        name: partition.name,
        createdAtMicros: partition.createdAtMicros,
        stats,
        oldestMessageMicros: partition.oldestAtMicros,
        newestMessageMicros: partition.newestAtMicros,
      };
    });
    return {
      id: String(read.queue.id),
      name: read.queue.name,
      createdAtMicros: read.queue.createdAtMicros,
      options: read.queue.options as unknown as QueueOptions,
      partitions,
      totals,
      retainedBytes: read.queue.retainedBytes,
      segments: { segments: read.queue.segments, messages: totals.total },
    };
  }

  /** Null: no such queue. With a group its own cursors count, without one the furthest behind. */
  async queueDepth(tenant: TenantId, name: string, group: string | null): Promise<QueueDepth | null> {
    const read = await this.#read(tenant, name, group);
    if (read === null) return null;
    return {
      conflation: read.queue.conflation,
      partitions: read.partitions.map(({ name: partition, pending, processing }) => ({
        partition,
        pending,
        processing,
      })),
    };
  }

  /** By name; queues without a namespace belong to none. */
  namespaces(tenant: TenantId): Promise<Grouping[]> {
    return this.#groupings(tenant, 'namespace');
  }

  /** By name; queues without a task belong to none. */
  tasks(tenant: TenantId): Promise<Grouping[]> {
    return this.#groupings(tenant, 'task');
  }

  /**
   * Deletes the queue with its partitions, messages, cursors, registrations and dead letters, and has every
   * broker forget it. False: there was none.
   */
  async deleteQueue(tenant: TenantId, queue: string): Promise<boolean> {
    // A name that no queue can have need not trouble the database (it would refuse a NUL).
    if (nameFault(queue, 'queue') !== null) return false;
    const deleted = await this.#run((db) => store.deleteQueue(db, tenant, queue));
    if (deleted) {
      this.#deps.announcer.queueDeleted(tenant, queue);
      this.#deps.deleted();
    }
    return deleted;
  }

  async #read(
    tenant: TenantId,
    name: string,
    group: string | null,
  ): Promise<{ queue: store.StoredQueue; partitions: store.CountedPartition[] } | null> {
    if (nameFault(name, 'queue') !== null) return null;
    if (group !== null) {
      const fault = nameFault(group, 'group');
      if (fault !== null) throw refused('bad_name', fault, 'group');
    }
    return this.#run(async (db) => {
      const queue = await store.readQueue(db, tenant, name, group);
      if (queue === null) return null;
      return { queue, partitions: await store.queuePartitions(db, tenant, queue.id, group) };
    });
  }

  async #groupings(tenant: TenantId, by: 'namespace' | 'task'): Promise<Grouping[]> {
    const queues = await this.#run((db) => store.listQueues(db, tenant));
    const found = new Map<string, Grouping>();
    for (const queue of queues) {
      const name = queue[by];
      if (name === '') continue;
      const grouping = found.get(name) ?? {
        name,
        queues: 0,
        partitions: 0,
        messages: { total: 0, pending: 0 },
      };
      grouping.queues += 1;
      grouping.partitions += queue.partitions;
      grouping.messages.total += queue.total;
      grouping.messages.pending += queue.pending;
      found.set(name, grouping);
    }
    return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async #run<T>(work: (db: Queryable) => Promise<T>): Promise<T> {
    try {
      return await this.#deps.admission.run('maintenance', () => work(this.#deps.db));
    } catch (error) {
      throw fromStore(error);
    }
  }
}

function partitionStats(partition: store.CountedPartition): PartitionStats {
  const { total, pending, processing, deadLetter } = partition;
  return { total, pending, processing, completed: Math.max(0, total - pending - deadLetter), deadLetter };
}
