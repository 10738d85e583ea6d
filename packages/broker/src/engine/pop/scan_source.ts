/** Candidates without the hot list: every draw is a scan of the queues' rows. */
import type { Queryable } from '../../store/database.ts';
import { CLAIM, type ClaimRow, candidates } from '../../store/pop.ts';
import type { Clock } from '../clock.ts';
import { SKIP_MS } from '../hotlist/ring.ts';
import type { Wish } from '../wake/parking.ts';
import type { Candidates, Source } from './source.ts';

const MANY_PARTITIONS = 128;
const SCAN_MIN = 64;
/** Candidates of one scan. */
export const SCAN_MAX = 512;

export interface ScannedQueue {
  queueId: number;
  minPopWaitMs: number;
}

export interface ScanSupply {
  readonly keys: readonly string[];
  readonly group: string;
  prepare(): Promise<{ queues: ScannedQueue[]; conflation: boolean }>;
  outdated(why: 'foreign' | 'unregistered'): void;
}

export class ScanSource implements Source {
  readonly wish: Wish;
  readonly pinned = null;
  conflation = false;
  stale = false;
  readonly #run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  readonly #supply: ScanSupply;
  readonly #limit: number;
  #queues: ScannedQueue[] = [];
  #pool: number[] | null = null;

  constructor(
    run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>,
    clock: Clock,
    supply: ScanSupply,
    partitions: number,
  ) {
    this.#run = run;
    this.#supply = supply;
    this.#limit =
      partitions <= 0 || partitions >= MANY_PARTITIONS
        ? SCAN_MAX
        : Math.min(SCAN_MAX, Math.max(SCAN_MIN, 4 * partitions));
    // Nothing in memory tells whether something is there: every look of the back-off is an attempt.
    let next = clock.now() + SKIP_MS;
    this.wish = {
      keys: supply.keys,
      group: supply.group,
      ready: () => 1,
      wants: () => {
        if (clock.now() < next) return false;
        next = clock.now() + SKIP_MS;
        return true;
      },
    };
  }

  get minPopWaitMs(): number {
    return this.#queues.length === 1 ? (this.#queues[0] as ScannedQueue).minPopWaitMs : 0;
  }

  async prepare(): Promise<void> {
    const { queues, conflation } = await this.#supply.prepare();
    this.#queues = queues;
    this.conflation = conflation;
    this.stale = false;
    this.#pool = null;
    // Whether to wait for a fuller batch is decided by what is there before the claim.
    if (this.minPopWaitMs > 0) await this.#scan();
  }

  async draw(k: number): Promise<Candidates> {
    if (this.#queues.length === 0) return { ids: [], queues: [] };
    const ids = (this.#pool ?? (await this.#scan())).splice(0, k);
    // The scan has just read the partitions by their queue.
    return { ids, queues: ids.map(() => 0) };
  }

  settle(row: ClaimRow): void {
    const queue = this.#queues.length === 1 ? this.#queues[0] : undefined;
    if (queue !== undefined && row.verdict === CLAIM.claimed && row.minPopWaitMs !== null) {
      queue.minPopWaitMs = row.minPopWaitMs;
    }
  }

  giveBack(ids: readonly number[]): void {
    this.#pool?.unshift(...ids);
  }

  retry(): void {}

  busy(): void {}

  outdated(_id: number, why: 'foreign' | 'unregistered' | 'missing'): void {
    if (why === 'missing') return;
    this.stale = true;
    this.#supply.outdated(why);
  }

  /** At least a message each; how many more, a scan does not know. */
  backlog(partitions: number, cap: number): number {
    return Math.min(this.#pool?.length ?? 0, partitions, cap);
  }

  close(): void {}

  async #scan(): Promise<number[]> {
    const queues = this.#queues.map((queue) => queue.queueId);
    this.#pool = await this.#run((db) => candidates(db, queues, this.#supply.group, this.#limit));
    return this.#pool;
  }
}
