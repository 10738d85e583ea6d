/** The reads by offset: fetches, the offset of an instant, and the partitions that were written since. */
import { nameFault } from '../../log/names.ts';
import type { Queryable } from '../../store/database.ts';
import { type ChangedQuery, changedPartitions, offsetsAt, safeTime } from '../../store/reads.ts';
import { fromStore } from '../errors.ts';
import type {
  ChangedAnswer,
  ChangedEntry,
  ChangedRequest,
  FetchedEntry,
  FetchRequest,
  FoundOffset,
  OffsetsRequest,
  RecordsFace,
} from './face.ts';
import { type FetchDeps, Fetcher } from './fetch.ts';

export interface RecordsDeps extends FetchDeps {
  /** How far back is safe when the running transactions are hidden from us, in ms. */
  safeFloorMs: number;
}

export class Records implements RecordsFace {
  readonly #deps: RecordsDeps;
  readonly #fetcher: Fetcher;

  constructor(deps: RecordsDeps) {
    this.#deps = deps;
    this.#fetcher = new Fetcher(deps);
  }

  fetch(request: FetchRequest): Promise<FetchedEntry[]> {
    return this.#fetcher.fetch(request);
  }

  async offsets(request: OffsetsRequest): Promise<FoundOffset[]> {
    const rows = await this.#run((db) => offsetsAt(db, request.tenant, request.entries));
    const bySeq = new Map(rows.map((row) => [row.seq, row]));
    return request.entries.map(({ queue, partition }, seq) => {
      const row = bySeq.get(seq);
      return {
        queue,
        partition,
        offset: row?.offset ?? null,
        atMicros: row?.atMicros ?? null,
        highWatermark: row === undefined ? -1 : row.lastOffset + 1,
        logStart: row?.logStart ?? -1,
        error: row === undefined ? 'UNKNOWN_TOPIC_OR_PARTITION' : null,
      };
    });
  }

  /** The safe time is read first: it vouches for what the look after it sees. */
  async changed(request: ChangedRequest): Promise<ChangedAnswer> {
    const { safeFloorMs } = this.#deps;
    const { safeMicros, degraded } = await this.#run((db) => safeTime(db, safeFloorMs));
    const entries: ChangedEntry[] = request.entries.map(({ queue }) => ({
      queue,
      partitions: [],
      next: null,
      error: 'UNKNOWN_TOPIC_OR_PARTITION',
    }));
    const queries: (ChangedQuery & { entry: number })[] = [];
    request.entries.forEach(({ queue, sinceMicros, after, limit }, entry) => {
      const cursor = after === null ? null : readCursor(after, sinceMicros !== null);
      if (after !== null && cursor === null) entries[entry]!.error = 'BAD_CURSOR';
      else queries.push({ entry, queue, sinceMicros, after: cursor, limit });
    });
    if (queries.length > 0) {
      const pages = await this.#run((db) => changedPartitions(db, request.tenant, queries));
      for (const { seq, names, lasts, starts, written } of pages) {
        const query = queries[seq]!;
        const partitions = (names ?? []).map((name, i) => ({
          name,
          lastOffset: lasts![i]!,
          logStart: starts![i]!,
          lastWriteAtMicros: written![i]!,
        }));
        const last = partitions.length < query.limit ? undefined : partitions.at(-1);
        const next =
          last === undefined
            ? null
            : writeCursor(query.sinceMicros !== null, last.lastWriteAtMicros, last.name);
        entries[query.entry] = { queue: query.queue, partitions, next, error: null };
      }
    }
    return { safeTimeMicros: safeMicros, degraded, entries };
  }

  async #run<T>(work: (db: Queryable) => Promise<T>): Promise<T> {
    try {
      return await this.#deps.run(work);
    } catch (error) {
      throw fromStore(error);
    }
  }
}

/** Opaque to its bearer. The two kinds of sweep have different orders, so a cursor says which one it is of. */
function writeCursor(byTime: boolean, atMicros: number, name: string): string {
  const value = byTime ? ['t', atMicros, name] : ['n', name];
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}

/** Null: not a cursor of ours, or of the other kind. */
function readCursor(text: string, byTime: boolean): { atMicros: number; name: string } | null {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(text, 'base64url').toString('utf8'));
  } catch {
    return null;
  }
  if (!Array.isArray(value) || value[0] !== (byTime ? 't' : 'n')) return null;
  const [atMicros, name] = byTime ? value.slice(1) : [0, value[1]];
  if (!Number.isSafeInteger(atMicros) || nameFault(name, 'after') !== null) return null;
  return { atMicros, name };
}
