/**
 * One bundle on its way into the database: append, look at the verdicts, settle what is final, go on with the rest.
 *
 * What can come back for a draft, and what follows:
 * - stored: remember it (dedup cache, memo), announce it, answer. In this order and only now, after the commit.
 * - duplicates: nothing was written. Read the originals' ids, answer those frames, append the others again as a smaller
 *   segment. Every round takes at least one frame away, so it ends.
 * - missing: the partition was removed. Forget it, provision anew, append again.
 * - window changed: the queue got a window since the segment was built, or wants its payloads sealed. Build it again.
 * - the statement failed: if the database refused it, each draft is tried by itself, so that one which cannot be stored
 *   takes nobody down with it; else all that were in it share the answer, unavailable or in doubt.
 *
 * Database calls go through admission one by one, never one inside another. Nothing here rejects, and every draft lands
 * exactly once, whatever happens: a lane that stayed in flight would never send again.
 */
import { buggify } from '../../observability/buggify.ts';
import type { Queryable } from '../../store/database.ts';
import { type Append, type AppendVerdict, append, type Duplicate, VERDICT } from '../../store/push.ts';
import { EngineError, fromStore } from '../errors.ts';
import { sealMissing } from '../sealing.ts';
import type { Announcement, Announcer } from '../wake/announcer.ts';
import type { Draft, Seal, Unseal } from './draft.ts';
import { originalIds, type Run } from './originals.ts';
import type { PartitionMemo } from './partition_memo.ts';
import type { Provisioner } from './provisioner.ts';

/** What the push path uses of the deduplication cache. */
export interface Dedup {
  prepare(partitionId: number, windowSeconds: number, lastOffset: number): Promise<void>;
  vouch(partitionId: number, windowSeconds: number, hashes: Buffer): number;
  committed(partitionId: number, base: number, hashes: Buffer, createdAtMicros: number): void;
  forget(partitionId: number): void;
}

export interface PushLog {
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

export interface FlusherDeps {
  db: Queryable;
  admission: { run<T>(lane: 'push', work: () => Promise<T>): Promise<T> };
  dedup: Dedup;
  memo: PartitionMemo;
  provisioner: Provisioner;
  announcer: Announcer;
  zstdLevel: number;
  seal: Seal;
  unseal: Unseal;
  /** What cannot be appended goes there, and lands when that is settled. */
  failures: { settle(draft: Draft, error: EngineError): Promise<void> };
  log: PushLog;
  /** One statement: messages in it, and milliseconds until its answer. */
  fired?: ((items: number, ms: number) => void) | undefined;
}

/** Monotonic counts since the start. */
export interface FlushCounters {
  /** Statements that appended (or tried to), and segments in them. */
  appends: number;
  segments: number;
  stored: number;
  /** Frames that were stored already. */
  duplicates: number;
  repacks: number;
  missing: number;
  windowChanges: number;
}

/** A partition that vanishes again as soon as it is created is not waited for. */
const MISSED_MAX = 5;

type Outcome = { draft: Draft } & ({ error: EngineError } | { error: null; verdict: AppendVerdict });

export class Flusher {
  readonly counters: FlushCounters = {
    appends: 0,
    segments: 0,
    stored: 0,
    duplicates: 0,
    repacks: 0,
    missing: 0,
    windowChanges: 0,
  };
  readonly #deps: FlusherDeps;
  readonly #run: Run;

  constructor(deps: FlusherDeps) {
    this.#deps = deps;
    this.#run = (work) => deps.admission.run('push', () => work(deps.db));
  }

