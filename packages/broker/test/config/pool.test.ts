import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { planPool } from '../../src/config/pool.ts';
import { loadConfig } from '../../src/config.ts';

const MACHINE = { cores: 2, memoryBytes: 8 * 1024 ** 3 };

function plan(env: NodeJS.ProcessEnv, cores: number, maxConnections: number | null, durable = true) {
  const loaded = loadConfig(env, MACHINE);
  assert.ok(loaded.ok);
  return planPool(loaded.config, cores, maxConnections, durable);
}

test('a pool of 160 gives the figures that are known to work for it', () => {
  assert.deepEqual(plan({ DB_POOL_SIZE: '160' }, 32, null), {
    poolSize: 160,
    reserve: 16,
    min: 96,
    max: 128,
    init: 96,
  });
});

test('two cores get a pool that fits them, and leave an external server its half', () => {
  assert.deepEqual(plan({}, 2, null), { poolSize: 32, reserve: 3, min: 19, max: 25, init: 19 });
  const shared = plan({}, 16, 100);
  assert.ok(!('faults' in shared) && shared.poolSize === 50);
});

test('commits that wait for no flush need fewer calls at a time, unless somebody says how many', () => {
  const env = { DB_POOL_SIZE: '160' };
  const lazy = plan(env, 32, null, false);
  assert.ok(!('faults' in lazy) && lazy.min === 64 && lazy.max === 64 && lazy.init === 64);
  const fewer = plan({ ...env, QUEEN_ADMISSION_NOSYNC_BUDGET: '20' }, 32, null, false);
  assert.ok(!('faults' in fewer) && fewer.min === 20 && fewer.max === 20);
  const told = plan({ ...env, QUEEN_ADMISSION_MAX: '100' }, 32, null, false);
  assert.ok(!('faults' in told) && told.max === 100);
  assert.deepEqual(plan({}, 2, null, false), plan({}, 2, null), 'a small pool is below it anyway');
});

test('whatever the machine and the server, a derived plan holds together', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 256 }),
      fc.option(fc.integer({ min: 20, max: 10_000 })),
      fc.boolean(),
      (cores, max, durable) => {
        const derived = plan({}, cores, max, durable);
        assert.ok(!('faults' in derived), JSON.stringify(derived));
        assert.ok(derived.min >= 1 && derived.min <= derived.init && derived.init <= derived.max);
        assert.ok(derived.max <= derived.poolSize - derived.reserve);
        if (max !== null) assert.ok(derived.poolSize <= max / 2);
      },
    ),
  );
});

test('contradictions are named', () => {
  const faults = (env: NodeJS.ProcessEnv, max: number | null = null): string => {
    const result = plan(env, 2, max);
    return 'faults' in result ? result.faults.join('\n') : '';
  };
  assert.match(
    faults({ DB_POOL_SIZE: '95' }, 100),
    /^DB_POOL_SIZE="95" does not fit .* 100 \(expected at most 90\)$/,
  );
  assert.match(
    faults({ QUEEN_ADMISSION_MAX: '40' }),
    /^QUEEN_ADMISSION_MAX="40" is above what the pool leaves/,
  );
  assert.match(
    faults({ QUEEN_ADMISSION_MIN: '12', QUEEN_ADMISSION_MAX: '10' }),
    /QUEEN_ADMISSION_MIN="12" is above/,
  );
  assert.match(faults({ QUEEN_ADMISSION_INIT: '1' }), /QUEEN_ADMISSION_INIT="1" is out of range/);
  assert.match(faults({ QUEEN_ADMISSION_POOL_RESERVE: '32' }), /leaves nothing of a pool of 32/);
  assert.equal(faults({ QUEEN_ADMISSION_MAX: '10' }), '');
});
