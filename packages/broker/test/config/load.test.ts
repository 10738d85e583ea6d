import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import fc from 'fast-check';
import { configurationPage } from '../../src/config/document.ts';
import type { Setting } from '../../src/config/kinds.ts';
import { SETTINGS } from '../../src/config/settings.ts';
import { type Config, loadConfig } from '../../src/config.ts';

const MACHINE = { cores: 2, memoryBytes: 8 * 1024 ** 3 };

function load(env: NodeJS.ProcessEnv): Config {
  const loaded = loadConfig(env, MACHINE);
  assert.ok(loaded.ok, loaded.ok ? '' : loaded.faults.join('\n'));
  return loaded.config;
}

function faults(env: NodeJS.ProcessEnv): string[] {
  const loaded = loadConfig(env, MACHINE);
  return loaded.ok ? [] : loaded.faults;
}

const settings = Object.values(SETTINGS).flatMap((group) => Object.values(group) as Setting<unknown>[]);

test('without any variable everything has its default', () => {
  const config = load({});
  assert.equal(config.server.port, 6632);
  assert.equal(config.server.bindAddress, '127.0.0.1');
  assert.match(config.server.serverId, /^queen-[0-9a-f]{8}$/);
  assert.deepEqual(config.database, { kind: 'embedded', directory: './queen-data' });
  assert.equal(config.hotlist.reseedWindowMs, 120_000);
  assert.equal(config.ack.fusionShards, 8);
  assert.equal(config.background.retentionDueCap, 5_000);
});

test('every default is a value that the variable itself would take', () => {
  for (const setting of settings) {
    if (setting.default === null) continue;
    const read = setting.read(String(setting.default));
    assert.deepEqual(read, { value: setting.default }, setting.name);
  }
});

test('no name stands for two settings', () => {
  const names = settings.flatMap((setting) => [setting.name, ...setting.aliases]);
  assert.deepEqual(
    names.filter((name, at) => names.indexOf(name) !== at),
    [],
  );
});

test('booleans have many words, in any case, trimmed; empty is the default', () => {
  for (const word of ['true', '1', 'yes', 'on', ' TRUE ', 'On']) {
    assert.equal(load({ QUEEN_LOG_JSON: word }).server.logJson, true, word);
  }
  for (const word of ['false', '0', 'no', 'off', 'OFF', '', '  ']) {
    assert.equal(load({ QUEEN_LOG_JSON: word }).server.logJson, false, word);
  }
  assert.deepEqual(faults({ QUEEN_LOG_JSON: 'maybe' }), [
    'QUEEN_LOG_JSON="maybe" is not a boolean (expected true/false, 1/0, yes/no, on/off)',
  ]);
});

test('numbers: exactly the range, and nothing that only looks like a number', () => {
  assert.equal(load({ RETENTION_PARALLELISM: '16' }).background.retentionParallelism, 16);
  for (const bad of ['17', '0', '-1', '1.5', '0x10', '1e1', 'two', '1_0', '99999999999999999999']) {
    const [fault, ...more] = faults({ RETENTION_PARALLELISM: bad });
    assert.match(
      fault ?? '',
      /^RETENTION_PARALLELISM=".*" is (not a whole number|out of range) \(expected 1\.\.16\)$/,
      bad,
    );
    assert.equal(more.length, 0);
  }
});

test('whatever a variable holds, it is taken within its range or named in a fault', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...settings),
      fc.oneof(fc.string(), fc.integer().map(String)),
      (setting, text) => {
        if (setting.name === 'DATABASE_URL' || text.includes('\0')) return;
        const loaded = loadConfig({ [setting.name]: text }, MACHINE);
        if (loaded.ok) return;
        for (const fault of loaded.faults)
          assert.match(fault, new RegExp(`^(${setting.name}|QUEEN_ADMISSION_SHARE)`));
      },
    ),
  );
});

test('a secret never appears in a fault', () => {
  const secret = 'hunter2-hunter2';
  for (const setting of settings.filter((candidate) => candidate.secret)) {
    const loaded = loadConfig({ [setting.name]: secret }, MACHINE);
    assert.doesNotMatch(
      JSON.stringify(loaded.ok ? loaded.warnings : loaded),
      new RegExp(secret),
      setting.name,
    );
  }
  const url = loadConfig({ DATABASE_URL: `postgres://u:${secret}%@h:99999/d?sslmode=x` }, MACHINE);
  assert.equal(url.ok, false);
  assert.doesNotMatch(JSON.stringify(url), new RegExp(secret));
});

