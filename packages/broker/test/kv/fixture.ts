/** KV paths (each as of a broker of its own) over one database, and short ways to write operations. */
import type { TestContext } from 'node:test';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import { type Clock, systemClock } from '../../src/engine/clock.ts';
import { KvExpiry } from '../../src/engine/kv/expiry.ts';
import { Kv, type KvSettings } from '../../src/engine/kv/kv.ts';
import type {
  KvAnswer,
  KvEntry,
  KvOperation,
  KvPrecondition,
  KvResult,
  Origin,
} from '../../src/engine/kv/operations.ts';
import { Quotas } from '../../src/engine/kv/quotas.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import type { Database, DatabaseOptions } from '../../src/store/database.ts';

export type Written = Extract<KvResult, { applied: boolean }>;

/** Any result, for tests that know which one they asked for. */
export interface Loose {
  entry: KvEntry;
  rows: KvEntry[];
  missing: string[];
  truncated: boolean;
  nextAfter: string | null;
  applied: boolean;
  value: string | null;
  version: number;
  reason: string | null;
}

type Eight<T> = [T, T, T, T, T, T, T, T];

export interface RigOptions {
  settings?: Partial<KvSettings>;
  requireGrant?: boolean;
  clock?: Clock;
  database?: Partial<DatabaseOptions>;
}

class HandSwitch {
  #on = true;

  async on(): Promise<boolean> {
    return this.#on;
  }

  set(on: boolean): void {
    this.#on = on;
  }
}

export class Rig {
  readonly test: TestDatabase;
  readonly db: Database;
  readonly kv: Kv;
  readonly quotas: Quotas;
  readonly expiry: KvExpiry;
  readonly enabled = new HandSwitch();

  constructor(test: TestDatabase, db: Database, options: RigOptions) {
    this.test = test;
    this.db = db;
    const clock = options.clock ?? systemClock;
    this.quotas = new Quotas({
      read: (work) => work(db),
      clock,
      requireGrant: options.requireGrant ?? false,
    });
    this.expiry = new KvExpiry({
      run: (work) => work(db),
      clock,
      settings: { everyMs: 20, batchRows: 1000 },
      log: { warn() {} },
    });
    this.kv = new Kv({
      db,
      quotas: this.quotas,
      enabled: this.enabled,
      expiry: this.expiry,
      clock,
      settings: {
        valueBytesMax: 65_536,
        readBytesMax: 4_194_304,
        pageMax: 1000,
        connections: 8,
        reads: null,
        writes: null,
        ...options.settings,
      },
    });
  }

  static async open(t: TestContext, options: RigOptions = {}): Promise<Rig> {
    return Rig.on(t, await freshDatabase(t), options);
  }

  /** Another broker over the same database. */
  static async on(t: TestContext, test: TestDatabase, options: RigOptions = {}): Promise<Rig> {
    const db = await test.open(options.database);
    t.after(() => db.close());
    return new Rig(test, db, options);
  }

  call(operations: KvOperation[], tenant = DEFAULT_TENANT, origin: Origin = 'client'): Promise<KvAnswer> {
    return this.kv.kv({ tenant, origin, operations });
  }

  async results(...operations: KvOperation[]): Promise<KvResult[]> {
    const answer = await this.call(operations);
    if (!answer.ok) throw new Error(`precondition: ${JSON.stringify(answer.precondition)}`);
    return answer.results;
  }

  async loose(...operations: KvOperation[]): Promise<Eight<Loose>> {
    return (await this.results(...operations)) as unknown as Eight<Loose>;
  }

  async write(operation: KvOperation): Promise<Written> {
    return (await this.results(operation))[0] as Written;
  }

  async get(key: string, ns = NS): Promise<KvEntry | null> {
    const [result] = await this.results({ op: 'get', ns, key });
    return (result as Extract<KvResult, { op: 'get' }>).entry;
  }

  async value(key: string): Promise<string | null> {
    return (await this.get(key))?.value ?? null;
  }

  async lost(...operations: KvOperation[]): Promise<KvPrecondition> {
    const answer = await this.call(operations);
    if (answer.ok) throw new Error('the call was applied');
    return answer.precondition;
  }
}

export const NS = 'n';

export function keysOf(rows: readonly { key: string }[]): string[] {
  return rows.map((row) => row.key);
}

type Put = Extract<KvOperation, { op: 'put' }>;
type Incr = Extract<KvOperation, { op: 'incr' }>;
type Delete = Extract<KvOperation, { op: 'delete' }>;

export function put(key: string, value: unknown, more: Partial<Put> = {}): Put {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return { op: 'put', ns: NS, key, value: text, life: null, expect: null, required: false, ...more };
}

export function putIfAbsent(key: string, value: unknown, more: { life?: number; required?: boolean } = {}) {
  return {
    op: 'putIfAbsent' as const,
    ns: NS,
    key,
    value: JSON.stringify(value),
    life: more.life ?? null,
    required: more.required ?? false,
  };
}

export function incr(key: string, delta: number | string, more: Partial<Incr> = {}): Incr {
  return {
    op: 'incr',
    ns: NS,
    key,
    delta: String(delta),
    life: null,
    min: null,
    max: null,
    required: false,
    ...more,
  };
}

export function remove(key: string, more: Partial<Delete> = {}): Delete {
  return { op: 'delete', ns: NS, key, expect: null, required: false, ...more };
}

export function get(key: string) {
  return { op: 'get' as const, ns: NS, key };
}

export function getMany(...keys: string[]) {
  return { op: 'getMany' as const, ns: NS, keys };
}

export function getPrefix(
  prefix: string,
  more: { after?: string; limit?: number; keysOnly?: boolean; ns?: string } = {},
) {
  return {
    op: 'getPrefix' as const,
    ns: more.ns ?? NS,
    prefix,
    after: more.after ?? null,
    limit: more.limit ?? null,
    keysOnly: more.keysOnly ?? false,
  };
}
