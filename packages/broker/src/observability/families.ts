/**
 * Every metric family of the broker in one table: name, type, labels, meaning. A family appears in the exposition
 * as soon as somebody has registered a source for it (see metrics.ts). Names are public: dashboards and alerts
 * depend on them.
 */

export interface Family {
  readonly type: 'counter' | 'gauge';
  readonly labels: readonly string[];
  readonly help: string;
}

function counter(help: string, ...labels: string[]): Family {
  return { type: 'counter', labels, help };
}

function gauge(help: string, ...labels: string[]): Family {
  return { type: 'gauge', labels, help };
}

export const FAMILIES = {
  // The process.
  queen_uptime_seconds: gauge('Seconds since this process started'),
  queen_process_resident_memory_bytes: gauge('Resident set size of this process'),
  queen_event_loop_lag_avg_milliseconds: gauge(
    'Mean scheduling delay of the event loop over the last seconds',
  ),
  queen_event_loop_lag_max_milliseconds: gauge(
    'Longest scheduling delay of the event loop over the last seconds',
  ),

  // Traffic since the process started.
  queen_process_push_requests_total: counter('Push requests answered by this process'),
  queen_process_push_messages_total: counter('Messages in the push requests of this process'),
  queen_process_pop_requests_total: counter('Pop requests answered by this process'),
  queen_process_pop_messages_total: counter('Messages delivered by this process'),
  queen_process_ack_requests_total: counter('Ack requests answered by this process'),
  queen_process_ack_messages_total: counter('Acknowledgements in the ack requests of this process'),
  queen_push_results_total: counter('Items of push answers by status', 'status'),
  queen_ack_failed_total: counter('Acknowledgements that were answered with success false'),
  queen_ack_unfenced_total: counter('Acknowledgements that came without a lease id and so were not fenced'),
  queen_http_answers_total: counter('HTTP answers by class of status', 'class'),
  queen_http_refused_total: counter('Requests refused before a handler ran, by reason', 'reason'),
  queen_http_connections: gauge('Open client connections'),
  queen_http_requests_in_flight: gauge('Requests received and not answered yet, parked long polls included'),
  queen_http_body_bytes: gauge('Bytes of request bodies held in memory'),

  // Connectors, by name, and by tenant unless it is the default one.
  queen_pg_source_transactions_total: counter(
    'Transactions of the source database that became messages',
    'connector',
    'tenant',
  ),
  queen_pg_source_messages_total: counter(
    'Messages that a source has committed, those of its snapshot included',
    'connector',
    'tenant',
  ),
  queen_pg_source_bundles_total: counter('Commits of a source', 'connector', 'tenant'),
  queen_pg_source_snapshot_rows_total: counter(
    'Rows that the snapshot of a source has read',
    'connector',
    'tenant',
  ),
  queen_pg_source_slot_lag_bytes: gauge(
    'WAL that the slot of a source holds back, on the broker that runs it',
    'connector',
    'tenant',
  ),
  queen_pg_source_pointer_lsn: gauge(
    'Position in the WAL up to which a source is in its queues',
    'connector',
    'tenant',
  ),
  queen_pg_sink_applied_total: counter('Messages that a sink has applied', 'connector', 'tenant'),
  queen_pg_sink_skipped_total: counter(
    'Redelivered messages that a sink had applied before',
    'connector',
    'tenant',
  ),
  queen_pg_sink_dlq_total: counter('Messages that a sink has made dead letters', 'connector', 'tenant'),
  queen_pg_sink_batches_total: counter('Batches that a sink has finished', 'connector', 'tenant'),
  queen_pg_connector_errors_total: counter('Errors that a connector has shown', 'connector', 'tenant'),
  queen_pg_connector_owner: gauge('1 on a broker that runs the connector', 'connector', 'tenant'),

  // Pop.
  queen_parked_long_polls: gauge('Waiting pops', 'queue'),
  queen_pop_targeted_total: counter('Pops of one named partition'),
  queen_pop_wildcard_total: counter('Pops of any partition of a queue or scope'),
  queen_pop_empty_total: counter('Pops that delivered nothing'),
  queen_pop_fill_wait_total: counter('Pops held back by minPopWaitTime'),
  queen_pop_fill_wait_microseconds_total: counter('Time that pops were held back by minPopWaitTime'),
  queen_pop_autopilot_choices_total: counter(
    'Choices of batch and partitions that the autopilot computed. Not applied: it is in the shadow',
    'applied',
  ),
  queen_pop_autopilot_partitions: gauge('Partitions that it chose recently', 'quantile'),
  queen_pop_redelivered_messages_total: counter('Messages delivered with an attempt above 1'),
  queen_pop_repeated_offset_total: counter('Batches delivered ten times or more without being settled'),
  queen_corrupt_segments_total: counter('Stored segments that could not be decoded'),
  queen_file_buffer_pending: gauge('Messages on the disk of this broker that wait for the database'),
  queen_file_buffer_failed: gauge(
    'Messages on the disk of this broker that cannot be stored and were put aside',
  ),
  queen_file_buffer_db_healthy: gauge('1 while the database takes what this broker gives it'),
  queen_file_buffer_bytes: gauge(
    'Bytes of the messages on the disk of this broker that wait for the database',
  ),
  queen_file_buffer_kept_total: counter(
    'Messages kept on disk: the database did not take them, or they came behind such ones or in maintenance mode',
    'reason',
  ),
  queen_file_buffer_drained_total: counter('Messages taken off the disk, by what became of them', 'outcome'),
  queen_file_buffer_refused_total: counter('Messages that the disk did not take either'),
  queen_maintenance_mode_enabled: gauge('1 while pushes are paused and go to the spool'),
  queen_pop_maintenance_mode_enabled: gauge('1 while every pop is answered as if there were nothing'),
  queen_sealed_payloads_unopened_total: counter(
    'Encrypted payloads that were delivered as they are stored, since the key of this broker does not open them',
  ),

  // The hot list and wakes.
  queen_hotlist_rings: gauge('Rings of ready partitions in memory, one a queue and group'),
  queen_hotlist_entries: gauge('Partitions marked ready over all rings'),
  queen_hotlist_reseeds_total: counter('Rings filled again from the database', 'kind'),
  queen_hotlist_dry_claims_total: counter('Candidates of a ring that had nothing to claim'),
  queen_wake_sent_total: counter('Announcements sent to the other brokers'),
  queen_wake_received_total: counter('Announcements received from the other brokers'),
  queen_wake_reconnects_total: counter('Times that the listening connection was opened anew'),
  queen_wake_connected: gauge('1 while the listening connection is up'),

  // Batching towards the database.
  queen_batches_fired_total: counter('Fused database calls', 'op'),
  queen_batch_items_fired_total: counter('Items in fused database calls', 'op'),
  queen_fusion_items_per_batch: gauge('Mean number of items in recent fused calls', 'op'),
  queen_batch_rtt_milliseconds: gauge('Duration of recent fused calls', 'op', 'quantile'),

  // Admission and the pool.
  queen_admission_budget: gauge('Database calls admitted at once'),
  queen_admission_inflight: gauge('Admitted and not finished', 'lane'),
  queen_admission_waiting: gauge('Waiting for a slot', 'lane'),
  queen_admission_refused_total: counter('Requests refused because too much was in flight'),
  queen_admission_trains_per_s: gauge('Bursts of answers to calls that commit: flushes that carry the load'),
  queen_admission_txn_per_train: gauge('Calls that share such a burst'),
  queen_admission_cycle_ms: gauge('Mean time from one to the next'),
  queen_push_pending_bytes: gauge('Accepted and unanswered bytes of pushes'),
  queen_db_pool_size: gauge('Database connections, open or to be opened'),
  queen_db_pool_idle: gauge('Database connections without work'),
  queen_db_pool_active: gauge('Database connections at work'),
  queen_db_pool_waiting: gauge('Callers waiting for a database connection'),
  queen_db_statements_total: counter('Statements sent to the database by this process'),

  // Deduplication.
  queen_dedup_suppressed_partitions: gauge('Partitions that the memory gate of the dedup cache keeps out'),
  queen_dedup_resident_partitions: gauge('Partitions whose dedup window is in memory'),
  queen_dedup_cache_bytes: gauge('Memory taken by the dedup cache'),
  queen_dedup_vouched_total: counter('Flushes whose hashes the dedup cache vouched for'),
  queen_dedup_probed_total: counter('Flushes that the database had to probe'),
  queen_dedup_hydrations_total: counter('Dedup windows loaded from the database', 'outcome'),

  // The ack registry.
  queen_ack_registry_bytes: gauge('Memory taken by the registry of delivered batches'),
  queen_ack_registry_hits_total: counter('Acknowledgements settled by position'),
  queen_ack_registry_misses_total: counter('Acknowledgements that needed their hashes resolved'),

  // Transactions and KV.
  queen_transactions_total: counter('Transactions by outcome: committed, or why they were not', 'outcome'),
  queen_kv_pool: gauge('Connections of the KV share, by state; waiting counts callers', 'state'),
  queen_kv_ops_total: counter('KV operations by outcome', 'operation', 'outcome'),
  queen_kv_bytes_total: counter('Bytes of KV values by direction', 'direction'),
  queen_kv_read_rejected_total: counter('KV calls that were turned away, by reason', 'reason'),
  queen_kv_expired_total: counter('Expired keys deleted by this process'),
  queen_kv_expiry_lag_seconds: gauge('How long the oldest key of the last sweep had been expired'),
  queen_kv_expired_not_pruned: gauge('Expired keys that are still there, counted up to a bound'),
  queen_kv_expired_not_pruned_capped: gauge('1 when more of them may be there than were counted'),
  queen_kv_op_duration_milliseconds: gauge(
    'Duration of recent KV calls with such an operation in them',
    'operation',
    'quantile',
  ),
  queen_kv_singleflight_coalesced_total: counter('Reads that shared the query of another; none do here'),

  // Sums over all brokers, from the database: equal on each, and they outlive it.
  queen_cluster_push_requests_total: counter('Push requests answered by all brokers', 'scope'),
  queen_cluster_push_messages_total: counter('Messages stored by pushes and transactions', 'scope'),
  queen_cluster_pop_requests_total: counter('Pop requests answered by all brokers', 'scope'),
  queen_cluster_pop_messages_total: counter('Messages delivered by all brokers', 'scope'),
  queen_cluster_ack_requests_total: counter('Ack requests answered by all brokers', 'scope'),
  queen_cluster_ack_messages_total: counter(
    'Acknowledgements, and messages that were committed at delivery',
    'scope',
  ),
  queen_cluster_ack_total: counter(
    'Acknowledgements by result. Failed: by the consumer, or refused',
    'scope',
    'result',
  ),
  queen_cluster_transactions_total: counter('Transactions that were committed', 'scope'),
  queen_cluster_dlq_total: counter('Messages that became dead letters', 'scope'),
  queen_cluster_db_errors_total: counter('Statements that failed', 'scope'),

  // Queues: what passed in the newest minute of the last five, over all brokers; and how old that is.
  queen_queue_push_requests_per_minute: gauge('Push requests for the queue', 'queue'),
  queen_queue_push_messages_per_minute: gauge('Messages stored in the queue', 'queue'),
  queen_queue_pop_messages_per_minute: gauge('Messages delivered from the queue', 'queue'),
  queen_queue_pop_empty_per_minute: gauge('Pops of the queue that delivered nothing', 'queue'),
  queen_queue_transactions_per_minute: gauge('Transactions that pushed to the queue or acked of it', 'queue'),
  queen_queue_ack_per_minute: gauge('Acknowledgements by result', 'queue', 'result'),
  queen_queue_conflated_per_minute: gauge('Messages that conflation skipped', 'queue'),
  queen_queue_pop_lag_milliseconds: gauge('How old messages were when they were delivered', 'queue', 'stat'),
  queen_queue_parked_consumers: gauge('Pops that waited, on average', 'queue'),
  queen_queue_metrics_age_seconds: gauge('How old these figures are', 'queue'),

  // Where things stand, as of the last refresh of the statistics.
  queen_stats_age_seconds: gauge('How old the last refresh of the statistics is'),
  queen_queue_pending_messages: gauge('Messages that the furthest-behind group has before it', 'queue'),
  queen_queue_partitions: gauge('Partitions of the queue', 'queue'),
  queen_group_lag_messages: gauge('Messages that a group has before it', 'queue', 'group'),
  queen_group_lag_partitions: gauge('Partitions with something left for the group', 'queue', 'group'),
  queen_group_lag_seconds: gauge('How long the oldest of them has waited', 'queue', 'group'),
  queen_dlq_depth: gauge('Dead letters', 'scope'),
  queen_dlq_depth_by_queue: gauge('Dead letters of the queue', 'queue'),

  // Timers.
  queen_timers_due: gauge('Timers that are due and not fired, counted up to a bound'),
  queen_timers_due_capped: gauge('1 when more of them may be due than were counted'),
  queen_timers_oldest_late_seconds: gauge('How late the latest of the due timers is'),
  queen_timers_fire_lag_seconds: gauge(
    'How late timers of this process fired recently',
    'tenant',
    'quantile',
  ),
  queen_timers_fire_lag_tenants_dropped_total: counter('Fired timers whose tenant found no room in the lag'),
  queen_timers_operations_total: counter('Operations on timers by what came of them', 'outcome'),
  queen_timers_fired_total: counter(
    'Claimed timers by what came of them: fired, found to be claimed by another broker, or given back',
    'outcome',
  ),
  queen_timers_dlq_total: counter('Timers that became dead letters'),
  queen_timers_fire_failures_total: counter(
    'Fires that failed, by kind and SQLSTATE class',
    'kind',
    'sqlstate',
  ),
  queen_timers_poisoned_total: counter('Failures of single timers that were their own fault'),
  queen_timers_schedule_rejected_total: counter(
    'Calls that schedule and were turned away, by reason',
    'reason',
  ),
  queen_sweeper_cycle_milliseconds: gauge('Duration of the last cycle of the timers'),
  queen_sweeper_sleep_milliseconds: gauge('Pause before the next one'),
  queen_sweeper_rows_total: counter('Rows that were swept, by phase', 'phase'),
  queen_sweeper_skip_locked_total: counter('Due timers that were passed by, since another broker had them'),
  queen_sweeper_phase_skipped_total: counter(
    'Phases that were left out, since they are switched off',
    'phase',
  ),

  // Retention.
  queen_retention_passes_total: counter('Retention passes of this process'),
  queen_retention_messages_total: counter('Messages deleted by retention', 'rule'),
  queen_retention_partitions_removed_total: counter('Idle empty partitions removed'),
} as const satisfies Record<string, Family>;

export type FamilyName = keyof typeof FAMILIES;
