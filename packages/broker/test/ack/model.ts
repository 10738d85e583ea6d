/**
 * A naive consumer of one partition: arrays, no bounds, no batching. Written from the rules alone, to judge the procedure.
 */
import type { AckStatus, AckVerdict } from '../../src/engine/types.ts';

export interface ModelRow {
  committed: number;
  batchEnd: number | null;
  worker: string | null;
  live: boolean;
  conflated: boolean;
  retries: number;
  attemptOffset: number | null;
  attemptCount: number;
  consumed: number;
}

export interface ModelItem {
  txn: string;
  /** Addressed by offset instead of by name. */
  offset: number | null;
  status: AckStatus;
}

export const COMMITTED = /^already committed/;
export const UNRESOLVABLE = /^unresolvable/;

export class Model {
  readonly log: string[] = [];
  /** Sidecar rows below are purged. */
  txnsStart = 0;
  readonly retryLimit: number;
  readonly deadLettersOn: boolean;
  readonly dead: number[] = [];
  /** Offsets that were handed to a consumer, dropped, or passed by an ack without a batch. */
  readonly accounted = new Set<number>();
  row: ModelRow = {
    committed: -1,
    batchEnd: null,
    worker: null,
    live: false,
    conflated: false,
    retries: 0,
    attemptOffset: null,
    attemptCount: 0,
    consumed: 0,
  };

  constructor(retryLimit: number, deadLettersOn: boolean) {
    this.retryLimit = retryLimit;
    this.deadLettersOn = deadLettersOn;
  }

  /** Null: nothing to claim. */
  claim(worker: string, count: number, conflated: boolean): { batchEnd: number; txns: string[] } | null {
    const row = this.row;
    const last = this.log.length - 1;
    if ((row.batchEnd !== null && row.live) || row.committed >= last) return null;
    const start = row.committed + 1;
    const batchEnd = conflated ? last : Math.min(last, row.committed + count);
    row.attemptCount = row.attemptOffset === start ? row.attemptCount + 1 : 1;
    row.attemptOffset = start;
    Object.assign(row, { batchEnd, worker, live: true, conflated });
    for (let at = start; at <= batchEnd; at++) this.accounted.add(at);
    return { batchEnd, txns: conflated ? [this.log[batchEnd]!] : this.log.slice(start, batchEnd + 1) };
  }

  #places(item: ModelItem, fenced: boolean): { at: number | null; below: boolean } {
    const { committed: c, batchEnd: e, conflated } = this.row;
    const top = e ?? this.log.length - 1;
    if (item.offset !== null) {
      const inside = item.offset > c && item.offset <= top;
      return { at: inside ? item.offset : null, below: item.offset <= c };
    }
    const known = this.log.flatMap((txn, at) => (txn === item.txn && at >= this.txnsStart ? [at] : []));
    const stored = this.log.flatMap((txn, at) => (txn === item.txn ? [at] : []));
    const inside = (list: number[]): number | undefined => {
      const hits = list.filter((at) => at > c && at <= top);
      return conflated && e !== null && hits.includes(e) ? e : hits[0];
    };
    const below = known.some((at) => at <= c);
    // The leased segments are the second source, for what the sidecar does not tell.
    const at = inside(known) ?? (fenced && !below ? inside(stored) : undefined);
    return { at: at ?? null, below: at === undefined && below };
  }

  ack(lease: string, items: readonly ModelItem[]): Partial<AckVerdict>[] {
    const row = this.row;
    if (lease !== '' && (row.worker !== lease || row.batchEnd === null || !row.live)) {
      return items.map(() => ({ success: false, error: 'invalid or expired lease', leaseReleased: false }));
    }
    const c = row.committed;
    const e = row.batchEnd;
    const places = items.map((item) => this.#places(item, lease !== ''));
    const signals = items.flatMap((item, i) =>
      item.status !== 'completed' && places[i]!.at !== null
        ? [{ at: places[i]!.at!, status: item.status }]
        : [],
    );
    const s = signals.length === 0 ? null : Math.min(...signals.map((signal) => signal.at));
    const atS = signals.filter((signal) => signal.at === s).map((signal) => signal.status);
    const completed = items.flatMap((item, i) =>
      item.status === 'completed' && places[i]!.at !== null ? [places[i]!.at!] : [],
    );
    const reached = Math.max(-1, ...completed.filter((at) => s === null || at < s));
    const next = Math.max(c, reached);
    const kind =
      s === null ? null : atS.includes('dlq') ? 'dlq' : atS.includes('failed') ? 'failed' : 'retry';

    const wasConflated = row.conflated && e !== null;
    let released = false;
    let passed: 'dlq' | 'dropped' | null = null;
    row.committed = next;
    row.consumed += next - c;
    if (e !== null && next > c && next < e) row.attemptOffset = next + 1;
    if (e === null) {
      if (next > c) row.retries = 0;
      for (let at = c + 1; at <= next; at++) this.accounted.add(at);
    } else if (s === null) {
      if (next >= e) {
        released = true;
        Object.assign(row, { retries: 0, attemptOffset: null, attemptCount: 0 });
      }
    } else if (kind === 'retry') {
      released = true;
    } else if (kind === 'failed' && row.retries < this.retryLimit) {
      released = true;
      row.retries++;
    } else {
      passed = kind === 'failed' && !this.deadLettersOn ? 'dropped' : 'dlq';
      released = true;
      if (passed === 'dlq') this.dead.push(s);
      row.committed = s;
      row.consumed++;
      Object.assign(row, { retries: 0, attemptOffset: null, attemptCount: 0 });
    }
    if (released) Object.assign(row, { batchEnd: null, worker: null, live: false, conflated: false });

    return items.map((item, i) => {
      const { at, below } = places[i]!;
      const verdict: Partial<AckVerdict> = { success: true, error: null, leaseReleased: released };
      if (wasConflated)
        verdict.conflated = Math.max(0, row.committed - c - 1 - (passed !== null && next > c ? 1 : 0));
      if (at !== null) {
        if (at === s && passed === 'dlq') verdict.dlq = true;
        if (at === s && passed === 'dropped') verdict.dropped = true;
      } else if (below && item.status === 'completed') {
        verdict.noop = true;
      } else {
        verdict.success = false;
        verdict.error = below ? 'committed' : 'unresolvable';
      }
      return verdict;
    });
  }
}
