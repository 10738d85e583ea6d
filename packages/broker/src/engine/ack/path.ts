/**
 * The way of an ack through the broker: group the items, answer what the registry knows by position, let the decision
 * procedure judge the rest in one statement, hand off dead letters, tell the waiting consumers.
 *
 * Nothing here decides: cursor, lease and budget are judged in SQL under the row lock. A failure of the database becomes
 * the verdict of the items concerned, never an exception, and the lease that they leave behind brings the messages
 * back.
 */
import { buggify } from '../../observability/buggify.ts';
import {
  type AckGroupRow,
  type Completion,
  completeBatches,
  leaseExtend,
  OUTCOME,
  type Settled,
} from '../../store/ack.ts';
import type { Queryable } from '../../store/database.ts';
import type { Clock } from '../clock.ts';
import { fromStore } from '../errors.ts';
import type { AckItem, AckRequest, AckVerdict, ExtendResult } from '../types.ts';
import type { Announcer } from '../wake/announcer.ts';
import { type Decision, decide, handOff } from './decide.ts';
import { AckFusion } from './fusion.ts';
import { type AckGroup, groupItems, storableText } from './groups.ts';
import { type AckRegistry, namesWholeBatch, type RegistryEntry } from './registry.ts';
import { type Run, UnreadableSegment } from './segments.ts';
import { ACK_ERROR, failed, failureText, groupVerdicts, type HandOff } from './verdicts.ts';

export interface AckSettings {
  /** Whole-batch completions of several requests in one commit. */
  fusion: boolean;
  /** Such commits at a time. */
  fusionShards: number;
  /** How long such a completion waits for company while another commit is under way, ms. */
  fusionHoldMs: number;
  /** Several tenants: an unknown partition looks like a foreign one. */
  tenancy: boolean;
}

export interface AckDeps {
  db: Queryable;
  admission: { run<T>(lane: 'ack', work: () => Promise<T>): Promise<T> };
  announcer: Announcer;
  /** Null: off. Shared with the pop path, which fills it. */
  registry: AckRegistry | null;
  clock: Clock;
  settings: AckSettings;
  log: { warn(facts: object, message: string): void; error(facts: object, message: string): void };
  /** One fused statement: completions in it, and milliseconds until its answer. */
  fired?: (items: number, ms: number) => void;
}

/** Monotonic counts since the start. */
export interface AckCounters {
  requests: number;
  items: number;
  registryHits: number;
  registryMisses: number;
  /** Positional completions that the procedure refused and the hash path decided. */
  positionsRejected: number;
  /** Groups decided through the sidecar. */
  hashGroups: number;
  /** TransactionIds whose hash was gone and that were found in the leased segments, and that were not. */
  segmentHits: number;
  segmentMisses: number;
  deadLettered: number;
  dropped: number;
  failures: number;
}

const SECONDS_MAX = 2_147_483_647;

