/**
 * Finds the partitions of lanes that nobody remembers, and creates those that do not exist. The lanes that ask in one turn of
 * the event loop go together, a bounded number a transaction: fifty thousand new lanes are some hundred short
 * transactions, not fifty thousand, and none is long enough for others to pile up behind it.
 */
import { buggify } from '../../observability/buggify.ts';
import type { Queryable } from '../../store/database.ts';
import { StoreError } from '../../store/errors.ts';
import { type Place, provision } from '../../store/push.ts';

const LANES_A_TRANSACTION = 128;
/** A second one while the first waits for its commit; more would only meet on the same new queue rows. */
const TRANSACTIONS_MAX = 4;

interface Request {
  readonly tenant: string;
  readonly queue: string;
  readonly partition: string;
  readonly resolve: (place: Place) => void;
  readonly reject: (error: unknown) => void;
}

export class Provisioner {
  readonly #run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  /** Partitions were made that did not exist. */
  onCreated: (tenant: string, queue: string, partitions: number) => void = () => {};
  #waiting: Request[] = [];
  #running = 0;
  #scheduled = false;

  constructor(run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>) {
    this.#run = run;
  }

  /** Rejects with what the store threw. */
  place(tenant: string, queue: string, partition: string): Promise<Place> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ tenant, queue, partition, resolve, reject });
      if (this.#scheduled) return;
      this.#scheduled = true;
      setImmediate(() => {
        this.#scheduled = false;
        this.#start();
      });
    });
  }

  #start(): void {
    while (this.#running < TRANSACTIONS_MAX && this.#waiting.length > 0) {
      const tenant = this.#waiting[0]!.tenant;
      const batch: Request[] = [];
      const rest: Request[] = [];
      for (const request of this.#waiting) {
        (request.tenant === tenant && batch.length < LANES_A_TRANSACTION ? batch : rest).push(request);
      }
      this.#waiting = rest;
      this.#running++;
      void this.#provision(tenant, batch).then(() => {
        this.#running--;
        this.#start();
      });
    }
  }

  /** Settles every request of the batch; never rejects. */
  async #provision(tenant: string, batch: readonly Request[]): Promise<void> {
    try {
      const places = await this.#run((db) => provision(db, tenant, batch));
      buggify('push.provisioned');
      batch.forEach((request, i) => {
        const { created, ...place } = places[i]!;
        if (created) this.onCreated(tenant, request.queue, 1);
        request.resolve(place);
      });
    } catch (error) {
      // The statement itself was refused: one bad lane must not keep the others from existing.
      if (error instanceof StoreError && error.kind === 'refused' && batch.length > 1) {
        for (const request of batch) await this.#provision(tenant, [request]);
      } else for (const request of batch) request.reject(error);
    }
  }
}
