/** Brokers of one database that keep messages on their disks, what their clients were told, and what must be true of it. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FaultPoint } from '../../packages/broker/src/observability/buggify.ts';
import { type Database, statement } from '../../packages/broker/src/store/database.ts';
import { Client } from '../broker/client.ts';
import { type BrokerProcess, startBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';
import { until } from '../kit/until.ts';

const HOOK = join(import.meta.dirname, 'fault_hook.ts');
const LANES = ['p0', 'p1', 'p2'];
/** Small, so that much happens at their ends. */
const SMALL = { FILE_BUFFER_EVENTS_PER_FILE: '20', FILE_BUFFER_MAX_BATCH: '7', FILE_BUFFER_FLUSH_MS: '20' };

const PAUSE = statement(
  'spool_test_pause',
  `SELECT queen.system_switches_set('{maintenance_mode}', '{true}')::text`,
);

function directory(t: Cleanup): string {
  const made = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
  atEnd(t, () => rmSync(made, { recursive: true, force: true }));
  return made;
}

export class Scene {
  readonly database: TestDatabase;
  readonly spoolDir: string;
  /** By lane, in the order of the answers: ids by transactionId. */
  readonly told = new Map<string, Map<string, string>>(LANES.map((lane) => [lane, new Map()]));
  readonly #t: Cleanup;
  readonly #db: Database;
  #sent = 0;

  static async open(t: Cleanup): Promise<Scene> {
    const database = await freshDatabase(t);
    const db = await database.open({ poolSize: 1 });
    atEnd(t, () => db.close());
    return new Scene(t, database, db);
  }

  private constructor(t: Cleanup, database: TestDatabase, db: Database) {
    this.#t = t;
    this.database = database;
    this.#db = db;
    this.spoolDir = directory(t);
  }

  start(fault: { point: FaultPoint; nth: number } | null = null): Promise<BrokerProcess> {
    const { database, spoolDir } = this;
    const doomed =
      fault === null
        ? {}
        : { NODE_OPTIONS: `--import ${HOOK}`, QUEEN_TEST_FAULT: `${fault.point}:kill:${fault.nth}` };
    return startBroker({ database, spoolDir, env: { ...SMALL, ...doomed } }, this.#t);
  }

  /** One request after the other, each into one lane, until so many or until the broker is gone. */
  async push(broker: BrokerProcess, requests: number): Promise<void> {
    const client = new Client(broker.url);
    for (let i = 0; i < requests; i++) {
      const n = this.#sent++;
      const partition = LANES[n % LANES.length]!;
      const items = Array.from({ length: 1 + (n % 4) }, (_, k) => ({
        queue: 'q',
        partition,
        transactionId: `m${n}.${k}`,
        payload: { n, k },
      }));
      const results = await client.push(items).catch(() => null);
      if (results === null) return;
      for (const { status, transaction_id, message_id } of results) {
        assert.ok(['buffered', 'queued'].includes(status), status);
        this.told.get(partition)!.set(transaction_id, message_id);
      }
    }
  }

  async pause(broker: BrokerProcess, enabled: boolean): Promise<void> {
    const { status } = await new Client(broker.url).call('POST', '/api/v1/system/maintenance', { enabled });
    assert.equal(status, 200);
  }

  /** The same without a broker: the next one starts with all of it on its disk. */
  async pauseByHand(): Promise<void> {
    await this.#db.query(PAUSE);
  }

  pending(broker: BrokerProcess): Promise<number> {
    return new Client(broker.url)
      .call<{ pending: number }>('GET', '/api/v1/status/buffers')
      .then(({ body }) => body.pending);
  }

  async empty(broker: BrokerProcess): Promise<void> {
    await until('all is stored', async () => (await this.pending(broker)) === 0, 60_000);
  }

  /** Every lane, as a consumer gets it. */
  async check(broker: BrokerProcess): Promise<void> {
    const client = new Client(broker.url);
    const all = { autoAck: true, consumerGroup: 'check', subscriptionMode: 'all', batch: 10_000 };
    for (const [lane, told] of this.told) {
      const stored = await client.pop('q', all, lane);
      const ids = new Map(stored.map(({ transactionId, id }) => [transactionId, id]));
      assert.equal(ids.size, stored.length, `${lane}: something is there twice`);
      for (const [transactionId, id] of told) {
        assert.equal(ids.get(transactionId), id, `${lane}: ${transactionId} is lost, or has another id`);
      }
      const order = stored.map(({ transactionId }) => transactionId).filter((each) => told.has(each));
      assert.deepEqual(order, [...told.keys()], `${lane} is out of order`);
      // What nobody was told of is there as a whole or not at all.
      for (const { transactionId } of stored) {
        if (told.has(transactionId)) continue;
        const [n] = transactionId.slice(1).split('.');
        const unit = stored.filter((each) => each.transactionId.startsWith(`m${n}.`));
        assert.equal(unit.length, 1 + (Number(n) % 4));
      }
    }
    await assertLogInvariants(this.#db, { windowsNeverRaised: true });
  }
}
