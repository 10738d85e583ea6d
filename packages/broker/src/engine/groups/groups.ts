/**
 * Consumer groups as things to look at and to move. A move commits its repair together with the cursors; this broker
 * acts on it before it answers, the peers when they hear of it (or look, at the latest a minute on).
 */
import { nameFault, requiredNameFault } from '../../log/names.ts';
import type { Queryable } from '../../store/database.ts';
import * as store from '../../store/groups.ts';
import type { PageWanted } from '../../store/partitions.ts';
import { fromStore, refused } from '../errors.ts';
import type { TenantId } from '../types.ts';
import type {
  GroupPageRow,
  GroupQueue,
  GroupSort,
  GroupStanding,
  GroupSums,
  GroupsFace,
  LaggingPartition,
  SeekRequest,
  StandingFilter,
  StandingSort,
} from './face.ts';

export interface GroupsDeps {
  db: Queryable;
  /** Takes a slot before a connection. */
  admission: { run<T>(lane: 'maintenance', work: () => Promise<T>): Promise<T> };
  /** Has this broker act on the repairs that were committed for the group, and tells the peers. Never rejects. */
  repaired: (tenant: TenantId, group: string, queues: readonly string[]) => Promise<void>;
}

const LAGGING_MAX = 10_000;
const MICROS = 1_000_000;

export class Groups implements GroupsFace {
  readonly #deps: GroupsDeps;

  constructor(deps: GroupsDeps) {
    this.#deps = deps;
  }

  async list(tenant: TenantId): Promise<GroupStanding[]> {
    const rows = await this.#run((db) => store.listGroups(db, tenant));
    return rows.map(({ mode, atMicros, registeredAtMicros, ...standing }) => ({
      ...standing,
      subscription:
        mode === null || registeredAtMicros === null
          ? null
          : { mode, fromMicros: atMicros, createdAtMicros: registeredAtMicros },
    }));
  }

  async page(
    tenant: TenantId,
    { group, queue }: StandingFilter,
    { search, sort, descending, limit, skip }: PageWanted<StandingSort>,
  ): Promise<{ rows: GroupStanding[]; total: number }> {
    const part = search?.toLowerCase() ?? '';
    const found = (await this.list(tenant)).filter(
      (row) =>
        (group === null || row.group === group) &&
        (queue === null || row.queue === queue) &&
        (part === '' || row.group.toLowerCase().includes(part) || row.queue.toLowerCase().includes(part)),
    );
    // They come by name, and the sort is stable.
    const figure = FIGURES[sort];
    if (figure === null) {
      if (descending) found.reverse();
    } else {
      found.sort((one, other) => (descending ? figure(other) - figure(one) : figure(one) - figure(other)));
    }
    return { rows: found.slice(skip, skip + limit), total: found.length };
  }

  async onQueue(
    tenant: TenantId,
    group: string,
    queue: string,
    wanted: PageWanted<GroupSort>,
  ): Promise<{ sums: GroupSums; rows: GroupPageRow[] }> {
    checkName(group, 'group');
    checkName(queue, 'queue');
    return this.#run((db) => store.groupPage(db, tenant, group, queue, wanted));
  }

  async lagging(tenant: TenantId, minSeconds: number): Promise<LaggingPartition[]> {
    const rows = await this.#run((db) =>
      store.laggingPartitions(db, tenant, Math.max(0, minSeconds) * MICROS, LAGGING_MAX),
    );
    return rows.map(({ partitionId, sinceMicros, ...row }) => ({
      ...row,
      partitionId: String(partitionId),
      oldestMicros: sinceMicros,
    }));
  }

  async detail(tenant: TenantId, group: string): Promise<GroupQueue[]> {
    if (requiredNameFault(group, 'group') !== null) return [];
    const rows = await this.#run((db) => store.groupDetail(db, tenant, group));
    const queues = new Map<string, GroupQueue>();
    for (const { queue, conflation, ...partition } of rows) {
      let found = queues.get(queue);
      if (found === undefined) {
        found = { queue, conflation, partitions: [] };
        queues.set(queue, found);
      }
      found.partitions.push(partition);
    }
    return [...queues.values()];
  }

  async subscribe(tenant: TenantId, group: string, fromMicros: number): Promise<number> {
    checkName(group, 'group');
    return this.#run((db) => store.subscribeGroup(db, tenant, group, fromMicros));
  }

  async seek(request: SeekRequest): Promise<{ moved: number; resumesAt: number | null }> {
    const { tenant, queue, partition, group, target } = request;
    checkName(group, 'group');
    checkName(queue, 'queue');
    if (partition !== null && nameFault(partition, 'partition') !== null)
      return { moved: 0, resumesAt: null };
    const sought = await this.#run((db) => store.seekGroup(db, tenant, queue, partition, group, target));
    if (sought.moved > 0) await this.#deps.repaired(tenant, group, [queue]);
    return sought;
  }

  async delete(
    tenant: TenantId,
    group: string,
    queue: string | null,
    registrations: boolean,
  ): Promise<{ cursors: number }> {
    checkName(group, 'group');
    if (queue !== null) checkName(queue, 'queue');
    const { cursors, queues } = await this.#run((db) =>
      store.deleteGroup(db, tenant, group, queue, registrations),
    );
    await this.#deps.repaired(tenant, group, queues);
    return { cursors };
  }

  async #run<T>(work: (db: Queryable) => Promise<T>): Promise<T> {
    try {
      return await this.#deps.admission.run('maintenance', () => work(this.#deps.db));
    } catch (error) {
      throw fromStore(error);
    }
  }
}

const FIGURES: Record<StandingSort, ((row: GroupStanding) => number) | null> = {
  name: null,
  lag: ({ lag }) => lag,
  waiting: ({ lagMicros }) => lagMicros,
  partitions: ({ cursors }) => cursors,
};

function checkName(name: string, field: string): void {
  const fault = requiredNameFault(name, field);
  if (fault !== null) throw refused('bad_name', fault, field);
}
