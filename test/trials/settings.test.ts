/** Settings that do nothing, that nobody knows, or that do not fit: each is named. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { SETTINGS } from '../../packages/broker/src/config/settings.ts';
import type { Client } from '../broker/client.ts';
import { spawnBroker } from '../kit/broker.ts';
import { FRUGAL, openRig } from './rig.ts';

test('settings that do nothing', async (t) => {
  const doingNothing = { priority: 5, ttl: 60, maxSize: 10, retryDelay: 500 };
  const idle = {
    QUEEN_V2_FUSION_FRAMES: '500',
    QUEEN_MESH_PORT: '6633',
    QUEEN_SYNC_SECRET: 'do-not-show-this',
    QUEEN_TYPO: 'do-not-show-that',
    QUEEN_PORT: '1',
    RUST_LOG: 'debug',
  };
  const rig = await openRig(t, 1, idle);
  const [client] = rig.clients as [Client];

  await t.test('of a queue are named in the answer', async () => {
    for (const [name, value] of Object.entries(doingNothing)) {
      const answer = await client.configure('idle', { [name]: value, leaseTime: 30 });
      assert.deepEqual(answer.ignored, [name]);
      assert.equal((answer.options as Record<string, number>)[name], value, 'and kept');
    }
    const all = await client.configure('idle', { ...doingNothing, leaseTime: 30 });
    assert.deepEqual([...(all.ignored as string[])].sort(), Object.keys(doingNothing).sort());
    const top = await client.call('POST', '/api/v1/configure', { queue: 'idle', ttl: 5, mode: 'replace' });
    assert.deepEqual(top.body.ignored, ['ttl']);
    assert.deepEqual((await client.configure('idle', { leaseTime: 5 })).ignored, []);
  });

  await t.test('of the broker are named at the start, which goes on', async () => {
    const log = rig.brokers[0]!.logs();
    for (const name of Object.keys(idle)) assert.match(log, new RegExp(`warn .*\\b${name} `), name);
    assert.doesNotMatch(log, /do-not-show/);
    const said = log.split('\n').filter((line) => /has no (effect|meaning)/.test(line));
    assert.equal(said.length, Object.keys(idle).length, 'and nothing else is');
  });
});

/** Variables with a value that does not do, and what has to be said about it. */
const BAD: [string, string, RegExp][] = [
  ['PORT', '65536', /0\.\.65535/],
  ['PORT', '-1', /0\.\.65535/],
  ['QUEEN_MAX_BODY_BYTES', '64MiB', /whole number/],
  ['QUEEN_BIND_ADDR', '127.0.0.1:6632', /without a port/],
  ['LOG_LEVEL', 'loud', /trace, debug, info, warn, error/],
  ['QUEEN_LOG_JSON', 'ja', /true\/false, 1\/0, yes\/no, on\/off/],
  ['DB_POOL_SIZE', '3', /4\.\.2000/],
  ['PG_PORT', '0', /1\.\.65535/],
  ['QUEEN_STMT_TIMEOUT_MS', '1e4', /whole number/],
  ['QUEEN_ADMISSION_SHARE_PUSH', '1.5', /0\.01\.\.1/],
  ['QUEEN_ADMISSION_SHARE_ACK', 'NaN', /0\.01\.\.1/],
  ['QUEEN_V2_ZSTD_LEVEL', '0x3', /1\.\.19/],
  ['QUEEN_DEDUP_CACHE', '2', /not a boolean/],
  ['QUEEN_DEDUP_CACHE_MB', '0', /1\.\.\d+/],
  ['DEFAULT_TIMEOUT', '30s', /whole number/],
  ['POP_DEFAULT_TIMEOUT_MS', '0', /1\.\.\d+/],
  ['DEFAULT_SUBSCRIPTION_MODE', 'newest', /new, all/],
  ['POP_WAIT_BACKOFF_MULTIPLIER', '0.5', /1\.\.10/],
  ['QUEEN_POP_AUTOPILOT', 'auto', /on, shadow, off/],
  ['RETENTION_INTERVAL', '1', /100\.\.\d+/],
  ['RETENTION_PARALLELISM', '17', /1\.\.16/],
  ['PARTITION_CLEANUP_DAYS', '0', /1\.\.\d+/],
  ['STATS_INTERVAL_MS', '999', /1000\.\.\d+/],
  ['METRICS_FLUSH_MS', '999', /1000\.\.\d+/],
  ['QUEEN_ENCRYPTION_KEY', 'hunter2', /64 hex digits/],
];

test('a bad value stops the start, and says which and what is allowed', async (t) => {
  await t.test('many at once, all in one go', async () => {
    // One value a variable and start; those of the second round are left for another start.
    const rounds: (typeof BAD)[] = [];
    for (const bad of BAD) {
      const round = rounds.find(
        (list) => !list.some(([name]) => name === bad[0] || sameSetting(name, bad[0])),
      );
      if (round === undefined) rounds.push([bad]);
      else round.push(bad);
    }
    for (const round of rounds) {
      const env = {
        ...FRUGAL,
        QUEEN_TYPO: '1',
        ...Object.fromEntries(round.map(([name, value]) => [name, value])),
      };
      const broker = spawnBroker({ env }, t);
      const { code, logs } = await broker.ended;
      assert.equal(code, 1, logs);
      const faults = logs.split('\n').filter((line) => line.startsWith('FATAL: '));
      for (const [name, value, allowed] of round) {
        const fault = faults.find((line) => line.startsWith(`FATAL: ${name}=`));
        assert.match(fault ?? 'not named', allowed, `${name}=${value}`);
      }
      assert.equal(faults.length, round.length, faults.join('\n'));
      assert.match(logs, /WARNING: QUEEN_TYPO is unknown/);
      assert.doesNotMatch(logs, /hunter2/);
      assert.ok(!existsSync(join(broker.dataDir!, 'postgres')), 'nothing was touched');
    }
  });

  await t.test('whatever variable it is', async () => {
    const numeric = Object.values(SETTINGS)
      .flatMap((group) => Object.values(group))
      .filter(({ accepts }) => /^(integer|number|boolean)/.test(accepts));
    const env = { ...FRUGAL, ...Object.fromEntries(numeric.map(({ name }) => [name, 'many'])) };
    const { code, logs } = await spawnBroker({ env }, t).ended;
    assert.equal(code, 1);
    for (const { name, accepts } of numeric) {
      const fault = logs.split('\n').find((line) => line.startsWith(`FATAL: ${name}="many" `)) ?? name;
      assert.ok(fault.includes(accepts.split(' ')[1] ?? 'true/false'), fault);
    }
  });
});

function sameSetting(one: string, other: string): boolean {
  return [one, other].every((name) => ['DEFAULT_TIMEOUT', 'POP_DEFAULT_TIMEOUT_MS'].includes(name));
}
