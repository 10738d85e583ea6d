/** One tenant's KV and transactions in memory, whose answers can be lost in each of the ways that they are lost in. */
import { EngineError } from '../../../src/engine/errors.ts';
import type { KvAnswer, KvOperation, KvRequest, KvResult } from '../../../src/engine/kv/operations.ts';
import type { TransactionAnswer, TransactionRequest } from '../../../src/engine/transaction/types.ts';

export type Accident =
  /** It was done, and nobody heard of it. */
  'in_doubt_applied' | 'in_doubt_not_applied' | 'unavailable' | 'overloaded';

interface Value {
  value: string;
  version: number;
}

export class FakeStore {
  readonly entries = new Map<string, Value>();
  /** Ids of messages, in the order in which they were committed. */
  readonly messages: string[] = [];
  /** What happens to the calls that write, one after the other. */
  accidents: (Accident | null)[] = [];
  writes = 0;
  #version = 0;

  async kv({ operations }: KvRequest): Promise<KvAnswer> {
    const [operation] = operations;
    if (operation!.op === 'get') {
      const found = this.entries.get(operation!.key);
      const entry =
        found === undefined
          ? null
          : { key: operation!.key, ...found, expiresAtMicros: null, updatedAtMicros: 0 };
      return { ok: true, results: [{ op: 'get', key: operation!.key, entry }] };
    }
    return this.#accident(() => ({ ok: true, results: [this.#write(operation!)] }));
  }

  async transaction({ operations, kvLater, ...asked }: TransactionRequest): Promise<TransactionAnswer> {
    const kv = [...asked.kv, ...((await kvLater) ?? [])];
    return this.#accident(() => {
      const ids = operations.map((operation) =>
        operation.type === 'push' ? operation.item.transactionId! : '',
      );
      const transactionId = 't';
      const failed = kv.findIndex((operation) => !this.#holds(operation));
      if (failed >= 0) {
        const refusal = {
          reason: 'kv_precondition',
          error: 'lost',
          failedIndex: ids.length + failed,
        } as const;
        return { transactionId, success: false, refusal };
      }
      const known = ids.findIndex((id) => this.messages.includes(id));
      if (known >= 0) {
        const refusal = { reason: 'duplicate', error: 'there', failedIndex: known } as const;
        return { transactionId, success: false, refusal };
      }
      this.messages.push(...ids);
      return { transactionId, success: true, results: [], kv: kv.map((one) => this.#write(one)), timers: [] };
    });
  }

  /** As another owner would. */
  set(key: string, value: string): number {
    const version = ++this.#version;
    this.entries.set(key, { value, version });
    return version;
  }

  #accident<T>(work: () => T): T {
    this.writes++;
    const accident = this.accidents.shift() ?? null;
    if (accident === 'unavailable') throw new EngineError('unavailable', 'pool', 'no database connection');
    if (accident === 'overloaded') {
      throw new EngineError('overloaded', 'overloaded', 'full', { retryAfterSeconds: 1 });
    }
    if (accident === 'in_doubt_not_applied') throw new EngineError('in_doubt', 'connection', 'lost');
    const done = work();
    if (accident === 'in_doubt_applied') throw new EngineError('in_doubt', 'connection', 'lost');
    return done;
  }

  #holds(operation: KvOperation): boolean {
    if (!('expect' in operation) || operation.expect === null) return true;
    return (this.entries.get(operation.key)?.version ?? 0) === operation.expect;
  }

  #write(operation: KvOperation): KvResult {
    if (operation.op !== 'put' && operation.op !== 'delete') throw new Error(`not here: ${operation.op}`);
    const { op, key } = operation;
    const found = this.entries.get(key);
    if (!this.#holds(operation)) {
      const reason = found === undefined ? 'absent' : 'version';
      return { op, key, applied: false, value: found?.value ?? null, version: found?.version ?? 0, reason };
    }
    if (op === 'delete') {
      this.entries.delete(key);
      return {
        op,
        key,
        applied: true,
        value: found?.value ?? null,
        version: found?.version ?? 0,
        reason: null,
      };
    }
    const version = this.set(key, operation.value);
    return { op, key, applied: true, value: operation.value, version, reason: null };
  }
}
