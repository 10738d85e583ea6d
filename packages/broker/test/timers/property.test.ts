/**
 * Random interleavings of two brokers against a naive model: what is answered, what is pending, what is claimed, and what
 * ends up in the log must be what the model says. The database's clock only moves when the test moves it.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { seeded } from '../../../../test/faults/seed.ts';
import { assertLogInvariants } from '../../../../test/kit/invariants.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { type ClaimedTimer, claimTimers } from '../../src/store/timers.ts';
import { cancel, Rig, schedule } from './fixture.ts';

const KEYS = ['a', 'b', 'c', 'd', 'e'] as const;
const PARTITIONS = ['p', 'q'] as const;
const LEASE_SECONDS = 30;

type Command =
  | { kind: 'schedule'; key: string; partition: string; seconds: number }
  | { kind: 'cancel'; key: string }
  | { kind: 'advance'; seconds: number }
  | { kind: 'claim'; broker: number; limit: number }
  | { kind: 'fire'; claim: number }
  | { kind: 'sweep'; broker: number }
  | { kind: 'deleteQueue' };

const command: fc.Arbitrary<Command> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('schedule' as const),
      key: fc.constantFrom(...KEYS),
      partition: fc.constantFrom(...PARTITIONS),
      seconds: fc.integer({ min: -2, max: 20 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('cancel' as const), key: fc.constantFrom(...KEYS) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant('advance' as const), seconds: fc.constantFrom(1, 10, 31) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('claim' as const),
      broker: fc.nat(1),
      limit: fc.constantFrom(2, 200, 200),
    }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('fire' as const), claim: fc.nat(3) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('sweep' as const), broker: fc.nat(1) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('deleteQueue' as const) }) },
);

interface Pending {
  id: string;
  partition: string;
  due: number;
  held: { claim: object; until: number } | null;
}

/** One run: the model beside the brokers. Times are seconds. */
class Run {
  readonly #brokers: readonly Rig[];
  readonly #queue: string;
  readonly #pending = new Map<string, Pending>();
  /** Message ids by partition, in order, since the queue was last deleted. */
  #log = new Map<string, string[]>();
  readonly #claims: { broker: number; timers: ClaimedTimer[] }[] = [];
  #now: number;

  constructor(brokers: readonly Rig[], queue: string, now: number) {
    this.#brokers = brokers;
    this.#queue = queue;
    this.#now = now;
  }

