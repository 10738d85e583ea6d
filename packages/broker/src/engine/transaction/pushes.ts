/**
 * The pushes of a transaction: one segment for each lane, built as the push path builds its own (push/draft.ts), so that one
 * place decides what a frame holds, what is a repetition and when it is sealed.
 */
import { type Append, type AppendVerdict, VERDICT } from '../../store/push.ts';
import { EngineError } from '../errors.ts';
import { Draft, type Seal } from '../push/draft.ts';
import type { Dedup } from '../push/flusher.ts';
import type { PartitionMemo } from '../push/partition_memo.ts';
import type { Provisioner } from '../push/provisioner.ts';
import { follow, type GroupedRequest, groupRequest } from '../push/unit.ts';
import { sealMissing } from '../sealing.ts';
import type { PushItem, PushResult } from '../types.ts';
import type { Announcement } from '../wake/announcer.ts';
import { Rollback, refuse } from './refusal.ts';
import type { TransactionRequest, TransactionResult } from './types.ts';

export interface PushesDeps {
  memo: PartitionMemo;
  provisioner: Pick<Provisioner, 'place'>;
  dedup: Dedup;
  zstdLevel: number;
  seal: Seal;
}

export class Pushes {
  readonly bytes: number;
  readonly #deps: PushesDeps;
  readonly #grouped: GroupedRequest;
  readonly #drafts: Draft[];
  /** Flat index of each pushed item. */
  readonly #indexes: number[] = [];

  /** Throws the EngineError `bad_request`. */
  constructor(deps: PushesDeps, request: TransactionRequest, nowMs: number) {
    this.#deps = deps;
    const { tenant, producerSub } = request;
    const items: PushItem[] = [];
    request.operations.forEach((operation, index) => {
      if (operation.type !== 'push') return;
      this.#indexes.push(index);
      items.push(operation.item);
    });
    this.#grouped = groupRequest({ tenant, items, producerSub }, nowMs);
    this.bytes = this.#grouped.bytes;
    this.#drafts = this.#grouped.units.map((unit) => new Draft([unit], null));
  }

  get count(): number {
    return this.#drafts.length;
  }

  /** Finds the lanes, creating what is missing in a transaction of its own, and fetches their windows. */
  async locate(): Promise<void> {
    const { memo, provisioner, dedup } = this.#deps;
    await Promise.all(
      this.#drafts.map(async (draft) => {
        const { tenant, queue, partition } = draft.units[0]!;
        let place = memo.get(draft.key);
        if (place === null) {
          place = await provisioner.place(tenant, queue, partition);
          memo.set(draft.key, place);
        }
        if (draft.place !== null && draft.place.partitionId !== place.partitionId) draft.moved(place);
        draft.place = place;
        if (place.windowSeconds > 0) {
          // A cache that fails cannot vouch, which is always right.
          await dedup.prepare(place.partitionId, place.windowSeconds, place.lastOffset).catch(() => {});
        }
      }),
    );
  }

  /**
   * Finds the lanes, and packs the segments for {@link build} to take if they are still wanted so then. Never rejects: what
   * fails here is done again by {@link locate}.
   */
  async prepare(): Promise<void> {
    const { zstdLevel, seal } = this.#deps;
    await this.locate().catch(() => {});
    for (const draft of this.#drafts) {
      if (draft.place !== null) await draft.prepare(draft.place, zstdLevel, seal);
    }
  }

  /** The segments. Throws a Rollback, with nothing sent yet, for what cannot be stored as its queue demands. */
  async build(): Promise<Append[]> {
    const { dedup, zstdLevel, seal } = this.#deps;
    const appends: Append[] = [];
    for (const draft of this.#drafts) {
      const { partitionId, windowSeconds, encrypts } = draft.place!;
      if (encrypts && seal === null) throw this.#sealless(draft);
      try {
        const vouch = (hashes: Buffer) => dedup.vouch(partitionId, windowSeconds, hashes);
        appends.push(await draft.build(vouch, zstdLevel, seal));
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        throw refuse('payload_too_large', error.message, this.#indexOf(draft, 0));
      }
    }
    return appends;
  }

  /** Throws a Rollback unless all of them are stored; one without a refusal when the next attempt may do better. */
  judge(verdicts: readonly AppendVerdict[]): void {
    const { memo, dedup } = this.#deps;
    let stale = false;
    this.#drafts.forEach((draft, i) => {
      const verdict = verdicts[i]!;
      const place = draft.place!;
      if (verdict.verdict === VERDICT.missing) {
        memo.drop(draft.key);
        dedup.forget(place.partitionId);
        stale = true;
      } else if (verdict.verdict === VERDICT.windowChanged) {
        memo.set(draft.key, { ...place, ...verdict.queue });
        stale = true;
      }
    });
    // A missing lane says nothing about the others' duplicates, and these would be refused again.
    verdicts.forEach((verdict, i) => {
      if (verdict.verdict !== VERDICT.duplicates) return;
      const index = this.#indexOf(this.#drafts[i]!, verdict.duplicates[0]!.index);
      const { transactionId } = this.#grouped.results[this.#indexes.indexOf(index)]!;
      throw refuse('duplicate', `transactionId ${quote(transactionId)} is stored already`, index);
    });
    if (stale) throw new Rollback(null);
  }

  /** After the commit: what the push path remembers and tells of its own. */
  settle(verdicts: readonly AppendVerdict[]): Announcement[] {
    const { memo, dedup } = this.#deps;
    const announcements = this.#drafts.map((draft, i) => {
      const verdict = verdicts[i]!;
      // judge() has let nothing else pass.
      if (verdict.verdict !== VERDICT.stored) throw new EngineError('in_doubt', 'internal', 'internal error');
      const { tenant, queue } = draft.units[0]!;
      const { partitionId } = draft.place!;
      const lastOffset = verdict.base + draft.count - 1;
      if (verdict.queue.windowSeconds > 0) {
        dedup.committed(partitionId, verdict.base, draft.hashes, verdict.createdAtMicros);
      }
      memo.set(draft.key, { partitionId, lastOffset, ...verdict.queue });
      draft.stored(verdict.base);
      return { tenant, queue, partitionId, lastOffset };
    });
    for (const follower of this.#grouped.followers) follow(follower);
    return announcements;
  }

  /** Puts the results where they belong. */
  fill(results: TransactionResult[], request: TransactionRequest): void {
    this.#indexes.forEach((index, i) => {
      const operation = request.operations[index]!;
      const result = this.#grouped.results[i]!;
      if (operation.type !== 'push') return;
      results[index] = {
        type: 'push',
        queue: operation.item.queue,
        transactionId: result.transactionId,
        messageId: result.messageId,
        duplicate: result.status === 'duplicate',
        partitionId: result.partitionId!,
        offset: result.offset!,
      };
    });
  }

  #indexOf(draft: Draft, frame: number): number {
    const result: PushResult = draft.units[0]!.results[frame]!;
    return this.#indexes[this.#grouped.results.indexOf(result)]!;
  }

  #sealless(draft: Draft): Rollback {
    const { message } = sealMissing();
    return refuse('encryption_required', message, this.#indexOf(draft, 0));
  }
}

/** A name as an error shows it. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 200 ? `${text.slice(0, 200)}…` : text);
}
