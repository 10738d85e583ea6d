/** /api/v1/consumer-groups: what groups there are, how far behind, and how they are moved and removed. */
import type { Type } from 'typebox';
import type {
  GroupPageRow,
  GroupQueue,
  GroupStanding,
  GroupsFace,
  LaggingPartition,
  SeekTarget,
} from '../../engine/groups/face.ts';
import { formatInstant, formatInstantOrNull } from '../../log/instants.ts';
import {
  deleteGroup,
  deleteGroupOnQueue,
  GROUP_PARTITION_SORTS,
  GROUP_PARTITIONS_PAGE,
  GROUP_SORTS,
  GROUPS_PAGE,
  groupDetail,
  groupOnQueue,
  LAGGING_SECONDS,
  laggingGroups,
  listGroups,
  seekPartition,
  seekQueue,
  subscription,
} from '../api/groups.ts';
import type { App } from '../app.ts';
import { badBody, Fault } from '../errors.ts';
import { queryOf } from '../query.ts';
import { filterName, readPage } from '../span.ts';
import { microsOf } from '../validation.ts';

const read = { level: 'read-only' } as const;
const write = { level: 'read-write' } as const;
const admin = { level: 'admin' } as const;
/** A group that is further behind counts as lagging, in seconds. */
const LATE_SECONDS = 300;
const GROUPS = '/api/v1/consumer-groups';

export function groupRoutes(app: App, groups: GroupsFace): void {
  app.get(GROUPS, { config: read, schema: listGroups }, async (request) => {
    const { tenant } = request.identity;
    const query = queryOf(request);
    if (query.text('limit') === null) return (await groups.list(tenant)).map(renderStanding);
    const page = readPage(query, GROUP_SORTS, GROUPS_PAGE);
    const filter = { group: filterName(query, 'group'), queue: filterName(query, 'queue') };
    const { rows, total } = await groups.page(tenant, filter, page);
    return { groups: rows.map(renderStanding), pagination: { limit: page.limit, offset: page.skip, total } };
  });

  app.get(`${GROUPS}/lagging`, { config: read, schema: laggingGroups }, async (request) => {
    const seconds = queryOf(request).integer('minLagSeconds') ?? LAGGING_SECONDS;
    return (await groups.lagging(request.identity.tenant, seconds)).map(renderLagging);
  });

  app.get(`${GROUPS}/:group`, { config: read, schema: groupDetail }, async (request) => {
    return renderDetail(await groups.detail(request.identity.tenant, request.params.group));
  });

  app.get(`${GROUPS}/:group/queues/:queue`, { config: read, schema: groupOnQueue }, async (request) => {
    const { group, queue } = request.params;
    const page = readPage(queryOf(request), GROUP_PARTITION_SORTS, GROUP_PARTITIONS_PAGE);
    const { sums, rows } = await groups.onQueue(request.identity.tenant, group, queue, page);
    return {
      consumerGroup: group,
      queueName: queue,
      conflation: sums.conflation,
      totals: {
        partitions: sums.partitions,
        partitionCursors: sums.cursors,
        partitionsWithLag: sums.behind,
        totalLag: sums.totalLag,
        maxTimeLag: seconds(sums.maxLagMicros),
      },
      partitions: rows.map(renderPartition),
      pagination: { limit: page.limit, offset: page.skip, total: sums.matches },
    };
  });

  app.post(`${GROUPS}/:group/subscription`, { config: write, schema: subscription }, async (request) => {
    const { group } = request.params;
    const text = request.body.subscriptionTimestamp;
    const micros = microsOf(text);
    const rowsUpdated = await groups.subscribe(request.identity.tenant, group, micros);
    return { success: true, consumerGroup: group, newTimestamp: text, rowsUpdated };
  });

  seekRoutes(app, groups);

  app.delete(`${GROUPS}/:group`, { config: admin, schema: deleteGroup }, async (request) => {
    const { group } = request.params;
    const metadataDeleted = queryOf(request).flag('deleteMetadata') ?? true;
    const { cursors } = await groups.delete(request.identity.tenant, group, null, metadataDeleted);
    return { success: true, consumerGroup: group, deletedPartitions: cursors, metadataDeleted };
  });

  app.delete(
    `${GROUPS}/:group/queues/:queue`,
    { config: admin, schema: deleteGroupOnQueue },
    async (request) => {
      const { group, queue } = request.params;
      const metadataDeleted = queryOf(request).flag('deleteMetadata') ?? true;
      const { cursors } = await groups.delete(request.identity.tenant, group, queue, metadataDeleted);
      return {
        success: true,
        consumerGroup: group,
        queueName: queue,
        deletedPartitions: cursors,
        metadataDeleted,
      };
    },
  );
}