test('all faults at once; unknown and idle names are warnings', () => {
  const loaded = loadConfig(
    {
      PORT: 'x',
      LOG_LEVEL: 'loud',
      QUEEN_TYPO: '1',
      QUEEN_MESH_PORT: '6633',
      QUEEN_PG_THREADS: '5',
      QUEEN_PG_POOL: '5',
      JWT_ISSUR: 'x',
      HOME: '/',
    },
    MACHINE,
  );
  assert.equal(loaded.ok, false);
  assert.equal(loaded.ok ? 0 : loaded.faults.length, 2);
  assert.deepEqual(loaded.warnings, [
    'JWT_ISSUR is unknown and has no effect',
    'QUEEN_MESH_PORT has no meaning here: brokers meet through the database',
    'QUEEN_PG_POOL is unknown and has no effect',
    'QUEEN_TYPO is unknown and has no effect',
  ]);
});

test('the address to listen on', () => {
  for (const good of ['0.0.0.0', '::', '::1', 'fe80::1%eth0', 'queen.example.com', 'localhost']) {
    assert.equal(load({ QUEEN_BIND_ADDR: good }).server.bindAddress, good);
    const warned = loadConfig({ QUEEN_BIND_ADDR: good }, MACHINE).warnings.some((line) =>
      line.includes(good),
    );
    assert.equal(warned, !['::1', 'localhost'].includes(good), good);
  }
  for (const bad of ['127.0.0.1:6632', 'localhost:80', '[::1]:80', 'a b', 'http://x']) {
    assert.match(faults({ QUEEN_BIND_ADDR: bad })[0] ?? '', /^QUEEN_BIND_ADDR=.* without a port$/, bad);
  }
});

test('derived values follow what they are derived from, and the machine', () => {
  assert.equal(load({ QUEEN_HOTLIST_RESEED_MS: '60000' }).hotlist.reseedWindowMs, 240_000);
  assert.equal(load({ QUEEN_V2_FUSION_SHARDS: '4' }).ack.fusionShards, 4);
  assert.equal(load({ QUEEN_V2_FUSION_SHARDS: '4', QUEEN_ACK_FUSION_SHARDS: '2' }).ack.fusionShards, 2);
  assert.equal(load({ HOSTNAME: 'pod-7' }).server.serverId, 'pod-7');
  const small = loadConfig({}, { cores: 1, memoryBytes: 512 * 1024 ** 2 });
  assert.equal(small.ok && small.config.admission.pushPendingMb, 128);
  assert.match(
    faults({ QUEEN_ADMISSION_SHARE_PUSH: '0.5' })[0] ?? '',
    /^QUEEN_ADMISSION_SHARE_PUSH, _POP, _ACK and _MAINT add up to 1\.25/,
  );
});

test('the first of two names wins', () => {
  assert.equal(load({ POP_DEFAULT_TIMEOUT_MS: '5' }).pop.defaultTimeoutMs, 5);
  assert.equal(load({ POP_DEFAULT_TIMEOUT_MS: '5', DEFAULT_TIMEOUT: '7' }).pop.defaultTimeoutMs, 7);
});

test('tokens need something to be verified with, by the family of their algorithm', () => {
  const secret = { JWT_SECRET: 'x'.repeat(32) };
  const pem = { JWT_PUBLIC_KEY: 'any text: what is wrong with it is told when a token needs it' };
  const jwks = { JWT_JWKS_URL: 'https://issuer.example/jwks.json' };
  for (const algorithm of ['HS256', 'HS384', 'hs512', 'auto']) {
    const on = { JWT_ENABLED: 'true', JWT_ALGORITHM: algorithm };
    for (const key of [secret, pem, jwks]) assert.deepEqual(faults({ ...on, ...key }), [], algorithm);
    for (const none of [{}, { JWT_SECRET: '' }, { JWT_SECRET: ' \n' }, { JWT_PUBLIC_KEY: ' ' }]) {
      assert.match(faults({ ...on, ...none })[0] ?? '', /^JWT_ENABLED with .* needs a key: set JWT_SECRET,/);
    }
  }
  for (const algorithm of ['RS256', 'RS384', 'RS512', 'EdDSA']) {
    const on = { JWT_ENABLED: 'true', JWT_ALGORITHM: algorithm };
    for (const key of [pem, jwks]) assert.deepEqual(faults({ ...on, ...key }), [], algorithm);
    for (const none of [{}, secret]) {
      assert.match(
        faults({ ...on, ...none })[0] ?? '',
        /^JWT_ENABLED with .* needs a key: set JWT_PUBLIC_KEY or/,
      );
    }
  }
  assert.match(
    faults({ JWT_ENABLED: 'true', JWT_ALGORITHM: 'ES256', ...secret })[0] ?? '',
    /^JWT_ALGORITHM=/,
  );
  assert.match(faults({ JWT_JWKS_URL: 'file:///etc/keys' })[0] ?? '', /^JWT_JWKS_URL=/);
  assert.deepEqual(faults({ JWT_ENABLED: 'false' }), []);
});