  async do(command: Command): Promise<void> {
    const rig = this.#brokers[0]!;
    switch (command.kind) {
      case 'schedule': {
        const { key, partition, seconds } = command;
        const known = this.#pending.get(key);
        const operation = schedule(key, seconds * 1000, { partition, queue: this.#queue });
        const result = await rig.one(operation);
        const expected = this.#held(known) ? 'too_late' : known === undefined ? 'scheduled' : 'rescheduled';
        assert.equal(result.status, expected);
        if (expected === 'too_late') return;
        assert.equal(result.dueAtMicros, (this.#now + seconds) * 1e6);
        this.#pending.set(key, { id: result.messageId!, partition, due: this.#now + seconds, held: null });
        return;
      }
      case 'cancel': {
        const known = this.#pending.get(command.key);
        const { status } = await rig.one(cancel(command.key, this.#queue));
        assert.equal(status, this.#held(known) ? 'too_late' : known === undefined ? 'absent' : 'cancelled');
        if (status === 'cancelled') this.#pending.delete(command.key);
        return;
      }
      case 'advance':
        this.#now += command.seconds;
        return setClock(rig, this.#now);
      case 'claim': {
        const { timers } = await this.#claim(command.broker, command.limit);
        this.#claims.push({ broker: command.broker, timers });
        return;
      }
      case 'fire': {
        const [claim] = this.#claims.splice(command.claim, 1);
        if (claim !== undefined) await this.#fire(claim.broker, claim.timers);
        return;
      }
      case 'sweep':
        return this.#sweep(command.broker);
      case 'deleteQueue':
        await rig.broker.deleteQueue(DEFAULT_TENANT, this.#queue);
        this.#log = new Map();
    }
  }

  /** Lets every claim end and fires the rest. */
  async finish(): Promise<void> {
    this.#now += LEASE_SECONDS + 60;
    await setClock(this.#brokers[0]!, this.#now);
    await this.#sweep(0);
    for (const { broker, timers } of this.#claims) await this.#fire(broker, timers);
    await this.check();
    assert.equal(this.#pending.size, 0);
    await this.do({ kind: 'deleteQueue' });
  }

  async check(): Promise<void> {
    const rig = this.#brokers[0]!;
    assert.deepEqual(await rig.pending(DEFAULT_TENANT, this.#queue), [...this.#pending.keys()].sort());
    const rows = await rig.query<{ id: number; name: string }>(
      `SELECT p.id, p.name FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id
        WHERE q.name = '${this.#queue}'`,
    );
    const names = new Map(rows.map(({ id, name }) => [id, name]));
    const log = new Map<string, string[]>();
    const { messages } = await assertLogInvariants(rig.broker.db);
    for (const [id, stored] of messages) {
      if (stored.length > 0)
        log.set(
          names.get(id)!,
          stored.map((message) => message.id),
        );
    }
    assert.deepEqual(sorted(log), sorted(this.#log));
  }

  #held(timer: Pending | undefined): boolean {
    return timer?.held != null && timer.held.until > this.#now;
  }

  #due(timer: Pending): boolean {
    return timer.due <= this.#now && !this.#held(timer);
  }

  async #claim(broker: number, limit: number) {
    const { timers } = await claimTimers(this.#brokers[broker]!.broker.db, {
      limit,
      bytesMax: 8_388_608,
      leaseMs: LEASE_SECONDS * 1000,
    });
    const due = [...this.#pending.values()].filter((timer) => this.#due(timer));
    assert.equal(timers.length, Math.min(limit, due.length));
    for (const timer of timers) {
      const known = this.#pending.get(timer.timerKey)!;
      assert.ok(known !== undefined && this.#due(known), `${timer.timerKey} is not due`);
      known.held = { claim: timers, until: this.#now + LEASE_SECONDS };
    }
    return { timers };
  }

  async #fire(broker: number, timers: readonly ClaimedTimer[]): Promise<void> {
    await this.#brokers[broker]!.broker.firing.fire(timers);
    for (const partition of PARTITIONS) {
      const lane = timers.filter((timer) => timer.partition === partition);
      const mine = lane.filter(({ timerKey }) => {
        const held = this.#pending.get(timerKey)?.held;
        return held?.claim === timers && held.until > this.#now;
      });
      for (const { timerKey } of mine) this.#fired(timerKey);
    }
  }

  async #sweep(broker: number): Promise<void> {
    await this.#brokers[broker]!.sweep();
    const due = [...this.#pending]
      .filter(([, timer]) => this.#due(timer))
      .sort(([, a], [, b]) => a.due - b.due)
      .map(([key]) => key);
    for (const key of due) this.#fired(key);
  }

  #fired(key: string): void {
    const { partition, id } = this.#pending.get(key)!;
    this.#log.set(partition, [...(this.#log.get(partition) ?? []), id]);
    this.#pending.delete(key);
  }
}

/** Timers that are due at the same time may come in either order, so ids are compared as sets. */
function sorted(log: Map<string, string[]>): Record<string, string[]> {
  return Object.fromEntries([...log].sort().map(([name, ids]) => [name, [...ids].sort()]));
}

async function setClock(rig: Rig, seconds: number): Promise<void> {
  await rig.broker.db.query({
    name: '',
    text: `CREATE OR REPLACE FUNCTION queen.clock() RETURNS timestamptz LANGUAGE sql VOLATILE
           AS $$ SELECT queen.from_micros(${seconds * 1e6}::bigint) $$`,
  });
}

test('two brokers agree with the model', async (t) => {
  const first = await Rig.open(t);
  const brokers = [first, await Rig.on(t, first.test)];
  let runs = 0;
  const seed = seeded(t).integer(0, 0x7fffffff);
  await fc.assert(
    fc.asyncProperty(fc.array(command, { minLength: 20, maxLength: 60 }), async (commands) => {
      const start = 2_000_000_000 + runs * 100_000;
      await first.query('DELETE FROM queen.log_timers');
      await setClock(first, start);
      const run = new Run(brokers, `q${runs++}`, start);
      for (const each of commands) {
        await run.do(each);
        await run.check();
      }
      await run.finish();
    }),
    { seed, numRuns: 12, interruptAfterTimeLimit: 20_000 },
  );
});
