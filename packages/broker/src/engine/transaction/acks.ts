/**
 * The acks of a transaction: which lease each is held against, one decision a (partition, group, lease), and what of it
 * rolls everything back.
 *
 * An ack that names no lease is held against the live one of its row, which must be among those that the caller says it
 * holds; that is found out under the row lock, in the statement that decides. Only when one row is acked with several
 * leases (or with and without one) the leases are found first, and the groups decided one after the other.
 */
import { type HandOffRow, OUTCOME } from '../../store/ack.ts';
import type { LogResult, TransactionAckGroup } from '../../store/log_transaction.ts';
import { argsOf, type Decision, decide, decideFrom, handOff } from '../ack/decide.ts';
import { type AckGroup, parsePartitionId, storableText } from '../ack/groups.ts';
import type { AckRegistry } from '../ack/registry.ts';
import { type Run, UnreadableSegment } from '../ack/segments.ts';
import { ACK_ERROR, groupVerdicts, refusalText } from '../ack/verdicts.ts';
import type { AckItem } from '../types.ts';
import type { Announcer } from '../wake/announcer.ts';
import { refuse } from './refusal.ts';
import type { TransactionRequest, TransactionResult } from './types.ts';

const UNKNOWN_TRANSACTION = 'QTXN ack references unknown transactionId; transaction rolled back';

interface Wish {
  index: number;
  item: AckItem;
  /** Null: the ack names none. */
  lease: string | null;
}

/** All acks on one consumer row. */
interface Row {
  readonly partitionId: number;
  readonly group: string;
  readonly wishes: Wish[];
  readonly leases: Set<string | null>;
}

interface Decided {
  decision: Decision;
  handed: HandOffRow | null;
}

export class Acks {
  readonly requiredLeases: string[];
  /** One statement decides all of them. */
  readonly together: boolean;
  readonly #request: TransactionRequest;
  readonly #tenancy: boolean;
  readonly #rows: Row[];
  readonly #malformed: number | null;

  constructor(request: TransactionRequest, tenancy: boolean) {
    this.#request = request;
    this.#tenancy = tenancy;
    this.requiredLeases = [...new Set(request.requiredLeases.map(storableText))].filter((id) => id !== '');
    const rows = new Map<string, Row>();
    let malformed: number | null = null;
    request.operations.forEach((operation, index) => {
      if (operation.type !== 'ack') return;
      const { item } = operation;
      const partitionId = parsePartitionId(item.partitionId);
      if (partitionId === null) {
        malformed ??= index;
        return;
      }
      const group = storableText(operation.group);
      const key = `${partitionId}\u001f${group}`;
      let row = rows.get(key);
      if (row === undefined) {
        row = { partitionId, group, wishes: [], leases: new Set() };
        rows.set(key, row);
      }
      const lease = item.leaseId === null || item.leaseId === '' ? null : storableText(item.leaseId);
      row.wishes.push({ index, item, lease });
      row.leases.add(lease);
    });
    this.#malformed = malformed;
    this.#rows = [...rows.values()];
    this.together = this.#rows.every((row) => row.leases.size === 1);
  }

  get count(): number {
    return this.#rows.length;
  }