test('a secret is taken byte for byte, a list may be empty', () => {
  assert.equal(load({ JWT_SECRET: ' secret \n' }).auth.secret, ' secret \n');
  assert.deepEqual(load({}).auth.skipPaths, ['/health', '/metrics/prometheus', '/metrics', '/']);
  assert.deepEqual(load({ JWT_SKIP_PATHS: '' }).auth.skipPaths, []);
  assert.deepEqual(load({ JWT_SKIP_PATHS: ' /a , ,/b/,' }).auth.skipPaths, ['/a', '/b/']);
});

test('with tokens it listens everywhere, without them only here', () => {
  const tokens = { JWT_ENABLED: '1', JWT_SECRET: 'x'.repeat(32) };
  assert.equal(load(tokens).server.bindAddress, '0.0.0.0');
  assert.equal(load({ ...tokens, QUEEN_BIND_ADDR: '127.0.0.1' }).server.bindAddress, '127.0.0.1');
  const warnings = (env: NodeJS.ProcessEnv) => loadConfig(env, MACHINE).warnings;
  assert.deepEqual(warnings({ ...tokens, QUEEN_BIND_ADDR: '0.0.0.0' }), []);
  assert.match(warnings({ ...tokens, JWT_SECRET: 'short' })[0] ?? '', /^JWT_SECRET is shorter/);
  assert.match(warnings({ ...tokens, JWT_SKIP_PATHS: '/health,/api/v1/push' })[0] ?? '', /push$/);
});

test('a tenant header is believed only behind a proxy', () => {
  assert.match(
    faults({ QUEEN_TENANCY_HEADER: 'true' })[0] ?? '',
    /^QUEEN_TENANCY_HEADER needs QUEEN_KV_TRUSTED_PROXY=true/,
  );
  assert.deepEqual(faults({ QUEEN_TENANCY_HEADER: 'true', QUEEN_KV_TRUSTED_PROXY: '1' }), []);
  assert.deepEqual(faults({ QUEEN_KV_TRUSTED_PROXY: '1' }), []);
});

test('a malformed sealing key stops the boot and is not shown', () => {
  for (const key of ['abc', 'g'.repeat(64), '0'.repeat(63), '0'.repeat(65)]) {
    assert.deepEqual(faults({ QUEEN_ENCRYPTION_KEY: key }), [
      'QUEEN_ENCRYPTION_KEY=(not shown) is not 64 hex digits',
    ]);
  }
  assert.equal(load({ QUEEN_ENCRYPTION_KEY: 'aB'.repeat(32) }).security.encryptionKey, 'aB'.repeat(32));
});

test('the page of the variables is the table', () => {
  const page = readFileSync(new URL('../../../../docs/configuration.md', import.meta.url), 'utf8');
  assert.ok(page === configurationPage(), 'out of date: npm run docs');
});

test('connectors reach private networks unless tenants share the broker', () => {
  const allowed = (env: NodeJS.ProcessEnv) => load(env).connectors.allowPrivate;
  const tenants = { QUEEN_TENANCY_HEADER: 'true', QUEEN_KV_TRUSTED_PROXY: 'true' };
  assert.deepEqual([allowed({}), allowed({ QUEEN_PG_ALLOW_PRIVATE_NETWORKS: 'false' })], [true, false]);
  assert.deepEqual(
    [allowed(tenants), allowed({ ...tenants, QUEEN_PG_ALLOW_PRIVATE_NETWORKS: 'true' })],
    [false, true],
  );
});
