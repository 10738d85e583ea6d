/** GET and DELETE under /api/v1/resources: what queues there are, what is in them, and their end. */
import type { StandingQueue } from '../../engine/statistics/face.ts';
import type {
  BrokerFace,
  Grouping,
  PartitionStats,
  QueueDepth,
  QueueDetail,
  QueueSummary,
} from '../../engine/types.ts';
import { formatInstant, formatInstantOrNull } from '../../log/instants.ts';
import {
  deleteQueue,
  inspectQueue,
  listNamespaces,
  listQueues,
  listTasks,
  queueDepth,
} from '../api/queues.ts';
import type { App } from '../app.ts';
import { Fault } from '../errors.ts';
import { checkedName, queryName } from '../names.ts';
import { queryOf } from '../query.ts';

const read = { level: 'read-only' } as const;
const EVERY_QUEUE = { queue: null, namespace: null, task: null };
const QUEUES_MAX = 1_000_000;

export function resourceRoutes(app: App, broker: BrokerFace): void {
  app.get('/api/v1/resources/queues', { config: read, schema: listQueues }, async (request) => {
    const query = queryOf(request);
    const { tenant } = request.identity;
    const beside = await broker.statistics.beside(tenant);
    if (query.text('stats') !== 'cached') {
      return { queues: (await broker.listQueues(tenant)).map(renderSummary), ...beside };
    }
    const page = { search: null, sort: 'name', descending: false, limit: QUEUES_MAX, skip: 0 } as const;
    const { queues } = await broker.statistics.queues(tenant, EVERY_QUEUE, page);
    return { queues: queues.map(renderStanding), ...beside };
  });

  app.get('/api/v1/resources/queues/:queue', { config: read, schema: inspectQueue }, async (request) => {
    const queue = checkedName(request.params.queue, 'queue');
    const detail = await broker.inspectQueue(request.identity.tenant, queue);
    if (detail === null) throw new Fault('queue_not_found');
    return renderDetail(detail);
  });

  app.get('/api/v1/resources/queues/:queue/depth', { config: read, schema: queueDepth }, async (request) => {
    const queue = checkedName(request.params.queue, 'queue');
    const group = queryName(queryOf(request), 'group');
    const depth = await broker.queueDepth(request.identity.tenant, queue, group);
    if (depth === null) throw new Fault('queue_not_found');
    return renderDepth(queue, group, depth);
  });

  const admin = { level: 'admin' } as const;
  app.delete('/api/v1/resources/queues/:queue', { config: admin, schema: deleteQueue }, async (request) => {
    const queue = checkedName(request.params.queue, 'queue');
    if (await broker.deleteQueue(request.identity.tenant, queue))
      return { deleted: true, queue, existed: true };
    return { deleted: false, queue, existed: false, message: 'Queue not found, nothing was deleted' };
  });

  app.get('/api/v1/resources/namespaces', { config: read, schema: listNamespaces }, async ({ identity }) => {
    return {
      namespaces: (await broker.namespaces(identity.tenant)).map((each) => renderGrouping('namespace', each)),
    };
  });

  app.get('/api/v1/resources/tasks', { config: read, schema: listTasks }, async ({ identity }) => {
    return { tasks: (await broker.tasks(identity.tenant)).map((each) => renderGrouping('task', each)) };
  });
}

function renderSummary(queue: QueueSummary) {
  const { createdAtMicros, ...rest } = queue;
  return { ...rest, createdAt: formatInstant(createdAtMicros) };
}

function renderStanding(queue: StandingQueue) {
  const { id, name, namespace, task, partitions, total, pending, processing, retainedBytes, segments } =
    queue;
  return {
    id: String(id),
    name,
    namespace,
    task,
    partitions,
    retainedBytes,
    segments: { segments, messages: total },
    messages: { total, pending, processing },
    createdAt: formatInstant(queue.createdAtMicros),
  };
}

function renderStats(stats: PartitionStats) {
  const { total, pending, processing, completed, deadLetter } = stats;
  return { total, pending, processing, completed, failed: null, deadLetter };
}

function renderDetail(queue: QueueDetail) {
  return {
    id: queue.id,
    name: queue.name,
    namespace: queue.options.namespace,
    task: queue.options.task,
    createdAt: formatInstant(queue.createdAtMicros),
    options: queue.options,
    partitions: queue.partitions.map((partition) => ({
      id: partition.id,
      name: partition.name,
      createdAt: formatInstant(partition.createdAtMicros),
      stats: renderStats(partition.stats),
      oldestMessage: formatInstantOrNull(partition.oldestMessageMicros),
      newestMessage: formatInstantOrNull(partition.newestMessageMicros),
    })),
    totals: renderStats(queue.totals),
    retainedBytes: queue.retainedBytes,
    segments: queue.segments,
  };
}

function renderDepth(queue: string, group: string | null, depth: QueueDepth) {
  const partitions = depth.partitions.map(({ partition, pending, processing }) => {
    const leased = Math.min(processing, pending);
    return { partition, pending, processing: leased, ready: pending - leased };
  });
  const sum = (key: 'pending' | 'processing' | 'ready') =>
    partitions.reduce((total, each) => total + each[key], 0);
  const partitionsPending = partitions.filter((each) => each.pending > 0).length;
  const partitionsReady = partitions.filter((each) => each.ready > 0).length;
  const pending = sum('pending');
  const ready = sum('ready');
  return {
    queue,
    group,
    pending,
    processing: sum('processing'),
    ready,
    partitionsPending,
    partitionsReady,
    conflation: depth.conflation,
    effectivePending: depth.conflation ? partitionsPending : pending,
    effectiveReady: depth.conflation ? partitionsReady : ready,
    partitions,
  };
}

function renderGrouping(key: 'namespace' | 'task', { name, queues, partitions, messages }: Grouping) {
  return { [key]: name, queues, partitions, messages };
}
