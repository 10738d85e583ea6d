/** Looks at the slot and the publication from outside while the stream goes on. */
import type { Clock } from '../../../engine/clock.ts';
import { formatLsn } from '../replication/lsn.ts';
import type { SqlSession } from '../session/types.ts';
import type { UnitStatus } from '../unit.ts';
import type { CatalogTable } from './catalog.ts';
import { publishedTables } from './publication.ts';
import { assertValid, readSlot } from './slot.ts';
import { StartAgain } from './stream_fault.ts';
import { every } from './time.ts';

interface WatchOptions {
  readonly session: () => Promise<SqlSession>;
  readonly slot: string;
  readonly publication: string;
  readonly tables: readonly CatalogTable[];
  readonly status: UnitStatus;
  readonly clock: Clock;
  /** Ends the stream. */
  readonly fail: (error: unknown) => void;
}

const EVERY_MS = 10_000;

export class Watch {
  readonly #options: WatchOptions;
  readonly #timer: { cancel(): void };
  #looking = false;

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#timer = every(options.clock, EVERY_MS, () => void this.look());
    void this.look();
  }

  stop(): void {
    this.#timer.cancel();
  }

  /** Never rejects. */
  async look(): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    const { session, slot, publication, tables, status, fail } = this.#options;
    try {
      const open = await session();
      const [row, published] = await Promise.all([
        readSlot(open, slot),
        publishedTables(open, publication, tables),
      ]);
      if (row !== null) {
        status.gauge('slotLagBytes', row.lagBytes);
        status.show({
          slotLagBytes: row.lagBytes === null ? undefined : Number(row.lagBytes),
          walStatus: row.walStatus ?? undefined,
          confirmedFlushLsn: row.confirmed === null ? undefined : formatLsn(row.confirmed),
        });
        try {
          assertValid(slot, row);
        } catch (error) {
          fail(error);
          return;
        }
      }
      const gone = tables.find(({ schema, name }) => !published.has(`${schema}.${name}`));
      if (gone !== undefined) fail(new StartAgain(`${gone.schema}.${gone.name} is not published any more`));
    } catch {
      // The session is opened anew at the next look; the stream has one of its own.
    } finally {
      this.#looking = false;
    }
  }
}
