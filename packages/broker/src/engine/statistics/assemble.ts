/** The statistics of one broker, put together: what it counts, writes down, has counted and reads. */
import type { Database, Queryable } from '../../store/database.ts';
import type { StoreLog } from '../../store/log.ts';
import type { Clock } from '../clock.ts';
import type { MaintenanceDeps } from '../retention/maintenance_loop.ts';
import type { BrokerFace } from '../types.ts';
import type { Wake } from '../wake/wake.ts';
import { Ledger } from './ledger.ts';
import { StatsRefresh } from './refresh.ts';
import { Scrape } from './scrape.ts';
import { Statistics } from './statistics.ts';
import { MetricsWriter } from './writer.ts';

export interface StatisticsSettings {
  /** Period of the rollup, over all brokers together. */
  refreshMs: number;
  /** Period at which each broker writes down what it has counted. */
  flushMs: number;
}

export interface StatisticsParts {
  db: Database;
  background: MaintenanceDeps;
  wake: Wake;
  clock: Clock;
  log: StoreLog;
  server: string;
  loopLagMs: () => number;
  settings: StatisticsSettings;
}

type Counted = Pick<BrokerFace, 'push' | 'pop' | 'ack' | 'transaction'>;

export function assembleStatistics(parts: StatisticsParts) {
  const { db, background, wake, clock, log, server, loopLagMs, settings } = parts;
  const run = <T>(work: (on: Queryable) => Promise<T>) =>
    background.admission.run('maintenance', () => work(db));
  // Ages of messages, before the database's clock is known, by this machine's.
  const ledger = new Ledger(() => wake.time.now() ?? Date.now() * 1000);
  const writer = new MetricsWriter({
    ledger,
    run,
    clock,
    log,
    server,
    settings,
    databaseNow: () => wake.time.now(),
    parked: () => parkedQueues(wake),
    pool: () => db.stats(),
    loopLagMs,
    databaseErrors: () => db.errors.refused + db.errors.unavailable + db.errors.in_doubt,
  });
  const refresh = new StatsRefresh(background, { intervalMs: settings.refreshMs });
  const statistics = new Statistics({
    run,
    freshen: () => writer.freshen(),
    refresh: () => refresh.refresh(),
  });
  return { ledger, writer, refresh, statistics, scrape: new Scrape(run, clock) };
}

/** The same calls, noted in the ledger when they are answered. */
export function counted(face: Counted, ledger: Ledger): Counted {
  return {
    push: noted(face.push, (request, results) => ledger.pushed(request, results)),
    pop: noted(face.pop, (request, answer) => ledger.popped(request, answer)),
    ack: noted(face.ack, (request, verdicts) => ledger.acked(request, verdicts)),
    transaction: noted(face.transaction, (request, answer) => ledger.transacted(request, answer)),
  };
}

function noted<Request, Answer>(
  call: (request: Request) => Promise<Answer>,
  note: (request: Request, answer: Answer) => void,
): (request: Request) => Promise<Answer> {
  return async (request) => {
    const answer = await call(request);
    note(request, answer);
    return answer;
  };
}

/** Of parked pops those that wait for one queue; a discovery scope is none. */
function* parkedQueues(wake: Wake): Generator<{ tenant: string; queue: string; pops: number }> {
  for (const { key, pops } of wake.parking.counts()) {
    const [tenant, queue, ...more] = key.split('\u001f');
    if (more.length === 0) yield { tenant: tenant!, queue: queue!, pops };
  }
}
