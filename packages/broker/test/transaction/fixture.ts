/** Whole engines (each as of a broker of its own) over one database, and short ways to say what a transaction does. */
import type { TestContext } from 'node:test';
import { openBroker } from '../../../../test/kit/engine.ts';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import type { Broker, EngineSettings } from '../../src/engine/broker.ts';
import type { KvOperation } from '../../src/engine/kv/operations.ts';
import type {
  Refusal,
  TransactionAnswer,
  TransactionOperation,
  TransactionRequest,
  TransactionResult,
} from '../../src/engine/transaction/types.ts';
import {
  type AckItem,
  DEFAULT_TENANT,
  type PopClaim,
  type PopRequest,
  type PushResult,
} from '../../src/engine/types.ts';

export const GROUP = 'g';
export const QUEUE = 'orders';

export interface Popped {
  leaseId: string;
  claims: PopClaim[];
  /** transactionIds, over all claims. */
  ids: string[];
}

export class Rig {
  readonly test: TestDatabase;
  readonly broker: Broker;

  constructor(test: TestDatabase, broker: Broker) {
    this.test = test;
    this.broker = broker;
  }

  static async open(t: TestContext, settings: Partial<EngineSettings> = {}): Promise<Rig> {
    return Rig.on(t, await freshDatabase(t), settings);
  }

  /** Another broker over the same database. */
  static async on(t: TestContext, test: TestDatabase, settings: Partial<EngineSettings> = {}): Promise<Rig> {
    const broker = await openBroker(test, settings);
    t.after(() => broker.stop());
    return new Rig(test, broker);
  }

  run(
    operations: TransactionOperation[],
    more: Partial<TransactionRequest> = {},
  ): Promise<TransactionAnswer> {
    return this.broker.transaction({
      tenant: DEFAULT_TENANT,
      origin: 'client',
      operations,
      kv: [],
      timers: [],
      requiredLeases: [],
      producerSub: null,
      ...more,
    });
  }

  async done(
    operations: TransactionOperation[],
    more: Partial<TransactionRequest> = {},
  ): Promise<Extract<TransactionAnswer, { success: true }>> {
    const answer = await this.run(operations, more);
    if (!answer.success) throw new Error(`refused: ${JSON.stringify(answer.refusal)}`);
    return answer;
  }

  async refused(
    operations: TransactionOperation[],
    more: Partial<TransactionRequest> = {},
  ): Promise<Refusal> {
    const answer = await this.run(operations, more);
    if (answer.success) throw new Error('the transaction was committed');
    return answer.refusal;
  }

  push(ids: readonly (string | null)[], queue = QUEUE, partition = 'Default'): Promise<PushResult[]> {
    const items = ids.map((id) => ({ queue, partition, payload: payloadOf(id), transactionId: id }));
    return this.broker.push({ tenant: DEFAULT_TENANT, items, producerSub: null });
  }

  async pop(more: Partial<PopRequest> & { queue?: string } = {}): Promise<Popped> {
    const { queue = QUEUE, ...rest } = more;
    const answer = await this.broker.pop({
      tenant: DEFAULT_TENANT,
      scope: { kind: 'queue', queue },
      group: GROUP,
      batch: null,
      partitions: 0,
      autoAck: false,
      waitMs: 0,
      leaseSeconds: 60,
      subscriptionMode: 'all',
      subscriptionFrom: null,
      conflation: null,
      autopilot: false,
      signal: null,
      ...rest,
    });
    return {
      leaseId: answer.leaseId,
      claims: answer.claims,
      ids: answer.claims.flatMap((claim) => claim.messages.map((message) => message.transactionId)),
    };
  }

  /** What a lane holds, by a group of its own that takes everything. */
  async stored(queue: string, reader = 'reader'): Promise<string[]> {
    const ids: string[] = [];
    for (;;) {
      const popped = await this.pop({ queue, group: reader, autoAck: true, batch: 10_000 });
      if (popped.ids.length === 0) return ids;
      ids.push(...popped.ids);
    }
  }
}

export function payloadOf(id: string | null): Buffer {
  return Buffer.from(`{"id":${JSON.stringify(id)}}`);
}

export function push(id: string | null, queue = QUEUE, partition = 'Default'): TransactionOperation {
  return { type: 'push', item: { queue, partition, payload: payloadOf(id), transactionId: id } };
}

export function ack(
  partitionId: string | number,
  transactionId: string,
  more: Partial<AckItem> & { group?: string } = {},
): TransactionOperation {
  const { group = GROUP, ...rest } = more;
  return {
    type: 'ack',
    group,
    item: {
      partitionId: String(partitionId),
      leaseId: null,
      status: 'completed',
      error: null,
      transactionId,
      ...rest,
    },
  };
}

export function gate(key: string, value: unknown = 1): KvOperation {
  return { op: 'putIfAbsent', ns: 'n', key, value: JSON.stringify(value), life: null, required: true };
}

export function verdictOf(result: TransactionResult | undefined) {
  if (result?.type !== 'ack') throw new Error('no ack');
  return result.verdict;
}

export function pushOf(result: TransactionResult | undefined) {
  if (result?.type !== 'push') throw new Error('no push');
  return result;
}