function seekRoutes(app: App, groups: GroupsFace): void {
  app.post(`${GROUPS}/:group/queues/:queue/seek`, { config: write, schema: seekQueue }, async (request) => {
    const { group, queue } = request.params;
    const { target, echo } = readSeek(request.body, false);
    const { tenant } = request.identity;
    const { moved } = await groups.seek({ tenant, group, queue, partition: null, target });
    if (moved === 0) {
      throw new Fault('queue_not_found', {
        message: 'Queue not found or has no partitions',
        extra: { success: false, consumerGroup: group, queueName: queue, partitionsUpdated: 0 },
      });
    }
    return { success: true, consumerGroup: group, queueName: queue, ...echo, partitionsUpdated: moved };
  });

  app.post(
    `${GROUPS}/:group/queues/:queue/partitions/:partition/seek`,
    { config: write, schema: seekPartition },
    async (request) => {
      const { group, queue, partition } = request.params;
      const { target, echo } = readSeek(request.body, true);
      const { tenant } = request.identity;
      const { moved, resumesAt } = await groups.seek({ tenant, group, queue, partition, target });
      if (moved === 0) throw new Fault('partition_not_found', { extra: { success: false } });
      return {
        success: true,
        consumerGroup: group,
        queueName: queue,
        partitionName: partition,
        ...echo,
        resumesAt,
        updated: true,
      };
    },
  );
}

type Seek = Type.Static<typeof seekQueue.body>;

interface SeekWish {
  target: SeekTarget;
  echo: Record<string, unknown>;
}

/** One of four places to go to. On one partition an empty body means the end. */
function readSeek(given: Seek, onPartition: boolean): SeekWish {
  const wishes: SeekWish[] = [];
  const echo = { seekToEnd: false, targetTimestamp: null };
  if (given.toEnd === true) wishes.push({ target: { to: 'end' }, echo: { ...echo, seekToEnd: true } });
  if (given.toBeginning === true) {
    wishes.push({ target: { to: 'beginning' }, echo: { ...echo, seekToBeginning: true } });
  }
  if (given.timestamp !== undefined && given.timestamp !== null) {
    const target = { to: 'at', atMicros: microsOf(given.timestamp) } as const;
    wishes.push({ target, echo: { ...echo, targetTimestamp: given.timestamp } });
  }
  if (given.offset !== undefined && given.offset !== null) {
    if (!onPartition) throw badBody('offset needs a partition: it means nothing on a whole queue', 'offset');
    const offset = given.offset as number;
    wishes.push({ target: { to: 'offset', offset }, echo: { ...echo, targetOffset: offset } });
  }
  if (wishes.length > 1) throw badBody('toEnd, toBeginning, timestamp and offset exclude each other');
  if (wishes.length === 1) return wishes[0]!;
  if (onPartition) return { target: { to: 'end' }, echo: { ...echo, seekToEnd: true } };
  throw new Fault('bad_body', {
    // Programs know this text; what it leaves out stands beside it.
    message: 'Must specify toEnd=true or a timestamp',
    extra: { allowed: ['toEnd', 'toBeginning', 'timestamp'] },
  });
}

const seconds = (micros: number) => Math.floor(micros / 1_000_000);

function renderStanding(standing: GroupStanding) {
  const { group, queue, cursors, subscription } = standing;
  const maxTimeLag = seconds(standing.lagMicros);
  return {
    name: group,
    topics: [queue],
    queueName: queue,
    members: cursors,
    partitionCursors: cursors,
    partitionsWithLag: standing.behind,
    totalLag: standing.lag,
    maxTimeLag,
    state: maxTimeLag > LATE_SECONDS ? 'Lagging' : standing.consumed ? 'Stable' : 'Dead',
    storage: 'segments',
    subscriptionMode: subscription?.mode ?? null,
    subscriptionTimestamp: formatInstantOrNull(subscription?.fromMicros ?? null),
    subscriptionCreatedAt: formatInstantOrNull(subscription?.createdAtMicros ?? null),
    conflation: standing.conflation,
  };
}

function renderPartition(row: GroupPageRow) {
  return {
    partition: row.partition,
    partitionId: String(row.partitionId),
    hasCursor: row.met,
    nextOffset: row.nextOffset,
    endOffset: row.endOffset,
    offsetLag: row.lag,
    timeLagSeconds: seconds(row.lagMicros),
    totalConsumed: row.consumed,
    workerId: row.worker,
    leaseActive: row.leased,
  };
}

function renderLagging(row: LaggingPartition) {
  const late = seconds(row.lagMicros);
  return {
    consumer_group: row.group,
    queue_name: row.queue,
    partition_name: row.partition,
    partition_id: row.partitionId,
    worker_id: row.worker,
    offset_lag: row.lag,
    time_lag_seconds: late,
    lag_hours: Math.round(late / 36) / 100,
    oldest_unconsumed_at: formatInstant(row.oldestMicros),
    last_consumed_at: null,
  };
}

function renderDetail(queues: readonly GroupQueue[]) {
  // No prototype: a queue may be called like a member of one.
  const detail: Record<string, unknown> = Object.create(null);
  for (const { queue, conflation, partitions } of queues) {
    detail[queue] = {
      conflation,
      partitions: partitions.map(({ partition, worker, consumed, lag, lagMicros, leased }) => ({
        partition,
        workerId: worker,
        lastConsumedAt: null,
        totalConsumed: consumed,
        offsetLag: lag,
        timeLagSeconds: seconds(lagMicros),
        leaseActive: leased,
      })),
    };
  }
  return detail;
}
