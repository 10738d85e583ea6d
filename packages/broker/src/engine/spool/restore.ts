/**
 * From the disk into the log: a batch of units, through the same appends as live pushes, so that everything that holds for
 * those holds for these: one allocator, exact duplicates, encryption as the queue wants it at that moment.
 */
import { HASH_BYTES, hashTransactionIds } from '../../log/hash.ts';
import { formatUuid } from '../../log/uuid.ts';
import type { SpooledUnit } from '../../store/spool/reader.ts';
import { EngineError, fromStore } from '../errors.ts';
import { Draft } from '../push/draft.ts';
import { isPassing } from '../push/failure.ts';
import { Flusher, type FlusherDeps } from '../push/flusher.ts';
import { laneKey, type Unit } from '../push/unit.ts';
import type { PushResult } from '../types.ts';

/** What a flush needs; who settles its failures is here. */
export type RestoreDeps = Omit<FlusherDeps, 'failures'>;

/** What became of a lane's units. */
export type Restored =
  | { stored: number; duplicates: number }
  /** `lasting`: it is about the messages themselves, and no waiting helps. */
  | { error: EngineError; lasting: boolean };

/** A fault of ours would come again and again, and hold up everything behind it. */
const OUR_FAULTS = new Set(['invariant', 'internal']);

export class Restore {
  readonly #deps: RestoreDeps;
  readonly #flusher: Flusher;
  /** By lane, of the batch that is under way. */
  readonly #errors = new Map<string, EngineError>();

  constructor(deps: RestoreDeps) {
    this.#deps = deps;
    this.#flusher = new Flusher({
      ...deps,
      failures: {
        settle: async (draft, error) => {
          this.#errors.set(draft.key, error);
          draft.failed(error);
        },
      },
    });
  }

  /** Stores the units, those of one lane in order and together. One outcome a lane; never rejects. One call at a time. */
  async store(units: readonly SpooledUnit[]): Promise<Map<string, Restored>> {
    this.#errors.clear();
    const lanes = Map.groupBy(units.map(pushUnit), (unit) => unit.key);
    const drafts: Draft[] = [];
    await Promise.all(
      [...lanes].map(async ([key, own]) => {
        const draft = await this.#prepare(own).catch((error: unknown) => {
          this.#errors.set(key, fromStore(error));
          return null;
        });
        if (draft !== null) drafts.push(draft);
      }),
    );
    if (drafts.length > 0)
      await this.#flusher.fly(
        () => drafts,
        () => {},
      );
    return new Map([...lanes].map(([key, own]) => [key, this.#outcome(key, own)]));
  }

  async #prepare(units: readonly Unit[]): Promise<Draft> {
    const { memo, provisioner, dedup } = this.#deps;
    const { tenant, queue, partition, key } = units[0]!;
    const place = memo.get(key) ?? (await provisioner.place(tenant, queue, partition));
    // A cache that fails cannot vouch, which is always right.
    if (place.windowSeconds > 0) {
      await dedup.prepare(place.partitionId, place.windowSeconds, place.lastOffset).catch(() => {});
    }
    return new Draft(units, place);
  }

  #outcome(key: string, units: readonly Unit[]): Restored {
    const results = units.flatMap((unit) => unit.results);
    const stored = results.filter(({ status }) => status === 'queued').length;
    const duplicates = results.filter(({ status }) => status === 'duplicate').length;
    if (stored + duplicates === results.length) return { stored, duplicates };
    const error =
      this.#errors.get(key) ?? new EngineError('in_doubt', 'internal', 'nobody said what became of it');
    return { error, lasting: !isPassing(error) || OUR_FAULTS.has(error.code) };
  }
}

function pushUnit({ records }: SpooledUnit): Unit {
  const { tenant, queue, partition } = records[0]!;
  const frames = records.map((record) => record.frame);
  const results = frames.map(
    ({ messageId, transactionId }): PushResult => ({
      status: 'failed',
      messageId: formatUuid(messageId),
      transactionId,
      partitionId: null,
      offset: null,
      error: null,
    }),
  );
  return {
    key: laneKey(tenant, queue, partition),
    tenant,
    queue,
    partition,
    frames,
    results,
    hashes: hashTransactionIds(frames.map((frame) => frame.transactionId)),
    // It may come from several requests, to a queue that had no window then.
    distinct: false,
    bytes: frames.length * HASH_BYTES,
    settle: () => {},
  };
}