  /**
   * Stores a bundle. `take` is called when a slot is granted, so that what has arrived meanwhile goes along; `landed` for
   * each of its drafts as soon as that one is final.
   */
  async fly(take: () => Draft[], landed: (draft: Draft) => void): Promise<void> {
    const flying = new Set<Draft>();
    const land = (draft: Draft) => {
      if (flying.delete(draft)) landed(draft);
    };
    try {
      let outcomes = await this.#deps.admission.run('push', () => {
        const drafts = take();
        for (const draft of drafts) flying.add(draft);
        return this.#append(drafts);
      });
      while (outcomes.length > 0) {
        const again = await this.#settle(outcomes, land);
        outcomes =
          again.length === 0 ? [] : await this.#deps.admission.run('push', () => this.#append(again));
      }
    } catch (error) {
      this.#deps.log.error({ err: error }, 'a push flush broke');
      for (const draft of flying) draft.failed(fromStore(error));
    } finally {
      for (const draft of [...flying]) land(draft);
    }
  }

  /** One statement for all of them. Never rejects. */
  async #append(drafts: readonly Draft[]): Promise<Outcome[]> {
    const outcomes: Outcome[] = [];
    const built: { draft: Draft; segment: Append }[] = [];
    for (const draft of drafts) {
      try {
        const segment = this.#build(draft);
        built.push({ draft, segment: segment instanceof Promise ? await segment : segment });
      } catch (error) {
        outcomes.push({ draft, error: buildFailure(error) });
      }
    }
    if (built.length === 0) return outcomes;
    this.counters.appends++;
    this.counters.segments += built.length;
    const begun = performance.now();
    try {
      const verdicts = await append(
        this.#deps.db,
        built.map((b) => b.segment),
      );
      buggify('push.stored');
      const items = built.reduce((sum, { draft }) => sum + draft.count, 0);
      this.#deps.fired?.(items, performance.now() - begun);
      built.forEach(({ draft }, i) => {
        outcomes.push({ draft, error: null, verdict: verdicts[i]! });
      });
    } catch (thrown) {
      const error = fromStore(thrown);
      if (error.kind === 'refused' && built.length > 1) {
        for (const { draft } of built) outcomes.push(...(await this.#append([draft])));
      } else {
        for (const { draft } of built) outcomes.push({ draft, error });
      }
    }
    return outcomes;
  }

  #build(draft: Draft): Append | Promise<Append> {
    const { dedup, zstdLevel, seal, unseal } = this.#deps;
    const { partitionId, windowSeconds, encrypts } = draft.place!;
    if (encrypts && seal === null && !draft.sealed) throw sealMissing();
    return draft.build((hashes) => dedup.vouch(partitionId, windowSeconds, hashes), zstdLevel, seal, unseal);
  }

  /** Settles what is final and gives back the drafts that have to be appended again. */
  async #settle(outcomes: readonly Outcome[], land: (draft: Draft) => void): Promise<Draft[]> {
    const stored: { draft: Draft; base: number }[] = [];
    const announcements: Announcement[] = [];
    const open: Outcome[] = [];
    for (const outcome of outcomes) {
      if (outcome.error !== null || outcome.verdict.verdict !== VERDICT.stored) {
        open.push(outcome);
        continue;
      }
      const { draft, verdict } = outcome;
      const { tenant, queue } = draft.lane;
      const { partitionId } = draft.place!;
      if (verdict.queue.windowSeconds > 0) {
        this.#deps.dedup.committed(partitionId, verdict.base, draft.hashes, verdict.createdAtMicros);
      }
      const lastOffset = verdict.base + draft.count - 1;
      this.#deps.memo.set(draft.key, { partitionId, lastOffset, ...verdict.queue });
      announcements.push({ tenant, queue, partitionId, lastOffset });
      this.counters.stored += draft.count;
      stored.push({ draft, base: verdict.base });
    }
    if (announcements.length > 0) this.#deps.announcer.pushed(announcements);
    for (const { draft, base } of stored) {
      draft.stored(base);
      land(draft);
    }
    if (open.length === 0) return [];
    const goesOn = await Promise.all(open.map((outcome) => this.#proceed(outcome)));
    return open.flatMap(({ draft }, i) => {
      if (goesOn[i]) return [draft];
      land(draft);
      return [];
    });
  }

  /** True: append the draft again. False: it is final. Never rejects. */
  async #proceed(outcome: Outcome): Promise<boolean> {
    const { draft } = outcome;
    try {
      if (outcome.error !== null) throw outcome.error;
      const { verdict } = outcome;
      if (verdict.verdict === VERDICT.duplicates) await this.#dropDuplicates(draft, verdict.duplicates);
      else if (verdict.verdict === VERDICT.missing) await this.#provisionAgain(draft);
      else if (verdict.verdict === VERDICT.windowChanged) {
        this.counters.windowChanges++;
        draft.place = { ...draft.place!, ...verdict.queue };
        this.#deps.memo.set(draft.key, draft.place);
      }
      return draft.count > 0;
    } catch (error) {
      await this.#deps.failures.settle(draft, fromStore(error));
      return false;
    }
  }

  async #dropDuplicates(draft: Draft, duplicates: readonly Duplicate[]): Promise<void> {
    const { partitionId } = draft.place!;
    const ids = await originalIds(
      this.#run,
      partitionId,
      duplicates.map((duplicate) => duplicate.offset),
      (segment, error) =>
        this.#deps.log.error(
          { partitionId, base: segment.base, end: segment.end, err: error },
          'a stored segment is corrupt: the id of a duplicate cannot be read',
        ),
    );
    draft.duplicates(duplicates, ids);
    this.counters.duplicates += duplicates.length;
    if (draft.count > 0) this.counters.repacks++;
  }

  async #provisionAgain(draft: Draft): Promise<void> {
    const { tenant, queue, partition } = draft.lane;
    this.counters.missing++;
    this.#deps.memo.drop(draft.key);
    this.#deps.dedup.forget(draft.place!.partitionId);
    if (++draft.missed > MISSED_MAX) {
      throw new EngineError(
        'unavailable',
        'partition_missing',
        'the partition is being removed again and again',
      );
    }
    const place = await this.#deps.provisioner.place(tenant, queue, partition);
    draft.moved(place);
    this.#deps.memo.set(draft.key, place);
  }
}

/** Nothing was sent: whatever broke, nothing was written. */
function buildFailure(error: unknown): EngineError {
  if (error instanceof EngineError) return error;
  // What does not fit the format says so; anything else is a fault of ours, whose words are for the log.
  const message = error instanceof RangeError ? error.message : 'internal error';
  return new EngineError('refused', 'segment', message, { cause: error });
}
