/** The manager: which units run, when they are tried again, what is shown of them, and how they end. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { freshDatabase, type TestDatabase } from '../../../../../test/kit/postgres.ts';
import { until } from '../../../../../test/kit/until.ts';
import { parseWritten } from '../../../src/connectors/postgres/document/parse.ts';
import { renderStored } from '../../../src/connectors/postgres/document/render.ts';
import { sealPassword } from '../../../src/connectors/postgres/document/seal.ts';
import type { ConnectorDocument } from '../../../src/connectors/postgres/document/types.ts';
import { ConnectorFault } from '../../../src/connectors/postgres/fault.ts';
import { ConnectorManager, type ManagerSettings } from '../../../src/connectors/postgres/manager/manager.ts';
import { connectorSources } from '../../../src/connectors/postgres/manager/metrics.ts';
import type { UnitContext } from '../../../src/connectors/postgres/unit.ts';
import { EngineError } from '../../../src/engine/errors.ts';
import { DEFAULT_TENANT } from '../../../src/engine/types.ts';
import { parseSealingKey } from '../../../src/log/envelope.ts';
import { Metrics } from '../../../src/observability/metrics.ts';
import { listConnectors, putConnector, removeConnector } from '../../../src/store/connectors.ts';
import { type Database, type Queryable, statement } from '../../../src/store/database.ts';
import { FakeClock } from '../../hotlist/fake_clock.ts';

const CLEAR = statement('test_clear', 'DELETE FROM queen.connectors');
const OTHER_TENANT = '00000000-0000-4000-8000-00000000000b';
const KEY = parseSealingKey('0123456789abcdef'.repeat(4))!;
const CONNECTION = { host: 'h', database: 'd', user: 'u' };
const SOURCE = { kind: 'source', connection: CONNECTION, source: { tables: [{ table: 't', queue: 'q' }] } };
const SINK = { kind: 'sink', connection: CONNECTION, sink: { queue: 'q', table: 't', mode: 'append' } };

/** A unit under the test's hand. */
interface Running {
  readonly context: UnitContext<ConnectorDocument>;
  readonly signal: AbortSignal;
  end(): void;
  fail(error: unknown): void;
}

interface Shown {
  phase: string;
  connectors: {
    tenant: string;
    name: string;
    kind: string | null;
    phase: string;
    error: { code: string; message: string; at: string } | null;
    retryInMs?: number;
    generation: number;
    restarts: number;
    [fact: string]: unknown;
  }[];
  documentsError: string | null;
}

interface Bench {
  manager: ConnectorManager;
  clock: FakeClock;
  running: Running[];
  metrics(): Promise<string>;
  overview(): Shown;
  one(name: string): Shown['connectors'][number] | undefined;
  write(
    name: string,
    document: object,
    over?: { tenant?: string; sealed?: string; marks?: object },
  ): Promise<void>;
  remove(name: string): Promise<void>;
  lines: string[];
  /** How often the store was asked for anything. */
  reads(): number;
  failReads(error: Error | null): void;
}

let database: TestDatabase;
let db: Database;
async function openBench(over: Partial<ManagerSettings> = {}): Promise<Bench> {
  await db.query(CLEAR);
  const clock = new FakeClock();
  const running: Running[] = [];
  const lines: string[] = [];
  const note = (facts: object, message: string) => void lines.push(`${message} ${JSON.stringify(facts)}`);
  let failing: Error | null = null;
  let reads = 0;
  const manager = new ConnectorManager({
    broker: {} as never,
    run: async <T>(work: (on: Queryable) => Promise<T>) => {
      reads++;
      if (failing !== null) throw failing;
      return work(db);
    },
    sealingKey: KEY,
    settings: {
      enabled: true,
      threads: 2,
      reloadMs: 5000,
      leaseTtlMs: 10_000,
      shutdownGraceMs: 10_000,
      allowPrivate: true,
      ...over,
    },
    createUnit: (context) => ({
      run: (signal) =>
        new Promise<void>((resolve, reject) => {
          running.push({ context, signal, end: resolve, fail: reject });
        }),
    }),
    clock,
    log: { info: note, warn: note, error: note },
    node: 'n1',
    storeId: 's1',
    version: '9.9',
  });
  const registry = new Metrics();
  registry.sources(connectorSources(() => manager.statuses()));
  const versions = async () =>
    new Map((await listConnectors(db)).map((row) => [`${row.tenant}/${row.name}`, row.version]));
  let stamp = 0;
  return {
    manager,
    clock,
    running,
    lines,
    reads: () => reads,
    metrics: () => registry.expose(),
    overview: () => manager.overview() as Shown,
    one: (name) => (manager.overview() as Shown).connectors.find((each) => each.name === name),
    async write(name, document, { tenant = DEFAULT_TENANT, sealed = null as never, marks = {} } = {}) {
      const { document: parsed } = parseWritten(document, name);
      const settled = {
        ...parsed,
        connection: { ...parsed.connection, passwordSealed: sealed },
        updatedAt: `2026-01-01T00:00:00.${String(++stamp).padStart(6, '0')}Z`,
        ...marks,
      };
      const expect = (await versions()).get(`${tenant}/${name}`) ?? 0;
      const row = { tenant, name, document: JSON.stringify(renderStored(settled)), expect };
      assert.notEqual(await putConnector(db, row), null);
    },
    async remove(name) {
      const expect = (await versions()).get(`${DEFAULT_TENANT}/${name}`)!;
      assert.ok(await removeConnector(db, { tenant: DEFAULT_TENANT, name, expect, state: true }));
    },
    failReads: (error) => {
      failing = error;
    },
  };
}

