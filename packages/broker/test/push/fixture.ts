/** Push paths (each as of a broker of its own) over one database, with what they announced. */
import { createHash } from 'node:crypto';
import type { TestContext } from 'node:test';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import { PendingBytes } from '../../src/engine/admission/pending_bytes.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { DedupCache } from '../../src/engine/dedup/cache.ts';
import { databaseWindows } from '../../src/engine/dedup/hydration.ts';
import type { Dedup } from '../../src/engine/push/flusher.ts';
import { type PushDeps, PushPath } from '../../src/engine/push/push_path.ts';
import { DEFAULT_TENANT, type PushItem, type PushResult } from '../../src/engine/types.ts';
import type { Announcement } from '../../src/engine/wake/announcer.ts';
import {
  type Database,
  type DatabaseOptions,
  type Param,
  type Queryable,
  type QueryOptions,
  type Statement,
  statement,
} from '../../src/store/database.ts';

export const QUEUE = 'orders';

/** Runs any text; the statement's name is derived from it. */
export function sql<Row extends object>(db: Queryable, text: string, params: Param[] = []): Promise<Row[]> {
  const name = `test_${createHash('sha256').update(text).digest('hex').slice(0, 32)}`;
  return db.query<Row>(statement(name, text), params);
}

/** A cache that never vouches: every verdict comes from the full probe. */
export const NO_CACHE: Dedup = {
  prepare: () => Promise.resolve(),
  vouch: () => -1,
  committed() {},
  forget() {},
};

export function cache(db: Database, maxBytes = 64 * 1024 * 1024): DedupCache {
  return new DedupCache({
    enabled: true,
    maxBytes,
    hydrate: databaseWindows(db),
    clock: systemClock,
    log: { warn() {} },
  });
}

export class Rig {
  readonly test: TestDatabase;
  readonly db: Database;
  readonly announced: Announcement[] = [];
  readonly logged: string[] = [];

  constructor(test: TestDatabase, db: Database) {
    this.test = test;
    this.db = db;
  }

  static async open(t: TestContext, overrides: Partial<DatabaseOptions> = {}): Promise<Rig> {
    const test = await freshDatabase(t);
    const db = await test.open(overrides);
    t.after(() => db.close());
    return new Rig(test, db);
  }

  path(overrides: Partial<PushDeps> = {}): PushPath {
    return new PushPath({
      db: this.db,
      admission: { run: (_lane, work) => work() },
      pending: new PendingBytes({ maxBytes: 256 * 1024 * 1024, holdMs: 100 }, systemClock),
      dedup: NO_CACHE,
      announcer: {
        pushed: (list) => void this.announced.push(...list),
        released() {},
        queueDeleted() {},
      },
      clock: systemClock,
      zstdLevel: 1,
      log: {
        warn: (_facts, message) => void this.logged.push(message),
        error: (_facts, message) => void this.logged.push(message),
      },
      ...overrides,
    });
  }

  /** The queue with this window, created when it is not there. */
  async window(seconds: number, queue = QUEUE): Promise<void> {
    await sql(
      this.db,
      `INSERT INTO queen.queues (name, dedup_window_seconds) VALUES ($1, $2::int)
       ON CONFLICT (tenant_id, name) DO UPDATE SET dedup_window_seconds = excluded.dedup_window_seconds`,
      [queue, seconds],
    );
  }

  /** The database's clock stands still from now on, at so many microseconds since 1970. */
  async stopClock(micros: number): Promise<void> {
    await this.db.query({
      name: '',
      text: `CREATE OR REPLACE FUNCTION queen.clock() RETURNS timestamptz LANGUAGE sql VOLATILE
             AS $$ SELECT queen.from_micros(${micros}) $$`,
    });
  }

  async partition(name = 'Default', queue = QUEUE): Promise<{ id: number; last_offset: number }> {
    const rows = await sql<{ id: number; last_offset: number }>(
      this.db,
      `SELECT p.id, p.last_offset FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id
        WHERE q.name = $1 AND p.name = $2`,
      [queue, name],
    );
    return rows[0]!;
  }
}

export function item(transactionId: string | null, overrides: Partial<PushItem> = {}): PushItem {
  return {
    queue: QUEUE,
    partition: 'Default',
    payload: Buffer.from(`{"n":${JSON.stringify(transactionId)}}`),
    transactionId,
    ...overrides,
  };
}

export function push(path: PushPath, items: PushItem[]): Promise<PushResult[]> {
  return path.push({ tenant: DEFAULT_TENANT, items, producerSub: null });
}

/** The same ids into one lane. */
export function pushIds(
  path: PushPath,
  ids: readonly (string | null)[],
  partition = 'Default',
): Promise<PushResult[]> {
  return push(
    path,
    ids.map((id) => item(id, { partition })),
  );
}

export function statuses(results: readonly PushResult[]): string[] {
  return results.map((result) => result.status);
}

/** The database with something in between: `before` a statement is sent, `after` it was answered. */
export function hooked(
  db: Queryable,
  hooks: {
    before?: (statement: string, params: readonly Param[]) => Promise<void> | void;
    after?: (statement: string) => Promise<void> | void;
  },
): Queryable {
  return {
    async query<Row extends object>(
      statement: Statement,
      params: readonly Param[] = [],
      options: QueryOptions = {},
    ): Promise<Row[]> {
      await hooks.before?.(statement.name, params);
      const rows = await db.query<Row>(statement, params, options);
      await hooks.after?.(statement.name);
      return rows;
    },
  };
}

/** Elements of an array parameter. */
export function lengthOf(param: Param | undefined): number {
  return (param as Buffer).readInt32BE(12);
}

/** A promise and its handle. */
export function gate(): { opened: Promise<void>; open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}
