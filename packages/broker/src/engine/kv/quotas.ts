/**
 * What tenants may use and do use, as of the last look (30 s) plus what this broker added since. Soft by design: several
 * brokers may overshoot together, and the next count sets it right.
 *
 * The local addition is taken back only when a newer count arrives, since until then the old count lacks it.
 */
import type { Queryable } from '../../store/database.ts';
import { type QuotaRow, readQuotas } from '../../store/kv.ts';
import type { Clock } from '../clock.ts';
import { kvRefused } from './faults.ts';

export const QUOTA_REFRESH_MS = 30_000;

interface Added {
  rows: number;
  bytes: number;
  timers: number;
  /** Of the count that these are added to. */
  sinceMicros: number | null;
}

export interface QuotaDeps {
  read: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  clock: Clock;
  /** A tenant without a plan may do nothing. */
  requireGrant: boolean;
}

export class Quotas {
  readonly #deps: QuotaDeps;
  #rows: Map<string, QuotaRow> = new Map();
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | null = null;
  readonly #added = new Map<string, Added>();

  constructor(deps: QuotaDeps) {
    this.#deps = deps;
  }

  /** Null: no plan and no use. Throws what the store throws when nothing was ever read. */
  async of(tenant: string): Promise<QuotaRow | null> {
    if (this.#deps.clock.now() - this.#readAt >= QUOTA_REFRESH_MS) {
      this.#reading ??= this.refresh().finally(() => {
        this.#reading = null;
      });
      // An old plan is better than none while the database does not answer.
      if (this.#readAt === Number.NEGATIVE_INFINITY) await this.#reading;
      else await this.#reading.catch(() => {});
    }
    return this.#rows.get(tenant) ?? null;
  }

  /** Throws the EngineError `feature_gated` when the tenant has no plan and needs one, or one that is switched off. */
  async granted(tenant: string): Promise<QuotaRow | null> {
    const row = await this.of(tenant);
    const enabled = row?.enabled ?? null;
    if (enabled === false || (enabled === null && this.#deps.requireGrant)) {
      throw kvRefused('feature_gated', 'the plan of this tenant does not include it');
    }
    return row;
  }

  /** What the tenant's KV may still grow by; null: unlimited. */
  left(row: QuotaRow | null): { rows: number | null; bytes: number | null } {
    if (row === null) return { rows: null, bytes: null };
    const added = this.#addedTo(row);
    return {
      rows: row.maxRows === null ? null : row.maxRows - row.kvRows - added.rows,
      bytes: row.maxBytes === null ? null : row.maxBytes - row.kvBytes - added.bytes,
    };
  }

  /** How many more timers the tenant may have pending; null: any number. */
  timersLeft(row: QuotaRow | null): number | null {
    if (row === null || row.maxTimers === null) return null;
    return row.maxTimers - row.timerRows - this.#addedTo(row).timers;
  }

  /** After a commit that left so many more of the tenant's timers pending; below 0: fewer. */
  timersGrew(tenant: string, timers: number): void {
    const row = this.#rows.get(tenant);
    if (row !== undefined && row.maxTimers !== null) this.#addedTo(row).timers += timers;
  }

  /** After a commit. */
  grew(row: QuotaRow | null, rows: number, bytes: number): void {
    if (row === null || (row.maxRows === null && row.maxBytes === null)) return;
    const added = this.#addedTo(row);
    added.rows += rows;
    added.bytes += bytes;
  }

  async refresh(): Promise<void> {
    const rows = await this.#deps.read((db) => readQuotas(db));
    this.#rows = new Map(rows.map((row) => [row.tenant, row]));
    this.#readAt = this.#deps.clock.now();
  }

  /** For the status of the switches. */
  stats(): { tenants: number; ageMs: number | null; hot: number } {
    let tenants = 0;
    for (const row of this.#rows.values()) if (row.enabled !== null) tenants++;
    const ageMs = Number.isFinite(this.#readAt) ? Math.round(this.#deps.clock.now() - this.#readAt) : null;
    return { tenants, ageMs, hot: this.#added.size };
  }

  #addedTo(row: QuotaRow): Added {
    const known = this.#added.get(row.tenant);
    if (known !== undefined && known.sinceMicros === row.computedAtMicros) return known;
    const fresh = { rows: 0, bytes: 0, timers: 0, sinceMicros: row.computedAtMicros };
    this.#added.set(row.tenant, fresh);
    return fresh;
  }
}
