/**
 * How large the embedded server is, derived from the machine that it shares with the broker and whatever
 * else runs there. A dedicated database server would take a quarter of the memory for its buffers; this one
 * takes an eighth and leaves the page cache the rest.
 */
export interface Machine {
  /** What this process may use: the machine's memory, or the container's limit when that is lower. */
  memoryBytes: number;
  /** Free on the disk of the data directory. */
  freeDiskBytes: number;
}

export interface Sizing {
  maxConnections: number;
  sharedBuffersMb: number;
  effectiveCacheMb: number;
  maintenanceWorkMb: number;
  /** Log kept between checkpoints; recovery after a crash replays at most about this much. */
  maxWalMb: number;
  minWalMb: number;
  checkpointTimeoutSeconds: number;
}

const MB = 1024 * 1024;

/**
 * @param poolSize connections that the broker's pool may open. Beyond them there is room for sessions of
 *   their own (listeners, replication) and for a person with a client.
 */
export function sizeServer(machine: Machine, poolSize: number): Sizing {
  const memoryMb = Math.floor(machine.memoryBytes / MB);
  const freeMb = Math.floor(machine.freeDiskBytes / MB);
  // One gigabyte is what the load tests ran with; more did not help them.
  const maxWalMb = clamp(Math.floor(freeMb / 16), 128, 4096);
  return {
    maxConnections: Math.max(100, poolSize + 40),
    sharedBuffersMb: clamp(Math.floor(memoryMb / 8), 32, 1024),
    effectiveCacheMb: clamp(Math.floor(memoryMb / 2), 64, 65_536),
    maintenanceWorkMb: clamp(Math.floor(memoryMb / 64), 16, 512),
    maxWalMb,
    minWalMb: clamp(Math.floor(maxWalMb / 8), 80, 512),
    checkpointTimeoutSeconds: 600,
  };
}

/**
 * Settings for the server's command line, where nothing in a configuration file can override them.
 *
 * @param durable false only for a server that tests throw away.
 */
export function serverSettings(sizing: Sizing, durable: boolean): Record<string, string> {
  const promise = durable ? 'on' : 'off';
  return {
    fsync: promise,
    synchronous_commit: promise,
    full_page_writes: promise,
    wal_level: 'logical',
    max_wal_senders: '10',
    max_replication_slots: '10',
    listen_addresses: '',
    // Relative to the data directory: a socket's path may have no more than 107 bytes.
    unix_socket_directories: '.',
    unix_socket_permissions: '0700',
    max_connections: String(sizing.maxConnections),
    shared_buffers: `${sizing.sharedBuffersMb}MB`,
    effective_cache_size: `${sizing.effectiveCacheMb}MB`,
    maintenance_work_mem: `${sizing.maintenanceWorkMb}MB`,
    max_wal_size: `${sizing.maxWalMb}MB`,
    min_wal_size: `${sizing.minWalMb}MB`,
    checkpoint_timeout: `${sizing.checkpointTimeoutSeconds}s`,
    // Rows of partitions and consumers are rewritten by every push and ack; vacuum is told to come by count.
    autovacuum_naptime: '10s',
    random_page_cost: '1.1',
    jit: 'off',
    // Statements are short; parallel workers would only take cores from other sessions.
    max_parallel_workers_per_gather: '0',
    // Refused statements are reported by whoever sent them; the file is for what the server itself has to say.
    log_min_messages: 'warning',
    log_min_error_statement: 'panic',
    log_timezone: 'UTC',
    timezone: 'UTC',
  };
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}
