/** One statement of the schema: tried again while others hold its locks, with an eye on who they are. */
import type { Connection } from './connection.ts';
import { StoreError } from './errors.ts';
import type { StoreLog } from './log.ts';

/** An index on a large table takes as long as it takes. */
const STATEMENT_MS = 4 * 3_600_000;
const PAUSE_MS = 300;
const LOOK_AFTER_MS = 1_000;

export interface StatementContext {
  readonly connection: Connection;
  /** Opens a second connection, to look at who blocks the first. */
  readonly observe: () => Promise<Connection>;
  readonly log: StoreLog;
  /** How long a statement that does not get its locks is tried again. */
  readonly retryMs: number;
}

/**
 * Throws a StoreError. After lock timeouts its message names the sessions that were in the way; `where` is
 * the file and line.
 */
export async function applyStatement(context: StatementContext, text: string, where: string): Promise<void> {
  const deadline = performance.now() + context.retryMs;
  let blockers: string[] = [];
  for (let attempt = 1; ; attempt++) {
    const watch = attempt === 1 ? undefined : watchBlockers(context);
    try {
      await context.connection.run({ name: '', text }, [], { timeoutMs: STATEMENT_MS, position: 'alone' });
      return;
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      const seen = await watch?.stop();
      if (seen !== undefined && seen.length > 0) blockers = seen;
      if (!isWorthRepeating(error) || performance.now() > deadline) throw failure(error, where, blockers);
      context.log.warn(
        { where, attempt, blockers, sqlState: error.sqlState },
        'schema statement waits for a lock',
      );
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * (0.5 + Math.random())));
    } finally {
      await watch?.stop();
    }
  }
}

/** XX000 "tuple concurrently updated": two sessions replaced the same function; the lock should prevent it. */
function isWorthRepeating(error: StoreError): boolean {
  const state = error.sqlState;
  return state === '55P03' || state === '40P01' || state === '40001' || state === 'XX000';
}

function failure(error: StoreError, where: string, blockers: readonly string[]): StoreError {
  const by = blockers.length === 0 ? '' : `; blocked by ${blockers.join(', ')}`;
  return new StoreError(error.kind, error.code, `schema ${where}: ${error.message}${by}`, {
    sqlState: error.sqlState,
    detail: error.detail,
    cause: error,
  });
}

interface Watch {
  stop(): Promise<string[]>;
}

/** Looks once, a second into the wait of an attempt. Its own failures only cost the names. */
function watchBlockers(context: StatementContext): Watch {
  let seen: string[] = [];
  let looking: Promise<void> | undefined;
  const timer = setTimeout(() => {
    looking = blockersOf(context).then(
      (found) => {
        seen = found;
      },
      () => {},
    );
  }, LOOK_AFTER_MS);
  return {
    async stop() {
      clearTimeout(timer);
      await looking;
      return seen;
    },
  };
}

async function blockersOf(context: StatementContext): Promise<string[]> {
  const connection = await context.observe();
  try {
    const rows = (await connection.run(
      {
        name: '',
        text: `SELECT a.pid, coalesce(a.usename, '-') AS role, coalesce(a.application_name, '') AS application,
                      coalesce(a.state, a.backend_type) AS state,
                      extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.backend_start))::bigint AS seconds
                 FROM pg_stat_activity a WHERE a.pid = ANY (pg_blocking_pids($1::int)) ORDER BY a.pid LIMIT 10`,
      },
      [context.connection.processId],
      { timeoutMs: 2_000, position: 'inside' },
    )) as { pid: number; role: string; application: string; state: string; seconds: number }[];
    return rows.map(
      (row) =>
        `pid ${row.pid} (${row.role}${row.application && `, ${row.application}`}, ${row.state} for ${row.seconds} s)`,
    );
  } finally {
    void connection.close();
  }
}