  /** Throws a Rollback for an ack that can be on no row: before anything is sent. */
  check(): void {
    if (this.#malformed !== null) throw this.#rejected(this.#malformed, ACK_ERROR.consumerNotFound);
  }

  /** The groups as the statement takes them: one a row. */
  groups(): TransactionAckGroup[] {
    return this.#rows.map((row) => {
      const group = this.#groupOf(row, row.wishes, '', 0);
      const only = row.leases.size === 1 ? row.wishes[0]!.lease : null;
      return { ...argsOf(group), lease: only };
    });
  }

  /**
   * From the statement's answer to what became of every group. Reads stored messages and writes dead letters on the open
   * transaction. Throws a Rollback when an ack is rejected.
   */
  async settle(tx: Run, log: LogResult): Promise<Decided[]> {
    if (log.fenced !== null) {
      const { index } = this.#rows[log.fenced]!.wishes.find(({ lease }) => lease === null)!;
      throw this.#rejected(index, ACK_ERROR.lease);
    }
    const waves = this.#waves(log.leases);
    const decided: Decided[] = [];
    for (const [wave, groups] of waves.entries()) {
      const decisions =
        wave === 0 && log.acks !== null
          ? await decideFrom(tx, groups, log.acks, this.#report())
          : await decide(tx, groups, this.#report());
      for (const decision of decisions) decided.push(await this.#settle(tx, decision));
    }
    return decided;
  }

  /** Puts the results where they belong. */
  fill(results: TransactionResult[], decided: readonly Decided[]): void {
    for (const { decision, handed } of decided) {
      const { group, row } = decision;
      const handOff = handed === null ? null : { row: handed };
      groupVerdicts(group, row, handOff, this.#tenancy).forEach((verdict, i) => {
        const { transactionId } = group.items[i]!;
        results[group.indexes[i]!] = { type: 'ack', transactionId, verdict };
      });
    }
  }

  /** After the commit: the batches are no longer what was delivered, and some may be claimed again. */
  announce(decided: readonly Decided[], announcer: Announcer, registry: AckRegistry | null): void {
    for (const { decision, handed } of decided) {
      const { group, row } = decision;
      const { tenant, partitionId } = group;
      if (row.holder !== null) registry?.take(tenant, partitionId, group.group, row.holder);
      if (!row.released && handed === null) continue;
      if (row.holder !== null) registry?.released(tenant, partitionId, group.group, row.holder);
      const backlog = handed === null ? row.backlog : handed.backlog;
      if (backlog) announcer.released(partitionId, group.group);
      else announcer.released(partitionId, group.group, handed === null ? row.after : row.signal!);
    }
  }

  async #settle(tx: Run, decision: Decision): Promise<Decided> {
    const { group, row } = decision;
    const why = refusalText(row.outcome, this.#tenancy);
    if (why !== null) throw this.#rejected(group.indexes[0]!, why);
    group.items.forEach((_, i) => {
      if (row.offsets[i]! < 0 && !row.below[i]) throw this.#rejected(group.indexes[i]!, UNKNOWN_TRANSACTION);
    });
    if (row.outcome !== OUTCOME.handOff) return { decision, handed: null };
    const index = group.indexes[row.offsets.indexOf(row.signal!)]!;
    try {
      const handed = await handOff(tx, decision);
      if (handed.outcome === OUTCOME.decided) return { decision, handed };
      throw this.#rejected(
        index,
        handed.outcome === OUTCOME.committed ? ACK_ERROR.committed : ACK_ERROR.lease,
      );
    } catch (error) {
      if (error instanceof UnreadableSegment) throw refuse('db_error', error.message, index);
      throw error;
    }
  }

  /** Groups by the lease they are held against; of those on one row each waits for the one before. */
  #waves(leases: readonly string[]): AckGroup[][] {
    const waves: AckGroup[][] = [];
    this.#rows.forEach((row, r) => {
      const byLease = new Map<string, Wish[]>();
      for (const wish of row.wishes) {
        const lease = wish.lease ?? leases[r]!;
        const list = byLease.get(lease);
        if (list === undefined) byLease.set(lease, [wish]);
        else list.push(wish);
      }
      [...byLease].forEach(([lease, wishes], wave) => {
        waves[wave] ??= [];
        waves[wave].push(this.#groupOf(row, wishes, lease, wave));
      });
    });
    return waves;
  }

  #groupOf(row: Row, wishes: readonly Wish[], lease: string, wave: number): AckGroup {
    return {
      tenant: this.#request.tenant,
      partitionId: row.partitionId,
      group: row.group,
      lease,
      items: wishes.map(({ item }) => item),
      indexes: wishes.map(({ index }) => index),
      wave,
    };
  }

  #report() {
    return {
      searched() {},
      unreadable(group: AckGroup, error: UnreadableSegment): never {
        throw refuse('db_error', error.message, group.indexes[0]!);
      },
    };
  }

  #rejected(index: number, error: string) {
    return refuse('ack_rejected', error, index);
  }
}