export class AckPath {
  readonly #deps: AckDeps;
  readonly #run: Run;
  readonly #fusion: AckFusion | null;
  readonly #active = new Set<Promise<unknown>>();
  readonly #counters: AckCounters = {
    requests: 0,
    items: 0,
    registryHits: 0,
    registryMisses: 0,
    positionsRejected: 0,
    hashGroups: 0,
    segmentHits: 0,
    segmentMisses: 0,
    deadLettered: 0,
    dropped: 0,
    failures: 0,
  };

  constructor(deps: AckDeps) {
    this.#deps = deps;
    this.#run = (work) => deps.admission.run('ack', () => work(deps.db));
    const { fusion, fusionShards: flightsMax, fusionHoldMs: holdMs } = deps.settings;
    this.#fusion = fusion
      ? new AckFusion(deps.clock, { flightsMax, holdMs }, (completions) => this.#flush(completions))
      : null;
  }

  /** One verdict an item, in order. Never rejects for what the database does. */
  ack(request: AckRequest): Promise<AckVerdict[]> {
    return this.#track(this.#ack(request));
  }

  /**
   * Lengthens all live leases of `leaseId` to at least `seconds` (1 or more) from now. An unknown, expired or foreign
   * id renews nothing. Throws EngineError.
   */
  extend(tenant: string, leaseId: string, seconds: number): Promise<ExtendResult> {
    return this.#track(this.#extend(tenant, leaseId, seconds));
  }

  /** Resolves when every ack that was taken has its answer. */
  async drain(): Promise<void> {
    while (this.#active.size > 0) await Promise.allSettled(this.#active);
  }

  stats(): AckCounters & { flushes: number; flushedItems: number; fusionWaiting: number } {
    return {
      ...this.#counters,
      flushes: this.#fusion?.counters.flushes ?? 0,
      flushedItems: this.#fusion?.counters.items ?? 0,
      fusionWaiting: this.#fusion?.waiting ?? 0,
    };
  }

  #track<T>(work: Promise<T>): Promise<T> {
    const tracked = work.finally(() => this.#active.delete(tracked));
    this.#active.add(tracked);
    return tracked;
  }

  async #ack(request: AckRequest): Promise<AckVerdict[]> {
    const { items } = request;
    const verdicts = new Array<AckVerdict>(items.length);
    const { groups, malformed } = groupItems(request.tenant, request.group, items);
    for (const index of malformed) verdicts[index] = failed(ACK_ERROR.consumerNotFound);
    for (let from = 0; from < groups.length; ) {
      const wave = groups[from]!.wave;
      let to = from;
      while (to < groups.length && groups[to]!.wave === wave) to++;
      await this.#wave(groups.slice(from, to), verdicts);
      from = to;
    }
    this.#counters.requests++;
    this.#counters.items += items.length;
    return verdicts;
  }

  /** Groups of different partitions: independent of each other. */
  async #wave(groups: readonly AckGroup[], verdicts: AckVerdict[]): Promise<void> {
    const slow: AckGroup[] = [];
    const fast: Promise<void>[] = [];
    for (const group of groups) {
      const entry = this.#wholeBatch(group);
      if (entry === null) slow.push(group);
      else fast.push(this.#positional(group, entry, verdicts));
    }
    if (slow.length > 0) fast.push(this.#decide(slow, verdicts));
    await Promise.all(fast);
  }

  /** The registry's entry when the group completes exactly what was delivered. */
  #wholeBatch(group: AckGroup): RegistryEntry | null {
    const { registry } = this.#deps;
    if (registry === null || group.lease === '') return null;
    const entry = registry.take(group.tenant, group.partitionId, group.group, group.lease);
    const hit =
      entry !== null &&
      group.items.every((item) => item.status === 'completed') &&
      (endsBatch(entry, group.items) ||
        (group.items.every((item) => item.offset === undefined) &&
          namesWholeBatch(
            entry,
            group.items.map((item) => item.transactionId),
          )));
    if (hit) this.#counters.registryHits++;
    else this.#counters.registryMisses++;
    return hit ? entry : null;
  }

  async #positional(group: AckGroup, entry: RegistryEntry, verdicts: AckVerdict[]): Promise<void> {
    const completion: Completion = {
      partitionId: group.partitionId,
      group: group.group,
      worker: group.lease,
      first: entry.batchEnd - entry.transactionIds.length + 1,
      last: entry.batchEnd,
    };
    let settled: Settled | null;
    try {
      settled = await this.#complete(completion);
    } catch (error) {
      this.#fail([group], error, verdicts);
      return;
    }
    if (settled === null) {
      this.#counters.positionsRejected++;
      await this.#decide([group], verdicts);
      return;
    }
    this.#settle({ group, row: completedRow(group, completion, settled) }, null, verdicts);
  }

  async #complete(completion: Completion): Promise<Settled | null> {
    if (this.#fusion !== null) return this.#fusion.submit(completion);
    const [settled] = await this.#flush([completion]);
    return settled!;
  }

  async #flush(completions: readonly Completion[]): Promise<(Settled | null)[]> {
    const settled = await this.#run(async (db) => {
      const begun = performance.now();
      const completed = await completeBatches(db, completions);
      this.#deps.fired?.(completions.length, performance.now() - begun);
      return completed;
    });
    buggify('ack.decided');
    return settled;
  }

  async #decide(groups: readonly AckGroup[], verdicts: AckVerdict[]): Promise<void> {
    this.#counters.hashGroups += groups.length;
    let decisions: Decision[];
    try {
      decisions = await decide(this.#run, groups, {
        searched: (search) => {
          this.#counters.segmentHits += search.found;
          this.#counters.segmentMisses += search.missing;
        },
        unreadable: (group, error) => this.#unreadable(group, error, verdicts),
      });
      buggify('ack.decided');
    } catch (error) {
      this.#fail(groups, error, verdicts);
      return;
    }
    await Promise.all(
      decisions.map(async (decision) => {
        const handed = decision.row.outcome === OUTCOME.handOff ? await this.#handOff(decision) : null;
        this.#settle(decision, handed, verdicts);
      }),
    );
  }

  async #handOff(decision: Decision): Promise<HandOff> {
    const { partitionId } = decision.group;
    try {
      const row = await handOff(this.#run, decision);
      buggify('ack.handed_off');
      if (row.outcome === OUTCOME.decided) this.#counters.deadLettered++;
      return { row };
    } catch (error) {
      this.#counters.failures++;
      if (error instanceof UnreadableSegment) {
        this.#deps.log.error({ partitionId, offset: decision.row.signal }, error.message);
        return { error: error.message };
      }
      this.#deps.log.warn(
        { err: error, partitionId, offset: decision.row.signal },
        'dead letter not handed off',
      );
      return { error: failureText(error) };
    }
  }

  #settle(decision: Decision, handed: HandOff | null, verdicts: AckVerdict[]): void {
    const { group, row } = decision;
    const { registry, announcer, settings } = this.#deps;
    const list = groupVerdicts(group, row, handed, settings.tenancy);
    for (const [i, verdict] of list.entries()) verdicts[group.indexes[i]!] = verdict;
    if (row.outcome === OUTCOME.dropped) this.#counters.dropped++;
    const letter =
      handed !== null && 'row' in handed && handed.row.outcome === OUTCOME.decided ? handed.row : null;
    if (!row.released && letter === null) return;
    if (row.holder !== null) registry?.released(group.tenant, group.partitionId, group.group, row.holder);
    // A backlog that the database saw is one whatever the ring knows; without one the ring compares with what was pushed
    // meanwhile, so that a drained partition costs no empty claim and a push in this instant is not left waiting.
    const committed = letter === null ? row.after : row.signal!;
    const backlog = letter === null ? row.backlog : letter.backlog;
    if (backlog) announcer.released(group.partitionId, group.group);
    else announcer.released(group.partitionId, group.group, committed);
  }

  #unreadable(group: AckGroup, error: UnreadableSegment, verdicts: AckVerdict[]): void {
    this.#counters.failures++;
    this.#deps.log.error({ partitionId: group.partitionId }, error.message);
    for (const index of group.indexes) verdicts[index] = failed(error.message);
  }

  #fail(groups: readonly AckGroup[], error: unknown, verdicts: AckVerdict[]): void {
    this.#counters.failures++;
    this.#deps.log.warn({ err: error, groups: groups.length }, 'ack flush failed');
    const text = failureText(error);
    for (const group of groups) for (const index of group.indexes) verdicts[index] ??= failed(text);
  }

  async #extend(tenant: string, leaseId: string, seconds: number): Promise<ExtendResult> {
    if (leaseId === '') return { renewed: 0, expiresAtMicros: null };
    const lease = storableText(leaseId);
    const whole = Math.min(SECONDS_MAX, Math.max(1, Math.floor(seconds) || 1));
    const rows = this.#deps.registry?.rowsOf(tenant, lease) ?? null;
    try {
      const answer = await this.#run((db) => leaseExtend(db, tenant, lease, whole, rows));
      if (answer.renewed > 0) this.#deps.registry?.extended(tenant, lease, whole);
      return { renewed: answer.renewed, expiresAtMicros: answer.expires_at };
    } catch (error) {
      throw fromStore(error);
    }
  }
}

/** By offset the last message stands for all before it. */
function endsBatch(entry: RegistryEntry, items: readonly AckItem[]): boolean {
  return items.length === 1 && items[0]!.offset === entry.batchEnd;
}

/** What the decision procedure would have answered. */
function completedRow(group: AckGroup, { last, worker }: Completion, settled: Settled): AckGroupRow {
  return {
    outcome: OUTCOME.decided,
    before: settled.before,
    after: last,
    batchEnd: last,
    holder: worker,
    signal: null,
    released: true,
    backlog: settled.backlog,
    conflated: null,
    offsets: group.items.map(() => last),
    below: group.items.map(() => false),
  };
}
