import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type PoolPlan, planPool } from '../config/pool.ts';
import type { Config } from '../config.ts';
import type { Log } from '../observability/log.ts';
import { Database, type DatabaseOptions, statement } from '../store/database.ts';
import { EmbeddedServer } from '../store/embedded/server.ts';
import { StoreError } from '../store/errors.ts';
import { hostName } from '../store/hosts.ts';
import type { Stop } from './stop.ts';

/** The settings contradict what the server allows; each fault is a line that names its variable. */
export class ConfigFaults extends Error {
  readonly faults: readonly string[];

  constructor(faults: readonly string[]) {
    super(faults.join('\n'));
    this.name = 'ConfigFaults';
    this.faults = faults;
  }
}

export interface OpenedDatabase {
  options: DatabaseOptions;
  plan: PoolPlan;
  /** For people: what the broker stores into. Never holds a password. */
  description: string;
}

/** Starts the bundled server or meets the external one, and settles how many connections to use. */
export function openDatabase(config: Config, log: Log, stop: Stop): Promise<OpenedDatabase> {
  return config.database.kind === 'embedded'
    ? startEmbedded(config, config.database.directory, log, stop)
    : meetExternal(config, config.database, log, stop);
}

async function startEmbedded(
  config: Config,
  directory: string,
  log: Log,
  stop: Stop,
): Promise<OpenedDatabase> {
  const plan = planned(config, null);
  const server = await EmbeddedServer.start({ directory, poolSize: plan.poolSize, log });
  stop.add('bundled PostgreSQL', () => server.stop());
  const { sizing } = server;
  log.info(
    {
      pid: server.pid,
      maxConnections: sizing.maxConnections,
      sharedBuffersMb: sizing.sharedBuffersMb,
      maxWalMb: sizing.maxWalMb,
      checkpointSeconds: sizing.checkpointTimeoutSeconds,
    },
    `bundled PostgreSQL ${server.version} is up`,
  );
  const { hosts, database, user } = server.connection;
  return {
    options: { ...common(config, plan, log), hosts, database, user, password: null, ssl: false },
    plan,
    description: `${resolve(directory)} (bundled PostgreSQL ${server.version})`,
  };
}

type External = Extract<Config['database'], { kind: 'external' }>;

const LIMIT = statement(
  'boot_limits',
  `SELECT current_setting('max_connections')::int AS max, current_setting('synchronous_commit') <> 'off' AS durable`,
);

/** A database that starts together with the broker may need a moment. */
const MEET_MS = 60_000;
const MEET_PAUSE_MS = 1_000;

async function meetExternal(config: Config, choice: External, log: Log, stop: Stop): Promise<OpenedDatabase> {
  const { kind: _kind, ...target } = choice;
  const hosts = target.hosts.map(hostName).join(', ');
  const least = { poolSize: 1, reserve: 0, min: 1, max: 1, init: 1 };
  const deadline = performance.now() + MEET_MS;
  for (;;) {
    stop.throwIfAsked();
    try {
      const { max, durable } = await limitsOf({ ...common(config, least, log), ...target });
      const plan = planned(config, max, durable);
      if (!durable) {
        log.warn({ hosts }, 'commits of this database do not wait for the disk: a crash of it loses pushes');
      }
      return {
        options: { ...common(config, plan, log), ...target },
        plan,
        description: `database ${target.database} at ${hosts}`,
      };
    } catch (error) {
      const temporary = error instanceof StoreError && error.kind === 'unavailable';
      if (!temporary || performance.now() > deadline) throw error;
      log.warn({ hosts, reason: error.message }, 'the database does not answer yet');
      await Promise.race([sleep(MEET_PAUSE_MS), stop.asked]);
    }
  }
}

async function limitsOf(options: DatabaseOptions): Promise<{ max: number; durable: boolean }> {
  const database = await Database.open(options);
  try {
    const [row] = await database.query<{ max: number; durable: boolean }>(LIMIT, [], { readOnly: true });
    return row!;
  } finally {
    await database.close();
  }
}

function planned(config: Config, maxConnections: number | null, durable = true): PoolPlan {
  const plan = planPool(config, config.machine.cores, maxConnections, durable);
  if ('faults' in plan) throw new ConfigFaults(plan.faults);
  return plan;
}

function common(config: Config, plan: PoolPlan, log: Log) {
  return {
    poolSize: plan.poolSize,
    statementTimeoutMs: config.postgres.statementTimeoutMs,
    applicationName: `queen ${config.server.serverId}`.slice(0, 63),
    log,
  };
}
