import { boolean, decimal, integer, list, oneOf, type Setting, text } from './kinds.ts';

/**
 * Every environment variable of the broker, in one table: typed, bounded, documented. The documentation of
 * the variables is rendered from here (document.ts); ../config.ts reads them.
 */
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const GIB = 1024 ** 3;

export const SETTINGS = {
  server: {
    port: integer('PORT', {
      default: 6632,
      min: 0,
      max: 65_535,
      about: 'TCP port of the HTTP listener; 0 takes a free one and prints it',
    }),
    bindAddress: text('QUEEN_BIND_ADDR', {
      default: null,
      derived: 'every interface with JWT_ENABLED, else 127.0.0.1',
      accepts: 'a host name or an IP address without a port',
      shape: /^([A-Za-z0-9.-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?)$/,
      about: 'address to listen on',
    }),
    maxBodyBytes: integer('QUEEN_MAX_BODY_BYTES', {
      default: 67_108_864,
      min: 1024,
      max: GIB,
      about: 'a larger request body is answered 413',
    }),
    serverId: text('QUEEN_SERVER_ID', {
      default: null,
      derived: 'HOSTNAME, else queen- and 8 hex digits',
      accepts: 'up to 255 printable characters',
      shape: /^[\x21-\x7e]{1,255}$/,
      about: "this broker's name in logs, claims and metrics",
    }),
    shutdownGraceMs: integer('QUEEN_SHUTDOWN_GRACE_MS', {
      default: 20_000,
      min: 0,
      max: 600_000,
      about: 'how long a stop waits for requests in flight',
    }),
    logLevel: oneOf('LOG_LEVEL', ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
      default: 'info',
      about: 'least severe level that is logged',
    }),
    logJson: boolean('QUEEN_LOG_JSON', { default: false, about: 'one JSON object a line instead of text' }),
    logRatesMs: integer('QUEEN_LOG_RATES_MS', {
      default: 10_000,
      min: 0,
      max: HOUR_MS,
      about: 'period of the line that reports rates; 0 turns it off',
    }),
    logTopQueues: integer('QUEEN_LOG_TOPN_QUEUES', {
      default: 10,
      min: 0,
      max: 1000,
      about: 'queues that the rates line names',
    }),
  },

  postgres: {
    url: text('DATABASE_URL', {
      default: null,
      secret: true,
      about:
        'an external PostgreSQL: postgres://user:password@host:port[,host:port]/database[?sslmode=]; without it and without PG_* the bundled one runs',
    }),
    dataDirectory: text('QUEEN_DATA_DIR', {
      default: './queen-data',
      about: 'directory of the bundled database',
    }),
    host: text('PG_HOST', {
      default: null,
      about: 'host, host:port or several of them (localhost when another PG_ variable is set)',
    }),
    port: integer('PG_PORT', {
      default: null,
      min: 1,
      max: 65_535,
      about: 'port of the hosts that name none (5432)',
    }),
    user: text('PG_USER', { default: null, about: 'user (postgres)' }),
    password: text('PG_PASSWORD', { default: null, secret: true, about: 'password (postgres)' }),
    database: text('PG_DATABASE', { default: null, aliases: ['PG_DB'], about: 'database (postgres)' }),
    useSsl: boolean('PG_USE_SSL', { default: false, about: 'connect with TLS' }),
    sslRejectUnauthorized: boolean('PG_SSL_REJECT_UNAUTHORIZED', {
      default: true,
      about: "verify the server's certificate and name",
    }),
    sslRootCertificate: text('PG_SSL_ROOT_CERT', {
      default: null,
      accepts: 'PEM text',
      shape: /-----BEGIN CERTIFICATE-----[\s\S]+-----END CERTIFICATE-----/,
      about: "root certificate (default: the system's)",
    }),
    poolSize: integer('DB_POOL_SIZE', {
      default: null,
      derived: "16 a core, 24..160, at most half of an external server's max_connections",
      min: 4,
      max: 2000,
      about: 'connections of this broker',
    }),
    statementTimeoutMs: integer('QUEEN_STMT_TIMEOUT_MS', {
      default: 30_000,
      min: 100,
      max: HOUR_MS,
      about: 'a statement that takes longer is cancelled',
    }),
    applySchema: boolean('QUEEN_APPLY_SCHEMA', {
      default: true,
      about: 'apply the schema and the procedures at start',
    }),
  },

  admission: {
    min: integer('QUEEN_ADMISSION_MIN', {
      default: null,
      derived: '2/3 of (pool - reserve), at least 8',
      min: 1,
      max: 2000,
      about: 'floor of the number of database calls at a time',
    }),
    max: integer('QUEEN_ADMISSION_MAX', {
      default: null,
      derived: '8/9 of (pool - reserve), at most 128',
      min: 1,
      max: 2000,
      about: 'ceiling of the same',
    }),
    init: integer('QUEEN_ADMISSION_INIT', {
      default: null,
      derived: 'the floor',
      min: 1,
      max: 2000,
      about: 'start',
    }),
    poolReserve: integer('QUEEN_ADMISSION_POOL_RESERVE', {
      default: null,
      derived: 'a tenth of the pool, 2..16',
      min: 0,
      max: 1000,
      about: 'connections that are kept back',
    }),
    tickMs: integer('QUEEN_ADMISSION_TICK_MS', {
      default: 500,
      min: 10,
      max: 60_000,
      about: 'period of the control loop',
    }),
    trainGapMicros: integer('QUEEN_ADMISSION_TRAIN_GAP_US', {
      default: 300,
      min: 0,
      max: 100_000,
      about: 'answers so close together count as one train of commits on the metrics; nothing is held back',
    }),
    nosyncBudget: integer('QUEEN_ADMISSION_NOSYNC_BUDGET', {
      default: 64,
      min: 1,
      max: 2000,
      about: 'ceiling of the same on a server whose commits do not wait for a flush (synchronous_commit off)',
    }),
    trace: boolean('QUEEN_ADMISSION_TRACE', { default: false, about: 'log the control loop' }),
    pushPendingMb: integer('QUEEN_PUSH_PENDING_MB', {
      default: 256,
      min: 1,
      max: 65_536,
      about:
        "accepted and unanswered bytes above which a push answers 429; at most a quarter of the process's memory",
    }),
    sharePush: decimal('QUEEN_ADMISSION_SHARE_PUSH', {
      default: 0.25,
      min: 0.01,
      max: 1,
      about: 'share of push',
    }),
    sharePop: decimal('QUEEN_ADMISSION_SHARE_POP', {
      default: 0.4,
      min: 0.01,
      max: 1,
      about: 'share of pop',
    }),
    shareAck: decimal('QUEEN_ADMISSION_SHARE_ACK', {
      default: 0.3,
      min: 0.01,
      max: 1,
      about: 'share of ack',
    }),
    shareMaintenance: decimal('QUEEN_ADMISSION_SHARE_MAINT', {
      default: 0.05,
      min: 0.01,
      max: 1,
      about: 'share of background work',
    }),
  },

  push: {
    fusionShards: integer('QUEEN_V2_FUSION_SHARDS', {
      default: 8,
      min: 1,
      max: 256,
      about: 'an eighth of the bundles of pushes that may be stored at a time',
    }),
    fusionHoldMs: integer('QUEEN_V2_FUSION_HOLD_MS', {
      default: 3,
      min: 0,
      max: 1000,
      about: 'how long a push waits for company while others are being stored',
    }),
    zstdLevel: integer('QUEEN_V2_ZSTD_LEVEL', {
      default: 3,
      min: 1,
      max: 19,
      about: 'compression of segments',
    }),
    dedupCache: boolean('QUEEN_DEDUP_CACHE', {
      default: true,
      about: 'keep recent transaction ids in memory, so that most pushes need no look-up',
    }),
    dedupCacheMb: integer('QUEEN_DEDUP_CACHE_MB', {
      default: 512,
      min: 1,
      max: 262_144,
      about: 'budget of that cache',
    }),
    cacheRefreshMs: integer('QUEEN_CACHE_REFRESH_INTERVAL_MS', {
      default: 60_000,
      min: 100,
      max: HOUR_MS,
      about: 'longest age of a cached queue configuration; never more than 30000',
    }),
  },

  spool: {
    directory: text('FILE_BUFFER_DIR', {
      default: null,
      derived: '/var/lib/queen/buffers, else <QUEEN_DATA_DIR>/buffers, else a temporary one',
      about:
        'pushes that the database could not take, until it can; brokers of one machine share it, and take over what one of them left behind',
    }),
    flushMs: integer('FILE_BUFFER_FLUSH_MS', {
      default: 100,
      min: 1,
      max: 60_000,
      about: 'period in which it is tried to store them',
    }),
    maxBatch: integer('FILE_BUFFER_MAX_BATCH', {
      default: 100,
      min: 1,
      max: 10_000,
      about: 'messages a transaction while they are stored',
    }),
    eventsPerFile: integer('FILE_BUFFER_EVENTS_PER_FILE', {
      default: 10_000,
      min: 1,
      max: 1_000_000,
      about: 'messages a file',
    }),
    maxMb: integer('FILE_BUFFER_MAX_MB', {
      default: 10_240,
      min: 1,
      max: 16_777_216,
      about: 'a push that would make it larger is answered `failed`',
    }),
  },

  pop: {
    defaultTimeoutMs: integer('DEFAULT_TIMEOUT', {
      default: 30_000,
      aliases: ['POP_DEFAULT_TIMEOUT_MS'],
      min: 1,
      max: HOUR_MS,
      about: 'how long a waiting pop is held when it names no timeout',
    }),
    defaultSubscriptionMode: oneOf('DEFAULT_SUBSCRIPTION_MODE', ['new', 'all'], {
      default: 'new',
      about: 'where a new consumer group starts',
    }),
    waitInitialMs: integer('POP_WAIT_INITIAL_INTERVAL_MS', {
      default: 100,
      min: 1,
      max: 60_000,
      about: 'first re-check of a held pop',
    }),
    waitBackoffThreshold: integer('POP_WAIT_BACKOFF_THRESHOLD', {
      default: 3,
      min: 0,
      max: 1000,
      about: 're-checks before the interval grows',
    }),
    waitBackoffMultiplier: decimal('POP_WAIT_BACKOFF_MULTIPLIER', {
      default: 2,
      min: 1,
      max: 10,
      about: 'by which it grows',
    }),
    waitMaxMs: integer('POP_WAIT_MAX_INTERVAL_MS', {
      default: 1000,
      min: 1,
      max: 60_000,
      about: 'and where it stops',
    }),
    autopilot: oneOf('QUEEN_POP_AUTOPILOT', ['on', 'shadow', 'off'], {
      default: 'on',
      about: 'choose batch and partitions for pops that leave them open',
    }),
    autopilotBatch: integer('QUEEN_POP_AUTOPILOT_BATCH', {
      default: 100,
      min: 1,
      max: 100_000,
      about: 'its first batch',
    }),
    autopilotTargetAgeMs: integer('QUEEN_POP_AUTOPILOT_TARGET_AGE_MS', {
      default: 25,
      min: 1,
      max: 60_000,
      about: 'age of messages that it aims at',
    }),
    autopilotDwellMs: integer('QUEEN_POP_AUTOPILOT_DWELL_MS', {
      default: 500,
      min: 1,
      max: 60_000,
      about: 'shortest time between two changes',
    }),
    autopilotDwellPops: integer('QUEEN_POP_AUTOPILOT_DWELL_POPS', {
      default: 16,
      min: 1,
      max: 10_000,
      about: 'fewest pops between two changes',
    }),
    autopilotMaxLanes: integer('QUEEN_POP_AUTOPILOT_MAX_LANES', {
      default: 50_000,
      min: 1,
      max: 10_000_000,
      about: 'consumers that it keeps apart',
    }),
    autopilotBurstCap: integer('QUEEN_POP_AUTOPILOT_BURST_CAP', {
      default: 0,
      min: 0,
      max: 100_000,
      about: 'partitions at most; 0: no cap',
    }),
    fetchSafeFloorMs: integer('QUEEN_FETCH_SAFE_FLOOR_MS', {
      default: 30_000,
      min: 1000,
      max: HOUR_MS,
      about: 'how far back is safe for readers by time when running transactions cannot be seen',
    }),
  },

  hotlist: {
    enabled: boolean('QUEEN_HOTLIST', {
      default: true,
      about: 'keep in memory which partitions have messages',
    }),
    reseedMs: integer('QUEEN_HOTLIST_RESEED_MS', {
      default: 30_000,
      min: 100,
      max: HOUR_MS,
      about: 'period of the look at recently written partitions',
    }),
    reseedFullMs: integer('QUEEN_HOTLIST_RESEED_FULL_MS', {
      default: 300_000,
      min: 0,
      max: DAY_MS,
      about: 'period of the look at all partitions; 0: every look is a full one',
    }),
    reseedWindowMs: integer('QUEEN_HOTLIST_RESEED_WINDOW_MS', {
      default: null,
      derived: '4 times QUEEN_HOTLIST_RESEED_MS, at least 120000',
      min: 1000,
      max: DAY_MS,
      about: 'how recently written',
    }),
    windowBatch: integer('QUEEN_HOTLIST_WINDOW_BATCH', {
      default: 100,
      min: 1,
      max: 10_000,
      about: 'partitions checked at a time for queues with a window buffer',
    }),
    idleSweepMs: integer('QUEEN_HOTLIST_IDLE_SWEEP_MS', {
      default: 300_000,
      min: 1000,
      max: DAY_MS,
      about: 'an index that nobody asked for so long is dropped',
    }),
  },

  ack: {
    registry: boolean('QUEEN_ACK_REGISTRY', {
      default: true,
      about: 'remember delivered batches, so that acks need no look-up',
    }),
    registryMb: integer('QUEEN_ACK_REGISTRY_MB', {
      default: 64,
      min: 1,
      max: 65_536,
      about: 'budget of that memory',
    }),
    fusion: boolean('QUEEN_ACK_FUSION', { default: true, about: 'several acks in one commit' }),
    fusionShards: integer('QUEEN_ACK_FUSION_SHARDS', {
      default: null,
      derived: 'QUEEN_V2_FUSION_SHARDS',
      min: 1,
      max: 256,
      about: 'commits of acks at a time',
    }),
    fusionHoldMs: integer('QUEEN_ACK_FUSION_HOLD_MS', {
      default: 3,
      min: 0,
      max: 1000,
      about: 'how long an ack waits for company while others are being committed',
    }),
  },

  background: {
    retentionMs: integer('RETENTION_INTERVAL', {
      default: 5000,
      min: 100,
      max: HOUR_MS,
      about: 'period of retention',
    }),
    retentionBatch: integer('RETENTION_BATCH_SIZE', {
      default: 1000,
      min: 1,
      max: 100_000,
      about: 'segments removed a transaction',
    }),
    retentionParallelism: integer('RETENTION_PARALLELISM', {
      default: 1,
      min: 1,
      max: 16,
      about: 'partitions worked on at a time',
    }),
    retentionDueCap: integer('QUEEN_RETENTION_DUE_CAP', {
      default: null,
      derived: '5 times RETENTION_BATCH_SIZE',
      min: 1,
      max: 1_000_000,
      about: 'partitions a pass',
    }),
    retentionSafetyWalkMs: integer('QUEEN_RETENTION_SAFETY_WALK_MS', {
      default: DAY_MS,
      min: 60_000,
      max: 30 * DAY_MS,
      about: 'period of the walk over every partition',
    }),
    partitionCleanupDays: integer('PARTITION_CLEANUP_DAYS', {
      default: 30,
      min: 1,
      max: 36_500,
      about: 'an empty partition that was idle for so long is removed',
    }),
    partitionCleanup: boolean('QUEEN_PARTITION_CLEANUP_ENABLED', {
      default: true,
      about: 'remove such partitions',
    }),
    statsMs: integer('STATS_INTERVAL_MS', {
      default: 10_000,
      min: 1000,
      max: HOUR_MS,
      about: 'period of the statistics',
    }),
    retainedBytesMs: integer('RETAINED_BYTES_INTERVAL_MS', {
      default: 600_000,
      min: 1000,
      max: DAY_MS,
      about: 'period of the count of stored bytes',
    }),
    metricsFlushMs: integer('METRICS_FLUSH_MS', {
      default: 60_000,
      min: 1000,
      max: HOUR_MS,
      about: 'period at which metrics are stored',
    }),
    metricsRetentionDays: integer('METRICS_RETENTION_DAYS', {
      default: 90,
      min: 1,
      max: 3650,
      about: 'how long the history of retention and stored metrics are kept',
    }),
  },

  kv: {
    poolSize: integer('QUEEN_KV_POOL_SIZE', {
      default: null,
      derived: 'a tenth of the pool, 4..32',
      min: 1,
      max: 2000,
      about: 'connections that KV calls may use at a time',
    }),
    prefixLimit: integer('QUEEN_KV_PREFIX_LIMIT', {
      default: 1000,
      min: 1,
      max: 4096,
      about: 'keys a page of getPrefix has at most',
    }),
    maxReadBytes: integer('QUEEN_KV_MAX_READ_BYTES', {
      default: 4_194_304,
      min: 1024,
      max: GIB / 16,
      about: 'bytes of values that the reads of several keys in one call give at most',
    }),
    maxValueBytes: integer('QUEEN_KV_MAX_VALUE_BYTES', {
      default: 65_536,
      min: 1,
      max: 1_048_576,
      about: 'bytes of one value as JSON text',
    }),
    expireEveryMs: integer('QUEEN_KV_EXPIRE_EVERY_MS', {
      default: 1000,
      min: 10,
      max: HOUR_MS,
      about: 'shortest time between two deletions of expired keys',
    }),
    expireBatch: integer('QUEEN_KV_EXPIRE_BATCH', {
      default: 1000,
      min: 1,
      max: 100_000,
      about: 'keys that one of them deletes',
    }),
    usageEveryMs: integer('QUEEN_KV_USAGE_EVERY_MS', {
      default: 300_000,
      min: 1000,
      max: DAY_MS,
      about: 'period of the count of what each tenant stores',
    }),
    requireGrant: boolean('QUEEN_KV_REQUIRE_GRANT', {
      default: null,
      derived: 'QUEEN_TENANCY_HEADER',
      about: 'a tenant without a plan (a row in queen.kv_quota) may use neither KV nor timers',
    }),
    readsPerSecond: integer('QUEEN_KV_READS_PER_SEC', {
      default: 200,
      min: 0,
      max: 1_000_000,
      about: 'KV reads a second and tenant on this broker, unless its plan says otherwise; 0: no limit',
    }),
    readsBurst: integer('QUEEN_KV_READS_BURST', {
      default: 400,
      min: 1,
      max: 1_000_000,
      about: 'and so many at once after a pause',
    }),
    writesPerSecond: integer('QUEEN_KV_WRITES_PER_SEC', {
      default: 100,
      min: 0,
      max: 1_000_000,
      about: 'KV writes a second and tenant on this broker, unless its plan says otherwise; 0: no limit',
    }),
    writesBurst: integer('QUEEN_KV_WRITES_BURST', {
      default: 200,
      min: 1,
      max: 1_000_000,
      about: 'and so many at once after a pause',
    }),
    sweeper: boolean('QUEEN_SWEEPER', {
      default: true,
      about: 'this broker deletes expired keys and fires timers',
    }),
  },

  timers: {
    maxHorizonSeconds: integer('QUEEN_TIMERS_MAX_HORIZON_S', {
      default: 7_776_000,
      min: 1,
      max: 315_360_000,
      about: 'how far ahead a timer may be scheduled, in seconds, unless the plan of its tenant says less',
    }),
    maxPayloadBytes: integer('QUEEN_TIMERS_MAX_PAYLOAD_BYTES', {
      default: 1_048_576,
      min: 1,
      max: 16_777_216,
      about: "bytes of a timer's payload, compressed or not",
    }),
    minSleepMs: integer('QUEEN_SWEEPER_MIN_SLEEP_MS', {
      default: 5,
      min: 1,
      max: 10_000,
      about: 'shortest pause between two looks for due timers',
    }),
    maxSleepMs: integer('QUEEN_SWEEPER_MAX_SLEEP_MS', {
      default: 1000,
      min: 1,
      max: HOUR_MS,
      about: 'longest pause while timers are scheduled',
    }),
    idleMaxSleepMs: integer('QUEEN_SWEEPER_IDLE_MAX_SLEEP_MS', {
      default: 30_000,
      min: 1,
      max: HOUR_MS,
      about: 'longest pause while none are',
    }),
    idleAfterCycles: integer('QUEEN_SWEEPER_IDLE_AFTER_CYCLES', {
      default: 5,
      min: 1,
      max: 1_000_000,
      about: 'looks in a row that find no timer before the pause becomes that long',
    }),
    leaseMs: integer('QUEEN_SWEEPER_LEASE_MS', {
      default: 30_000,
      min: 1000,
      max: HOUR_MS,
      about: 'how long a due timer is held for its fire; after a crash it fires that much later',
    }),
    claimBatch: integer('QUEEN_SWEEPER_CLAIM_BATCH', {
      default: 200,
      min: 1,
      max: 4096,
      about: 'due timers that are taken at a time',
    }),
    cycleMaxRows: integer('QUEEN_SWEEPER_CYCLE_MAX_ROWS', {
      default: 5000,
      min: 1,
      max: 10_000_000,
      about: 'timers that are fired without a pause',
    }),
    maxFireBytes: integer('QUEEN_SWEEPER_MAX_FIRE_BYTES', {
      default: 8_388_608,
      min: 1024,
      max: GIB / 8,
      about: 'bytes of payload in one fire',
    }),
    parallelism: integer('QUEEN_SWEEPER_PARALLELISM', {
      default: 1,
      min: 1,
      max: 16,
      about: 'fires at a time; above 1, timers of one partition may enter it out of the order of their times',
    }),
    maxAttempts: integer('QUEEN_SWEEPER_MAX_ATTEMPTS', {
      default: 5,
      min: 1,
      max: 1000,
      about: 'failures after which a timer becomes a dead letter',
    }),
  },

  connectors: {
    enabled: boolean('QUEEN_PG_CONNECTORS', {
      default: true,
      about: 'run PostgreSQL connectors on this broker; their API is there either way',
    }),
    threads: integer('QUEEN_PG_THREADS', {
      default: 2,
      min: 1,
      max: 16,
      about:
        'taken from other brokers of this family and shown by `/status`: connectors share the thread of the broker',
    }),
    reloadMs: integer('QUEEN_PG_RELOAD_MS', {
      default: 5000,
      min: 500,
      max: 60_000,
      about: 'period at which the connector documents are read',
    }),
    leaseTtlMs: integer('QUEEN_PG_LEASE_TTL_MS', {
      default: 10_000,
      min: 3000,
      max: 120_000,
      about: 'how long a broker that died keeps the sources that it ran',
    }),
    shutdownGraceMs: integer('QUEEN_PG_SHUTDOWN_GRACE_MS', {
      default: 10_000,
      min: 0,
      max: 120_000,
      about: 'how long a stop waits for what connectors have under way',
    }),
    allowPrivate: boolean('QUEEN_PG_ALLOW_PRIVATE_NETWORKS', {
      default: null,
      derived: 'true; false with QUEEN_TENANCY_HEADER',
      about: 'connectors may reach loopback, private and link-local addresses',
    }),
  },

  security: {
    encryptionKey: text('QUEEN_ENCRYPTION_KEY', {
      default: null,
      secret: true,
      accepts: '64 hex digits',
      shape: /^[0-9a-fA-F]{64}$/,
      about: 'key of encrypted queues and of the passwords of connectors',
    }),
    tenancyHeader: boolean('QUEEN_TENANCY_HEADER', {
      default: false,
      about: 'take the tenant from the header x-queen-tenant; needs QUEEN_KV_TRUSTED_PROXY',
    }),
    trustedProxy: boolean('QUEEN_KV_TRUSTED_PROXY', {
      default: false,
      about:
        'asserts that only a proxy reaches this broker, and that it sets or removes x-queen-tenant itself',
    }),
  },

  auth: {
    enabled: boolean('JWT_ENABLED', { default: false, about: 'ask every caller for a token' }),
    algorithm: oneOf(
      'JWT_ALGORITHM',
      ['HS256', 'HS384', 'HS512', 'RS256', 'RS384', 'RS512', 'EdDSA', 'auto'],
      {
        default: 'HS256',
        about: 'what a token may be signed with; RS256 also takes RS384 and RS512, auto takes all of them',
      },
    ),
    secret: text('JWT_SECRET', {
      default: null,
      secret: true,
      verbatim: true,
      about: 'secret of the HS family, byte for byte',
    }),
    publicKey: text('JWT_PUBLIC_KEY', {
      default: null,
      accepts: 'PEM',
      about: 'public key of the RS family or EdDSA; goes before the JWKS',
    }),
    jwksUrl: text('JWT_JWKS_URL', {
      default: null,
      accepts: 'an http or https URL',
      shape: /^https?:\/\/[^\s/]\S*$/,
      about: 'where the public keys of the issuer are fetched from',
    }),
    jwksRefreshSeconds: integer('JWT_JWKS_REFRESH_INTERVAL', {
      default: 3600,
      min: 1,
      max: 604_800,
      about: 'how often, in seconds',
    }),
    jwksTimeoutMs: integer('JWT_JWKS_TIMEOUT_MS', {
      default: 5000,
      min: 1,
      max: 60_000,
      about: 'how long a fetch may take',
    }),
    issuer: text('JWT_ISSUER', { default: null, about: 'what `iss` must be' }),
    audience: text('JWT_AUDIENCE', { default: null, about: 'what `aud` must be or contain' }),
    clockSkewSeconds: integer('JWT_CLOCK_SKEW', {
      default: 30,
      min: 0,
      max: 86_400,
      about: "how far the issuer's clock may be off, in seconds",
    }),
    roleClaim: text('JWT_ROLES_CLAIM', { default: 'role', about: 'claim with one role as a string' }),
    rolesClaim: text('JWT_ROLES_ARRAY_CLAIM', {
      default: 'roles',
      about: 'claim with an array of roles',
    }),
    roleAdmin: text('JWT_ROLE_ADMIN', { default: 'admin', about: 'what the role is called that may do all' }),
    roleReadWrite: text('JWT_ROLE_READ_WRITE', {
      default: 'read-write',
      about: 'what the role of producers and consumers is called',
    }),
    roleReadOnly: text('JWT_ROLE_READ_ONLY', {
      default: 'read-only',
      about: 'what the role is called that may look at everything',
    }),
    roleWriteOnly: text('JWT_ROLE_WRITE_ONLY', {
      default: 'write-only',
      about: 'what the role is called that may only push and schedule',
    }),
    skipPaths: list('JWT_SKIP_PATHS', {
      default: ['/health', '/metrics/prometheus', '/metrics', '/'],
      about: 'paths that need no token; one that ends in a slash means all below it too; empty: none',
    }),
  },
} as const satisfies Record<string, Record<string, Setting<unknown>>>;

type Table = typeof SETTINGS;
type ValueOf<S> = S extends Setting<infer T> ? T : never;

/** The table's values by group and key. Null: not set, or decided later. */
export type Values = {
  readonly [G in keyof Table]: { readonly [K in keyof Table[G]]: ValueOf<Table[G][K]> };
};
