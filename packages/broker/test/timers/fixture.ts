/** Whole engines (each as of a broker of its own) over one database, and short ways to schedule and to look. */
import type { TestContext } from 'node:test';
import { openBroker } from '../../../../test/kit/engine.ts';
import { assertLogInvariants, type StoredMessage } from '../../../../test/kit/invariants.ts';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import type { Broker, EngineOptions, EngineSettings } from '../../src/engine/broker.ts';
import type { TimerOperation, TimerResult } from '../../src/engine/timers/face.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { sql } from '../push/fixture.ts';

export const QUEUE = 'orders';
export const OTHER_TENANT = '00000000-0000-0000-0000-0000000000bb';

type Schedule = Extract<TimerOperation, { op: 'schedule' }>;

export class Rig {
  readonly test: TestDatabase;
  readonly broker: Broker;

  constructor(test: TestDatabase, broker: Broker) {
    this.test = test;
    this.broker = broker;
  }

  static async open(
    t: TestContext,
    settings: Partial<EngineSettings> = {},
    options: Partial<EngineOptions> = {},
  ): Promise<Rig> {
    return Rig.on(t, await freshDatabase(t), settings, options);
  }

  /** Another broker over the same database. */
  static async on(
    t: TestContext,
    test: TestDatabase,
    settings: Partial<EngineSettings> = {},
    options: Partial<EngineOptions> = {},
  ): Promise<Rig> {
    const broker = await openBroker(test, settings, options);
    t.after(() => broker.stop());
    return new Rig(test, broker);
  }

  apply(operations: TimerOperation[], tenant = DEFAULT_TENANT): Promise<TimerResult[]> {
    return this.broker.timers.apply({ tenant, producerSub: null, operations });
  }

  async one(operation: TimerOperation, tenant = DEFAULT_TENANT): Promise<TimerResult> {
    return (await this.apply([operation], tenant))[0]!;
  }

  /** Cycles until nothing is due any more; how many timers were claimed. */
  async sweep(): Promise<number> {
    let rows = 0;
    for (let cycles = 0; ; cycles++) {
      if (cycles > 1000) throw new Error('the sweeper comes to no end');
      const cycle = await this.broker.timerSweeper.pass();
      rows += cycle.rows;
      if (cycle.end.kind === 'done' || cycle.end.kind === 'off') return rows;
    }
  }

  /** What is in the log, all partitions, each in its order; the log's invariants hold. */
  async stored(): Promise<StoredMessage[]> {
    const { messages } = await assertLogInvariants(this.broker.db);
    return [...messages.values()].flat();
  }

  async storedIds(): Promise<string[]> {
    return (await this.stored()).map((message) => message.transactionId);
  }

  async pending(tenant = DEFAULT_TENANT, queue = QUEUE): Promise<string[]> {
    const { rows } = await this.broker.timers.list(tenant, queue, { prefix: '', after: null, limit: 1000 });
    return rows.map((row) => row.timerKey);
  }

  query<Row extends object>(text: string, params: (string | number)[] = []): Promise<Row[]> {
    return sql<Row>(this.broker.db, text, params);
  }

  async switch(key: 'timers_fire_enabled' | 'timers_schedule_enabled', on: boolean): Promise<void> {
    await this.broker.switches.set({ [key]: on });
  }
}

export function schedule(timerKey: string, delayMs = 0, more: Partial<Schedule> = {}): Schedule {
  return {
    op: 'schedule',
    queue: QUEUE,
    timerKey,
    partition: 'Default',
    delayMs,
    transactionId: `txn-${timerKey}`,
    payload: Buffer.from(JSON.stringify({ key: timerKey })),
    payloadZstd: false,
    encrypted: false,
    ...more,
  };
}

export function cancel(timerKey: string, queue = QUEUE, transactionId: string | null = null): TimerOperation {
  return { op: 'cancel', queue, timerKey, transactionId };
}
