/**
 * KV as a few lines of obvious code. Versions are opaque: the model takes over the ones that the product reports for applied
 * writes, and insists that none was ever used before.
 */
import assert from 'node:assert/strict';
import type { KvOperation, KvReason, KvResult } from '../../src/engine/kv/operations.ts';

interface Entry {
  value: string;
  version: number;
  /** Null: for ever. */
  until: number | null;
}

interface Verdict {
  applied: boolean;
  reason: KvReason | null;
  /** What the answer shows: of what lives there, or was deleted. */
  shown: Entry | null;
  apply(version: number): void;
}

export class KvModel {
  readonly entries = new Map<string, Entry>();
  readonly versions = new Set<number>();
  /** Seconds. */
  now = 0;

  live(key: string): Entry | null {
    const entry = this.entries.get(key);
    return entry === undefined || (entry.until !== null && entry.until <= this.now) ? null : entry;
  }

  /** The index and reason of the required write that the call must fail with, as the order of keys has it. */
  fails(operations: readonly KvOperation[]): { index: number; reason: KvReason } | null {
    for (const index of applicationOrder(operations)) {
      const operation = operations[index]!;
      if (!('required' in operation) || !operation.required) continue;
      const { reason } = this.#judge(operation);
      if (reason !== null) return { index, reason };
    }
    return null;
  }

  /** Fails with an AssertionError unless these are the results of the call at this moment; then takes it over. */
  applied(operations: readonly KvOperation[], results: readonly KvResult[]): void {
    assert.equal(results.length, operations.length);
    for (const index of applicationOrder(operations)) {
      const operation = operations[index]!;
      const result = results[index]!;
      assert.equal(result.op, operation.op);
      this.#check(operation, result, `operation ${index}: ${JSON.stringify(operation)}`);
    }
  }

  #check(operation: KvOperation, result: KvResult, what: string): void {
    if (operation.op === 'get') {
      const { entry } = result as Extract<KvResult, { op: 'get' }>;
      const live = this.live(operation.key);
      assert.deepEqual(
        entry === null ? null : [entry.value, entry.version],
        live === null ? null : [live.value, live.version],
        what,
      );
      return;
    }
    if (operation.op === 'getMany') {
      const { rows, missing } = result as Extract<KvResult, { op: 'getMany' }>;
      const keys = [...new Set(operation.keys)];
      assert.deepEqual(
        rows.map((row) => [row.key, row.value, row.version]),
        bytewise(keys.filter((key) => this.live(key) !== null)).map((key) => this.#row(key)),
        what,
      );
      assert.deepEqual(
        missing,
        keys.filter((key) => this.live(key) === null),
        what,
      );
      return;
    }
    if (operation.op === 'getPrefix') {
      const { rows, truncated, nextAfter } = result as Extract<KvResult, { op: 'getPrefix' }>;
      const after = operation.after;
      const keys = bytewise(
        [...this.entries.keys()].filter(
          (key) =>
            key.startsWith(operation.prefix) &&
            this.live(key) !== null &&
            (after === null || Buffer.from(key).compare(Buffer.from(after)) > 0),
        ),
      );
      const page = keys.slice(0, Math.min(1000, Math.max(1, operation.limit ?? 100)));
      assert.deepEqual(
        rows.map((row) => [row.key, row.value, row.version]),
        page.map((key) => this.#row(key)),
        what,
      );
      assert.equal(truncated, page.length < keys.length, what);
      assert.equal(nextAfter, truncated ? page.at(-1) : null, what);
      return;
    }
    const seen = result as Extract<KvResult, { applied: boolean }>;
    const verdict = this.#judge(operation);
    assert.deepEqual([seen.applied, seen.reason], [verdict.applied, verdict.reason], what);
    const writing = verdict.applied && operation.op !== 'delete';
    if (writing) {
      assert.ok(
        seen.version > 0 && !this.versions.has(seen.version),
        `${what}: version ${seen.version} twice`,
      );
      this.versions.add(seen.version);
      verdict.apply(seen.version);
      const value = this.live(operation.key)!.value;
      if (operation.op === 'incr') assert.equal(Number(seen.value), Number(value), what);
      else assert.equal(seen.value, value, what);
      // The digits are the product's own.
      this.entries.get(operation.key)!.value = seen.value!;
      return;
    }
    assert.deepEqual(
      [seen.value, seen.version],
      verdict.shown === null ? [null, 0] : [verdict.shown.value, verdict.shown.version],
      what,
    );
    verdict.apply(0);
  }

  #row(key: string): [string, string, number] {
    const { value, version } = this.live(key)!;
    return [key, value, version];
  }

  #judge(operation: Exclude<KvOperation, { op: 'get' | 'getMany' | 'getPrefix' }>): Verdict {
    const live = this.live(operation.key);
    const lost = (reason: KvReason): Verdict => ({ applied: false, reason, shown: live, apply() {} });
    const expect = operation.op === 'putIfAbsent' ? 0 : operation.op === 'incr' ? null : operation.expect;
    if (expect === 0 && live !== null) return lost('exists');
    if (expect !== null && expect > 0 && live === null) return lost('absent');
    if (expect !== null && expect > 0 && live!.version !== expect) return lost('version');
    if (operation.op === 'delete') {
      if (expect === null && live === null) return lost('absent');
      return {
        applied: true,
        reason: null,
        shown: live,
        apply: () => void this.entries.delete(operation.key),
      };
    }
    const ends = operation.life === null ? null : this.now + operation.life;
    if (operation.op !== 'incr') {
      const { key, value } = operation;
      const apply = (version: number) => void this.entries.set(key, { value, version, until: ends });
      return { applied: true, reason: null, shown: null, apply };
    }
    if (live !== null && typeof JSON.parse(live.value) !== 'number') return lost('type');
    const sum = (tenths(live?.value ?? '0') + tenths(operation.delta)) / 10;
    if (operation.min !== null && sum < Number(operation.min)) return lost('limit');
    if (operation.max !== null && sum > Number(operation.max)) return lost('limit');
    const until = live === null ? ends : live.until;
    const apply = (version: number) =>
      void this.entries.set(operation.key, { value: String(sum), version, until });
    return { applied: true, reason: null, shown: null, apply };
  }
}

/** Single keys by key, those on one key as they came, then the others. */
export function applicationOrder(operations: readonly KvOperation[]): number[] {
  const rank = (operation: KvOperation) => ('key' in operation ? 0 : 1);
  return operations
    .map((_, index) => index)
    .sort((a, b) => {
      const [x, y] = [operations[a]!, operations[b]!];
      if (rank(x) !== rank(y)) return rank(x) - rank(y);
      if (!('key' in x) || !('key' in y)) return a - b;
      return Buffer.from(x.key).compare(Buffer.from(y.key)) || a - b;
    });
}

/** Of numbers with at most one digit behind the point. */
function tenths(text: string): number {
  return Math.round(Number(text) * 10);
}

function bytewise(keys: string[]): string[] {
  return keys.sort((a, b) => Buffer.from(a).compare(Buffer.from(b)));
}