const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

suite('the manager', () => {
  before(async () => {
    database = await freshDatabase();
    db = await database.open({ poolSize: 3 });
  });
  after(async () => {
    await db.close();
    await database.drop();
  });

  test('documents of all tenants run; a change swaps, one after the other; what is gone is forgotten', async () => {
    const bench = await openBench();
    const { manager, running, clock } = bench;
    await bench.write('a', SOURCE);
    await bench.write('a', SINK, { tenant: OTHER_TENANT });
    assert.equal(bench.overview().phase, 'starting');
    manager.start();
    await until('both run', () => running.length === 2);
    await until('the pass is over', () => bench.overview().phase === 'running');
    const [first, second] = running;
    assert.equal(first!.context.document.kind, 'source');
    assert.deepEqual([second!.context.document.kind, second!.context.tenant], ['sink', OTHER_TENANT]);
    const { applicationName, node, storeId, leaseTtlMs } = first!.context;
    assert.deepEqual(
      { applicationName, node, storeId, leaseTtlMs },
      { applicationName: 'queen-pg/9.9', node: 'n1', storeId: 's1', leaseTtlMs: 10_000 },
    );

    // Nothing changed: nothing happens.
    clock.advance(5000);
    await until('a second pass', () => clock.pending === 1);
    assert.equal(running.length, 2);

    await bench.write('a', { ...SOURCE, source: { ...SOURCE.source, lingerMs: 7 } });
    clock.advance(5000);
    await until('the old one is asked to end', () => first!.signal.aborted);
    await settled();
    assert.equal(running.length, 2, 'the new one waits for it');
    first!.end();
    await until('the new one runs', () => running.length === 3);
    assert.equal(
      (running[2]!.context.document as never as { source: { lingerMs: number } }).source.lingerMs,
      7,
    );
    assert.equal(second!.signal.aborted, false);

    await bench.remove('a');
    manager.poke();
    await until('it is asked to end', () => running[2]!.signal.aborted);
    assert.deepEqual(
      bench.overview().connectors.map(({ tenant }) => tenant),
      [OTHER_TENANT],
    );
    // Made anew while the old one still ends: it waits.
    await bench.write('a', SOURCE);
    manager.poke();
    await until('the pass is over', () => clock.pending === 1);
    assert.equal(running.length, 3);
    running[2]!.end();
    await until('the next life', () => running.length === 4);
    assert.equal(bench.one('a')!.generation, 1, 'counted anew');
    running[3]!.end();
    second!.end();
    await manager.stop();
  });

  test('after an error: back-off, half a minute, or another document; counters go on', async () => {
    const bench = await openBench();
    const { running, clock, manager } = bench;
    await bench.write('a', SOURCE);
    manager.start();
    await until('it runs', () => running.length === 1);
    const { status } = running[0]!.context;
    status.enter('streaming');
    status.count('messages', 5);
    status.owner(true);
    status.gauge('pointerLsn', 0x1_0000_0010n);
    status.gauge('slotLagBytes', 42n);
    status.show({ epoch: 'abc', walStatus: 'reserved' });
    const shown = bench.one('a')!;
    assert.deepEqual(
      [
        shown.phase,
        shown.messages,
        shown.pointerLsn,
        shown.slotLagBytes,
        shown.epoch,
        shown.slot,
        shown.error,
      ],
      ['streaming', 5, '1/10', 42, 'abc', 'queen_a', null],
    );

    status.owner(false);
    status.gauge('pointerLsn', null);
    status.gauge('slotLagBytes', null);
    const stoodDown = bench.one('a')!;
    assert.deepEqual([stoodDown.pointerLsn, stoodDown.slotLagBytes, stoodDown.walStatus], [null, null, null]);

    for (const [i, baseMs] of [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000].entries()) {
      running[i]!.fail(new ConnectorFault('io', 'lost postgres://u:secret@h/d'));
      await until('it shows', () => bench.one('a')!.phase === 'error');
      const { error, retryInMs } = bench.one('a')!;
      assert.deepEqual([error!.code, error!.message], ['io', 'lost postgres://…']);
      assert.ok(retryInMs! <= baseMs * 1.2 && retryInMs! >= baseMs * 0.8 - 1000, `${retryInMs}`);
      clock.advance(baseMs * 0.8 - 1);
      await settled();
      assert.equal(running.length, i + 1);
      clock.advance(baseMs * 0.4 + 1);
      await until('it runs again', () => running.length === i + 2);
      assert.equal(bench.one('a')!.phase, 'starting');
      assert.equal(bench.one('a')!.error, null);
    }
    assert.deepEqual(
      [bench.one('a')!.generation, bench.one('a')!.restarts, bench.one('a')!.messages],
      [8, 7, 5],
    );

    // A healthy hour, and the next error is the first one again.
    clock.advance(3_600_000);
    running[7]!.fail(new ConnectorFault('queen', 'away'));
    await until('it shows', () => bench.one('a')!.phase === 'error');
    clock.advance(1200);
    await until('it runs again', () => running.length === 9);

    running[8]!.fail(new ConnectorFault('slot_lost', 'resync it'));
    await until('it shows', () => bench.one('a')!.error?.code === 'slot_lost');
    clock.advance(29_999);
    await settled();
    assert.equal(running.length, 9);
    clock.advance(1);
    await until('it runs again', () => running.length === 10);

    running[9]!.fail(new ConnectorFault('fenced', 'another owner'));
    await until('it shows', () => bench.one('a')!.error?.code === 'fenced');
    clock.advance(1000);
    await until('it runs again', () => running.length === 11);

    running[10]!.fail(new ConnectorFault('config', 'wrong'));
    await until('it shows', () => bench.one('a')!.error?.code === 'config');
    assert.equal(bench.one('a')!.retryInMs, undefined);
    clock.advance(10_000_000);
    await until('passes went on', () => clock.pending === 1);
    assert.equal(running.length, 11);
    await bench.write('a', SOURCE);
    manager.poke();
    await until('another document', () => running.length === 12);
    running[11]!.end();
    await manager.stop();
  });

  test('a bug is one connector’s own; failures of the engine are told from it', async () => {
    const bench = await openBench();
    const { running, manager } = bench;
    for (const name of ['a', 'b', 'c', 'd']) await bench.write(name, SINK);
    manager.start();
    await until('all run', () => running.length === 4);
    const errors: [unknown, string][] = [
      [new TypeError('x is not a function'), 'panic'],
      [new EngineError('unavailable', 'pool', 'no database connection'), 'queen'],
      [new EngineError('refused', 'payload_too_large', 'too large'), 'queen_refused'],
    ];
    for (const [i, [error, code]] of errors.entries()) {
      running[i]!.fail(error);
      const { name } = running[i]!.context.document;
      await until(code, () => bench.one(name)!.error?.code === code);
    }
    assert.equal(running[3]!.signal.aborted, false);
    assert.equal(bench.one('d')!.phase, 'starting');
    running[3]!.end();
    await manager.stop();
  });

  test('disabled, being deleted, unreadable, sealed by another key', async () => {
    const bench = await openBench();
    const { running, manager } = bench;
    const owner = { tenant: DEFAULT_TENANT, name: 'sealed' };
    await bench.write('disabled', { ...SINK, enabled: false });
    await bench.write(
      'doomed',
      { ...SOURCE, enabled: false },
      { marks: { deleting: { dropSlot: true, requestedAt: '2026-01-01T00:00:00.000000Z' } } },
    );
    await bench.write('sealed', SINK, { sealed: sealPassword(KEY, owner, 'pw') });
    await bench.write('foreign', SINK, { sealed: sealPassword(KEY, owner, 'pw') });
    manager.start();
    await until('two run', () => running.length === 2);
    await until('the pass is over', () => bench.overview().phase === 'running');
    assert.deepEqual([bench.one('disabled')!.phase, bench.one('disabled')!.enabled], ['disabled', false]);
    assert.equal(bench.one('foreign')!.error?.code, 'unseal');
    assert.deepEqual(
      running.map(({ context }) => context.document.name),
      ['doomed', 'sealed'],
    );

    // The teardown is done: the document goes, if it is still the one that asked.
    const doomed = running[0]!;
    doomed.context.status.enter('torn_down');
    const removed = doomed.context.removeDocument();
    doomed.end();
    await removed;
    await until('it is gone', () => bench.one('doomed') === undefined);
    running[1]!.end();
    await manager.stop();
  });

  test('a teardown that a PUT overtook removes nothing', async () => {
    const bench = await openBench();
    const { running, manager } = bench;
    const marks = { deleting: { dropSlot: true, requestedAt: '2026-01-01T00:00:00.000000Z' } };
    await bench.write('a', SOURCE, { marks });
    manager.start();
    await until('it runs', () => running.length === 1);
    await bench.write('a', SOURCE);
    await running[0]!.context.removeDocument();
    running[0]!.end();
    await until('the new one runs', () => running.length === 2);
    running[1]!.end();
    await manager.stop();
  });

  test('a read that fails stops nothing, and is shown', async () => {
    const bench = await openBench();
    const { running, manager, clock } = bench;
    await bench.write('a', SINK);
    manager.start();
    await until('it runs', () => running.length === 1);
    await until('the pass is over', () => clock.pending === 1);
    bench.failReads(new Error('away'));
    clock.advance(5000);
    await until('it is shown', () => bench.overview().documentsError === 'away');
    assert.equal(running[0]!.signal.aborted, false);
    bench.failReads(null);
    await until('the next pass is due', () => clock.pending === 1);
    clock.advance(5000);
    await until('it is over', () => bench.overview().documentsError === null);
    running[0]!.end();
    await manager.stop();
  });

  test('a stop asks all of them at once, and waits no longer than the grace', async () => {
    const bench = await openBench({ shutdownGraceMs: 3000 });
    const { running, manager, clock } = bench;
    await bench.write('a', SINK);
    await bench.write('b', SINK);
    manager.start();
    await until('both run', () => running.length === 2);
    await until('the pass is over', () => bench.overview().phase === 'running');
    const stopped = manager.stop();
    await until('both are asked', () => running.every(({ signal }) => signal.aborted));
    running[0]!.end();
    await until('the first has ended', () => bench.one('a')!.phase === 'stopped');
    let over = false;
    void stopped.then(() => {
      over = true;
    });
    await settled();
    assert.equal(over, false);
    clock.advance(3000);
    await stopped;
    assert.equal(bench.overview().phase, 'stopped');
    assert.ok(bench.lines.some((line) => line.includes('["b"]')));
    const reads = bench.reads();
    manager.poke();
    assert.equal(bench.reads(), reads, 'nobody looks at documents any more');
    running[1]!.end();
  });

  test('switched off: nothing is read and nothing runs', async () => {
    const bench = await openBench({ enabled: false });
    await bench.write('a', SINK);
    bench.manager.start();
    bench.manager.poke();
    assert.equal(bench.reads(), 0);
    assert.deepEqual([bench.overview().phase, bench.overview().connectors], ['disabled', []]);
    assert.equal(bench.manager.statusOf(DEFAULT_TENANT, 'a'), null);
    await bench.manager.stop();
  });

  test('twelve families, by connector, and by tenant unless it is the default one', async () => {
    const bench = await openBench();
    const { running, manager } = bench;
    assert.equal(await bench.metrics(), '\n');
    await bench.write('src', SOURCE);
    manager.start();
    await until('it runs', () => running.length === 1);
    const names = async () =>
      new Set(Array.from((await bench.metrics()).matchAll(/^# TYPE (\w+) /gm), ([, name]) => name));
    assert.equal((await names()).size, 8, 'none of a sink');
    await bench.write('snk', SINK, { tenant: OTHER_TENANT });
    manager.poke();
    await until('both run', () => running.length === 2);
    assert.equal((await names()).size, 12);
    const [src, snk] = running.map(({ context }) => context.status);
    src!.count('transactions', 2);
    src!.count('snapshotRows', 3);
    src!.gauge('pointerLsn', 0x0fff_ffff_ffffn);
    src!.owner(true);
    snk!.count('applied', 7);
    const text = await bench.metrics();
    for (const line of [
      'queen_pg_source_transactions_total{connector="src"} 2',
      'queen_pg_source_snapshot_rows_total{connector="src"} 3',
      'queen_pg_source_pointer_lsn{connector="src"} 17592186044415',
      `queen_pg_sink_applied_total{connector="snk",tenant="${OTHER_TENANT}"} 7`,
      'queen_pg_connector_owner{connector="src"} 1',
      `queen_pg_connector_owner{connector="snk",tenant="${OTHER_TENANT}"} 0`,
      'queen_pg_connector_errors_total{connector="src"} 0',
    ]) {
      assert.ok(text.includes(`${line}\n`), `${line} in\n${text}`);
    }
    assert.ok(!text.includes('queen_pg_source_slot_lag_bytes{'), 'only its owner knows');
    for (const each of running) each.end();
    await manager.stop();
  });
});
