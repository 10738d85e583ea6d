import type { Broker } from '../engine/broker.ts';
import type { Scraped } from '../engine/statistics/scrape.ts';
import type { FamilyName } from '../observability/families.ts';
import type { Metrics, Reading, Sample } from '../observability/metrics.ts';

/** Families that are read from the database: left out of a scrape that it does not answer. */
export function registerStatistics(metrics: Metrics, broker: Pick<Broker, 'scrape'>): void {
  for (const [name, read] of Object.entries(FAMILIES_READ)) {
    metrics.source(name as FamilyName, async () => read(await broker.scrape.read()));
  }
}

type Read = (scraped: Scraped) => Reading;
type Totals = NonNullable<Scraped['totals']>;

const cluster =
  (name: keyof Totals): Read =>
  ({ totals }) =>
    totals === null ? null : [{ labels: { scope: 'cluster' }, value: totals[name] }];

type Minute = Scraped['minutes'][number];

const busy = ({ pushRequests, pushMessages, popMessages, popEmpty, ackSuccess, ackFailed }: Minute) =>
  pushRequests + pushMessages + popMessages + popEmpty + ackSuccess + ackFailed > 0;

/** Queues that pops merely wait for have no line of these. */
const traffic =
  (value: (minute: Minute) => number): Read =>
  ({ minutes }) =>
    minutes.filter(busy).map((each) => ({ labels: { queue: each.queue }, value: value(each) }));

const minute =
  (value: (minute: Minute) => number): Read =>
  ({ minutes }) =>
    minutes.map((each) => ({ labels: { queue: each.queue }, value: value(each) }));

const backlog =
  (name: 'pending' | 'partitions' | 'dead'): Read =>
  ({ backlogs }) =>
    backlogs.map((each) => ({ labels: { queue: each.queue }, value: each[name] }));

const group =
  (value: (group: Scraped['groups'][number]) => number): Read =>
  ({ groups }) =>
    groups.map((each) => ({ labels: { queue: each.queue, group: each.group }, value: value(each) }));

const FAMILIES_READ: { readonly [K in FamilyName]?: Read } = {
  queen_cluster_push_requests_total: cluster('push_requests'),
  queen_cluster_push_messages_total: cluster('push_messages'),
  queen_cluster_pop_requests_total: cluster('pop_requests'),
  queen_cluster_pop_messages_total: cluster('pop_messages'),
  queen_cluster_ack_requests_total: cluster('ack_requests'),
  queen_cluster_ack_messages_total: cluster('ack_messages'),
  queen_cluster_ack_total: ({ totals }) =>
    totals === null
      ? null
      : (['success', 'failed'] as const).map((result) => ({
          labels: { scope: 'cluster', result },
          value: totals[`ack_${result}`],
        })),
  queen_cluster_transactions_total: cluster('transactions'),
  queen_cluster_dlq_total: cluster('dlq'),
  queen_cluster_db_errors_total: cluster('db_errors'),

  queen_queue_push_requests_per_minute: traffic(({ pushRequests }) => pushRequests),
  queen_queue_push_messages_per_minute: traffic(({ pushMessages }) => pushMessages),
  queen_queue_pop_messages_per_minute: traffic(({ popMessages }) => popMessages),
  queen_queue_pop_empty_per_minute: traffic(({ popEmpty }) => popEmpty),
  queen_queue_transactions_per_minute: traffic(({ transactions }) => transactions),
  queen_queue_ack_per_minute: ({ minutes }) =>
    minutes.filter(busy).flatMap(({ queue, ackSuccess, ackFailed }) => [
      { labels: { queue, result: 'success' }, value: ackSuccess },
      { labels: { queue, result: 'failed' }, value: ackFailed },
    ]),
  queen_queue_conflated_per_minute: traffic(({ conflated }) => conflated),
  queen_queue_pop_lag_milliseconds: ({ minutes }) =>
    minutes.flatMap(({ queue, lagCount, lagSumMicros, lagMaxMicros }): Sample[] =>
      lagCount === 0
        ? []
        : [
            { labels: { queue, stat: 'avg' }, value: lagSumMicros / lagCount / 1000 },
            { labels: { queue, stat: 'max' }, value: lagMaxMicros / 1000 },
          ],
    ),
  queen_queue_parked_consumers: minute(({ parked }) => parked),
  queen_queue_metrics_age_seconds: minute(({ ageMs }) => ageMs / 1000),

  queen_stats_age_seconds: ({ statsAgeMs }) => (statsAgeMs === null ? null : statsAgeMs / 1000),
  queen_queue_pending_messages: backlog('pending'),
  queen_queue_partitions: backlog('partitions'),
  queen_group_lag_messages: group(({ lag }) => lag),
  queen_group_lag_partitions: group(({ behind }) => behind),
  queen_group_lag_seconds: group(({ lagMs }) => lagMs / 1000),
  queen_dlq_depth: ({ deadLetters }) => [{ labels: { scope: 'cluster' }, value: deadLetters }],
  queen_dlq_depth_by_queue: ({ backlogs }) =>
    backlogs.flatMap(({ queue, dead }) => (dead === 0 ? [] : [{ labels: { queue }, value: dead }])),
  queen_kv_expired_not_pruned: ({ kvExpired }) => kvExpired.expired,
  queen_kv_expired_not_pruned_capped: ({ kvExpired }) => (kvExpired.capped ? 1 : 0),
};
