/**
 * What a scrape of the metrics reads from the database: one round of statements for all families of it, shared by
 * scrapes that come at once, and kept for some seconds, so that scraping costs the same however often it is done.
 */
import type { Queryable } from '../../store/database.ts';
import {
  backlogs,
  type ClusterTotals,
  clusterTotals,
  deadLetterDepth,
  expiredKeys,
  groupLags,
  type NewestMinute,
  newestMinutes,
} from '../../store/metrics.ts';
import { refreshAge } from '../../store/rollup.ts';
import type { Clock } from '../clock.ts';

export interface Scraped {
  totals: ClusterTotals | null;
  minutes: NewestMinute[];
  deadLetters: number;
  backlogs: { queue: string; pending: number; dead: number; partitions: number }[];
  groups: { queue: string; group: string; lag: number; behind: number; lagMs: number }[];
  kvExpired: { expired: number; capped: boolean };
  statsAgeMs: number | null;
}

const KEEP_MS = 5_000;
/** Queues, and groups of queues, with lines of their own. */
const SERIES_MAX = 1_000;
const KEYS_A_SHARD = 1_000;

export class Scrape {
  readonly #run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  readonly #clock: Clock;
  #reading: Promise<Scraped> | null = null;
  #last: { at: number; scraped: Scraped } | null = null;

  constructor(run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>, clock: Clock) {
    this.#run = run;
    this.#clock = clock;
  }

  /** Rejects when the database does not answer. */
  read(): Promise<Scraped> {
    if (this.#last !== null && this.#clock.now() - this.#last.at < KEEP_MS) {
      return Promise.resolve(this.#last.scraped);
    }
    this.#reading ??= this.#run(readAll)
      .then((scraped) => {
        this.#last = { at: this.#clock.now(), scraped };
        return scraped;
      })
      .finally(() => {
        this.#reading = null;
      });
    return this.#reading;
  }
}

async function readAll(db: Queryable): Promise<Scraped> {
  return {
    totals: await clusterTotals(db),
    minutes: await newestMinutes(db, SERIES_MAX),
    deadLetters: await deadLetterDepth(db),
    backlogs: await backlogs(db, SERIES_MAX),
    groups: await groupLags(db, SERIES_MAX),
    kvExpired: await expiredKeys(db, KEYS_A_SHARD),
    statsAgeMs: (await refreshAge(db))?.ageMs ?? null,
  };
}
