/** A source beside an upstream that is stopped, altered, promoted, while nothing hurries. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { Upstream } from '../../../../../test/kit/upstream.ts';
import { EngineError } from '../../../src/engine/errors.ts';
import type { BrokerFace } from '../../../src/engine/types.ts';
import { SourceRig, tableOf, until } from './rig.ts';

suite('a source has patience', () => {
  test('a table that is not published any more', async (t) => {
    const server = await Upstream.start({ major: 17 }, t);
    const upstream = await server.database();
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY)');
    const rig = await SourceRig.open(t, upstream);
    const unit = await rig.stream(rig.document('s', { tables: [tableOf('t'), tableOf('other')] }));
    // Made anew under its name: the list names the former one.
    await upstream.sql('DROP TABLE other; CREATE TABLE other (id int PRIMARY KEY)');
    await until(
      'it has begun again',
      () => unit.status.phases.filter((phase) => phase === 'streaming').length === 2,
    );
    await upstream.sql('INSERT INTO other VALUES (7)');
    assert.equal((await rig.arrived(1))[0]!.event.table, 'public.other');
    assert.deepEqual(unit.status.faults, []);
  });

  test('with its own store, but does not hold the upstream up for longer than a minute', async (t) => {
    const server = await Upstream.start({ major: 18 }, t);
    const upstream = await server.database();
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY)');
    const rig = await SourceRig.open(t, upstream);
    let gone = false;
    const away = () => new EngineError('unavailable', 'pool', 'no database connection');
    const face: BrokerFace = {
      ...rig.broker,
      kv: (request) => (gone ? Promise.reject(away()) : rig.broker.kv(request)),
      transaction: (request) => (gone ? Promise.reject(away()) : rig.broker.transaction(request)),
    };
    const unit = await rig.stream(rig.document('s', { tables: [tableOf('t')] }), { face });
    await upstream.sql('INSERT INTO t VALUES (1)');
    await rig.arrived(1);
    gone = true;
    await upstream.sql('INSERT INTO t VALUES (2)');
    const began = performance.now();
    await server.down(120_000);
    const tookMs = performance.now() - began;
    assert.ok(tookMs < 90_000, `the stop took ${tookMs} ms`);
    await server.up();
    gone = false;
    await until('it streams again', () => unit.status.phase === 'streaming', 60_000);
    await upstream.sql('INSERT INTO t VALUES (3)');
    await rig.arrived(3);
    assert.ok(unit.status.faults.some(({ code }) => code === 'queen'));
    await unit.stop();
  });
});
