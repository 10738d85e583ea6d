import { randomBytes } from 'node:crypto';
import { availableParallelism, totalmem } from 'node:os';
import { accessFaults, accessWarnings } from './config/access.ts';
import { type DatabaseChoice, databaseChoice } from './config/database.ts';
import type { Setting } from './config/kinds.ts';
import { SETTINGS, type Values } from './config/settings.ts';

/**
 * Reads the environment by the table in config/settings.ts. A value that does not fit stops the boot and names
 * the variable and what it may be; there is no silent fall back to a default.
 */

/** Names that other brokers of this family know and that mean nothing here. */
const WITHOUT_MEANING: readonly [RegExp, string][] = [
  [/^QUEEN_(MESH_PORT|MESH_PEERS|SYNC_SECRET|SYNC_ENABLED)$/, 'brokers meet through the database'],
  [/^QUEEN_V2_FUSION_FRAMES$/, 'a flush takes what has arrived'],
  [/^QUEEN_POP_PENDING_GATE$/, 'a pop looks at the ready index in memory first, always'],
  [
    /^QUEEN_POP_FUSION(_SHARDS|_HOLD_MS|_MAX_JOBS|_CONCURRENCY)?$/,
    'a pop claims all of its partitions in one statement',
  ],
  [/^QUEEN_HOTLIST_SHARDS$/, 'one thread works on the ready index'],
  [/^QUEEN_HOTLIST_UNSERVED_TRIM_MS$/, 'an index that nobody asks for goes as a whole'],
  [/^RUST_LOG$/, 'use LOG_LEVEL'],
];

/** The values with everything decided that can be before the database is known. */
export interface Config extends Omit<Values, 'server' | 'hotlist' | 'ack' | 'background' | 'connectors'> {
  readonly server: Omit<Values['server'], 'bindAddress' | 'serverId'> & {
    bindAddress: string;
    serverId: string;
  };
  readonly hotlist: Omit<Values['hotlist'], 'reseedWindowMs'> & { reseedWindowMs: number };
  readonly ack: Omit<Values['ack'], 'fusionShards'> & { fusionShards: number };
  readonly connectors: Omit<Values['connectors'], 'allowPrivate'> & { allowPrivate: boolean };
  readonly background: Omit<Values['background'], 'retentionDueCap'> & { retentionDueCap: number };
  readonly database: DatabaseChoice;
  readonly machine: Machine;
}

export interface Machine {
  cores: number;
  /** What this process may use. */
  memoryBytes: number;
}

export type LoadedConfig =
  | { ok: true; config: Config; warnings: string[] }
  | { ok: false; faults: string[]; warnings: string[] };

/**
 * Reads the environment. Each fault is a line of its own that names the variable, the value (unless it is a
 * secret) and what is allowed; all of them are found in one go.
 */
export function loadConfig(env: NodeJS.ProcessEnv, machine: Machine = thisMachine()): LoadedConfig {
  const faults: string[] = [];
  const warnings: string[] = [];
  const values = readTable(env, faults, warnings);
  warnAboutStrangers(env, warnings);

  const database = databaseChoice(values.postgres, faults, warnings);
  faults.push(...accessFaults(values));
  const { admission } = values;
  const shares = admission.sharePush + admission.sharePop + admission.shareAck + admission.shareMaintenance;
  if (shares > 1.0001) {
    faults.push(
      `QUEEN_ADMISSION_SHARE_PUSH, _POP, _ACK and _MAINT add up to ${shares.toFixed(2)} (expected at most 1)`,
    );
  }
  const pendingMbMax = Math.max(1, Math.floor(machine.memoryBytes / 4 / 1024 / 1024));
  if (database === null || faults.length > 0) return { ok: false, faults, warnings };
  const config: Config = {
    ...values,
    server: {
      ...values.server,
      bindAddress: values.server.bindAddress ?? (values.auth.enabled ? '0.0.0.0' : '127.0.0.1'),
      serverId: values.server.serverId ?? (env.HOSTNAME?.trim() || `queen-${randomBytes(4).toString('hex')}`),
    },
    admission: { ...admission, pushPendingMb: Math.min(admission.pushPendingMb, pendingMbMax) },
    hotlist: {
      ...values.hotlist,
      reseedWindowMs: values.hotlist.reseedWindowMs ?? Math.max(120_000, 4 * values.hotlist.reseedMs),
    },
    ack: { ...values.ack, fusionShards: values.ack.fusionShards ?? values.push.fusionShards },
    connectors: {
      ...values.connectors,
      allowPrivate: values.connectors.allowPrivate ?? !values.security.tenancyHeader,
    },
    background: {
      ...values.background,
      retentionDueCap: values.background.retentionDueCap ?? 5 * values.background.retentionBatch,
    },
    database,
    machine,
  };
  warnings.push(...accessWarnings(values, config.server.bindAddress));
  return { ok: true, config, warnings };
}

function readTable(env: NodeJS.ProcessEnv, faults: string[], warnings: string[]): Values {
  const values: Record<string, Record<string, unknown>> = {};
  for (const [group, settings] of Object.entries(SETTINGS)) {
    const read: Record<string, unknown> = {};
    for (const [key, setting] of Object.entries(settings)) {
      read[key] = readSetting(setting as Setting<unknown>, env, faults, warnings);
    }
    values[group] = read;
  }
  return values as Values;
}

function readSetting(
  setting: Setting<unknown>,
  env: NodeJS.ProcessEnv,
  faults: string[],
  warnings: string[],
): unknown {
  // Empty means not set, as compose files and shells write it.
  const name = [setting.name, ...setting.aliases].find((candidate) =>
    setting.verbatim ? env[candidate] !== undefined : env[candidate]?.trim(),
  );
  if (name === undefined) return setting.default;
  const given = setting.verbatim ? env[name]! : env[name]!.trim();
  const result = setting.read(given);
  if ('fault' in result) {
    faults.push(`${name}=${setting.secret ? '(not shown)' : JSON.stringify(given)} ${result.fault}`);
    return setting.default;
  }
  if (setting.later) warnings.push(`${name} has no effect yet`);
  return result.value;
}

function warnAboutStrangers(env: NodeJS.ProcessEnv, warnings: string[]): void {
  const known = new Set(
    Object.values(SETTINGS)
      .flatMap((settings) => Object.values(settings) as Setting<unknown>[])
      .flatMap((setting) => [setting.name, ...setting.aliases]),
  );
  for (const name of Object.keys(env).sort()) {
    if (known.has(name)) continue;
    const reason = WITHOUT_MEANING.find(([shape]) => shape.test(name))?.[1];
    if (reason !== undefined) warnings.push(`${name} has no meaning here: ${reason}`);
    else if (/^(QUEEN|JWT)_/.test(name)) warnings.push(`${name} is unknown and has no effect`);
  }
}

export function thisMachine(): Machine {
  const limit = process.constrainedMemory();
  return {
    cores: availableParallelism(),
    memoryBytes: limit > 0 ? Math.min(limit, totalmem()) : totalmem(),
  };
}
