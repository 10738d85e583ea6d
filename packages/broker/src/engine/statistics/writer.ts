/**
 * Writes down what this broker has counted: just after each multiple of the period by the database's clock, so that a
 * minute's numbers are one flush of each broker. A reader may have what is there written sooner.
 *
 * Exactly once. A flush is numbered and kept until the database has said yes; one whose answer was lost is sent again
 * with its number, and the database knows it. Meanwhile the ledger goes on counting, so an outage costs the resolution of
 * its time and no count. One that the database refuses for what is in it is dropped, with a line in the log: it would be
 * refused for ever.
 */
import { randomUUID } from 'node:crypto';
import type { Queryable } from '../../store/database.ts';
import { StoreError } from '../../store/errors.ts';
import type { StoreLog } from '../../store/log.ts';
import { type Flush, flushMetrics } from '../../store/metrics.ts';
import type { Clock, Timer } from '../clock.ts';
import type { TenantId } from '../types.ts';
import { CpuShare, type Gauges, GaugeWindow, type Look } from './gauges.ts';
import type { Ledger, QueueCounts, Taken } from './ledger.ts';

export interface WriterSettings {
  flushMs: number;
}

export interface WriterDeps {
  ledger: Ledger;
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  clock: Clock;
  log: StoreLog;
  /** Names this broker among the others. */
  server: string;
  settings: WriterSettings;
  /** Of the database, in microseconds; null: not known yet. */
  databaseNow: () => number | null;
  /** Pops that wait right now. */
  parked: () => Iterable<{ tenant: TenantId; queue: string; pops: number }>;
  pool: () => { size: number; idle: number; active: number };
  loopLagMs: () => number;
  /** Failed statements since the start. */
  databaseErrors: () => number;
}

/** Queues in one statement. */
const QUEUES_A_FLUSH = 2_000;
/** Behind the boundary, so that a clock a little off does not flush just before it. */
const SETTLE_MS = 50;
/** How fresh a reader wants gauges and waiting pops, when nothing was answered since. */
const GAUGES_MS = 1_000;
/** A stop waits so long for a database that does not answer. */
const STOP_MS = 2_000;
const LOOK_MS = { least: 200, most: 5_000 };

export class MetricsWriter {
  readonly #deps: WriterDeps;
  readonly #writer = randomUUID();
  readonly #cpu = new CpuShare();
  readonly #window = new GaugeWindow();
  readonly #lookMs: number;
  #seq = 0;
  #looks = 0;
  #takenAt: number;
  #errors = 0;
  #unsent: (Omit<Flush, 'ageMs'> & { endedAt: number })[] = [];
  #running: Promise<void> | null = null;
  #timers: Timer[] = [];
  #active = false;
  #early = false;

  constructor(deps: WriterDeps) {
    this.#deps = deps;
    this.#takenAt = deps.clock.now();
    this.#lookMs = Math.min(LOOK_MS.most, Math.max(LOOK_MS.least, deps.settings.flushMs / 12));
    deps.ledger.onFull = () => this.#soon();
  }

  start(): void {
    if (this.#active) return;
    this.#active = true;
    this.#look();
    this.#plan();
  }

  /** Writes what is left, if the database takes it soon. */
  async stop(): Promise<void> {
    for (const timer of this.#timers) timer.cancel();
    this.#timers = [];
    if (!this.#active) return;
    this.#active = false;
    const { clock, log } = this.#deps;
    const late = Promise.withResolvers<void>();
    const timer = clock.after(STOP_MS, late.resolve);
    const last = this.#rest().catch((err) => log.warn({ err }, 'the last numbers were not written down'));
    await Promise.race([last, late.promise]);
    timer.cancel();
  }

  /** Writes what was counted until now. Rejects when the database did not take it; then it is kept. */
  flush(): Promise<void> {
    this.#running ??= this.#flush().finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  /** For a reader: whatever this broker has answered before is written down. Never rejects. */
  async freshen(): Promise<void> {
    await this.#rest().catch((err) => this.#deps.log.warn({ err }, 'numbers not written down yet'));
  }

  async #rest(): Promise<void> {
    // That one may have begun before the last answer.
    await this.#running?.catch(() => {});
    const { clock, ledger } = this.#deps;
    const recent = clock.now() - this.#takenAt < GAUGES_MS;
    if (recent && ledger.empty && this.#unsent.length === 0) return;
    await this.flush();
  }

  async #flush(): Promise<void> {
    // What an outage has left goes first: as long as the database does not take it, the ledger goes on counting.
    await this.#send();
    this.#pack();
    await this.#send();
  }

  async #send(): Promise<void> {
    while (this.#unsent.length > 0) {
      const { endedAt, ...flush } = this.#unsent[0]!;
      try {
        await this.#deps.run((db) =>
          flushMetrics(db, { ...flush, ageMs: Math.max(0, this.#deps.clock.now() - endedAt) }),
        );
      } catch (error) {
        if (!(error instanceof StoreError) || error.kind !== 'refused') throw error;
        this.#deps.log.error({ err: error }, 'numbers that the database refuses are dropped');
      }
      this.#unsent.shift();
    }
  }

  #pack(): void {
    const { clock, ledger, server, databaseErrors } = this.#deps;
    this.#note();
    const now = clock.now();
    const elapsedMs = now - this.#takenAt;
    this.#takenAt = now;
    const taken = ledger.take();
    const { looks, gauges } = this.#window.take();
    const errors = databaseErrors();
    const broker = brokerRow(taken, errors - this.#errors, looks, gauges);
    this.#errors = errors;
    const queues = taken.queues.map(({ place, counts }) => {
      // Pops of a queue are looked at as often as the broker looks, whether one waited or not.
      if (counts.parkedSum > 0) counts.parkedLooks = this.#looks;
      return { ...place, ...row(counts) };
    });
    this.#looks = 0;
    for (let from = 0; from === 0 || from < queues.length; from += QUEUES_A_FLUSH) {
      this.#unsent.push({
        writer: this.#writer,
        seq: ++this.#seq,
        server,
        elapsedMs,
        endedAt: now,
        broker: from === 0 ? broker : null,
        queues: queues.slice(from, from + QUEUES_A_FLUSH),
      });
    }
  }

  #look(): void {
    if (!this.#active) return;
    this.#note();
    this.#timers[0] = this.#deps.clock.after(this.#lookMs, () => this.#look());
  }

  #note(): void {
    const { ledger, parked, pool, loopLagMs } = this.#deps;
    const { user, system } = this.#cpu.read();
    const { size, idle, active } = pool();
    const look: Look = {
      cpuUser: user,
      cpuSystem: system,
      rssBytes: process.memoryUsage.rss(),
      poolSize: size,
      poolIdle: idle,
      poolActive: active,
      loopLagMs: loopLagMs(),
    };
    this.#window.note(look);
    this.#looks++;
    for (const { tenant, queue, pops } of parked()) ledger.parked(tenant, queue, pops);
  }

  #plan(): void {
    if (!this.#active) return;
    const { clock, databaseNow, settings, log } = this.#deps;
    const nowMs = (databaseNow() ?? Date.now() * 1000) / 1000;
    const wait = settings.flushMs - (nowMs % settings.flushMs) + SETTLE_MS;
    this.#timers[1] = clock.after(wait, () => {
      this.flush()
        .catch((err) => log.warn({ err }, 'numbers not written down, the next period tries again'))
        .finally(() => this.#plan());
    });
  }

  /** There is no room for more names. */
  #soon(): void {
    if (this.#early || !this.#active) return;
    this.#early = true;
    setImmediate(() => {
      this.#early = false;
      this.flush().catch((err) => this.#deps.log.warn({ err }, 'numbers not written down yet'));
    });
  }
}

/** Columns of queen.queue_metrics; zeros are left out. */
function row(counts: QueueCounts): Record<string, number> {
  const columns: Record<string, number> = {};
  for (const [name, value] of Object.entries(counts)) if (value !== 0) columns[column(name)] = value;
  return columns;
}

/** What a broker's row has of its sums; the rest is by queue only. */
const BROKER_COUNTS = [
  'pushRequests',
  'pushMessages',
  'popRequests',
  'popMessages',
  'popEmpty',
  'ackRequests',
  'ackMessages',
  'ackSuccess',
  'ackFailed',
  'dlq',
  'transactions',
  'lagCount',
  'lagSumUs',
  'lagMaxUs',
] as const;

function brokerRow(
  { totals }: Taken,
  databaseErrors: number,
  looks: number,
  gauges: Gauges,
): Record<string, number | number[]> {
  const counts = BROKER_COUNTS.map((name) => [name, totals[name]] as const);
  const all = { ...Object.fromEntries(counts), ...gauges };
  const columns = Object.entries(all).map(([name, value]) => [column(name), value] as const);
  return { ...Object.fromEntries(columns), uptime_s: process.uptime(), db_errors: databaseErrors, looks };
}

function column(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
