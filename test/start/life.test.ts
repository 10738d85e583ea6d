import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { type BrokerProcess, spawnBroker, startBroker } from '../kit/broker.ts';
import { atEnd } from '../kit/cleanup.ts';
import { until } from '../kit/until.ts';
import { drain, numbers, push } from './talk.ts';

/** One directory through all the ends that a broker and its database can come to. */

function postmaster(dataDir: string): number {
  return Number(readFileSync(join(dataDir, 'postgres/postmaster.pid'), 'utf8').split('\n')[0]);
}

function again(broker: BrokerProcess, t: Parameters<typeof startBroker>[1]): Promise<BrokerProcess> {
  return startBroker({ dataDir: broker.dataDir! }, t);
}

test('a first start says where it is, and a stop and a start keep what was pushed', async (t) => {
  const first = await startBroker({}, t);
  assert.match(first.logs(), new RegExp(`listens on +${first.url}\\n`));
  assert.match(first.logs(), new RegExp(`stores into ${first.dataDir} \\(bundled PostgreSQL 18`));
  assert.match(first.logs(), new RegExp(`curl .*${first.url}/api/v1/push`));
  assert.match(first.logs(), new RegExp(`${first.url}/docs `));
  await push(first.url, 'kept', 0, 100);
  const ended = await first.stop();
  assert.deepEqual([ended.code, ended.signal], [0, null], ended.logs);
  assert.ok(!existsSync(join(first.dataDir!, 'postgres/postmaster.pid')), 'the database is stopped too');

  const second = await again(first, t);
  assert.deepEqual(await drain(second.url, 'kept', 'g1'), numbers(0, 100));
});

test('kill -9 of the broker, of its database, and of both', async (t) => {
  let broker = await startBroker({}, t);
  const dataDir = broker.dataDir!;

  await push(broker.url, 'kept', 0, 50);
  const orphan = postmaster(dataDir);
  await broker.kill('SIGKILL');
  assert.equal(postmaster(dataDir), orphan, 'the database outlives its broker');
  broker = await again(broker, t);
  assert.match(broker.logs(), /an earlier PostgreSQL still run here/);
  await push(broker.url, 'kept', 50, 50);

  process.kill(postmaster(dataDir), 'SIGKILL');
  // Sessions may live on for a moment, so a push that succeeds proves nothing before this line.
  await broker.logged(/the embedded PostgreSQL is back/);
  await until('pushes are taken again', () => push(broker.url, 'kept', 100, 50).then(() => true));

  process.kill(postmaster(dataDir), 'SIGKILL');
  await broker.kill('SIGKILL');
  broker = await again(broker, t);
  assert.deepEqual(await drain(broker.url, 'kept', 'g1'), numbers(0, 150));
  const ended = await broker.stop();
  assert.equal(ended.code, 0, ended.logs);
});

test('a second broker on the same directory says who has it, and leaves the first alone', async (t) => {
  const first = await startBroker({}, t);
  const second = await spawnBroker({ dataDir: first.dataDir! }).ended;
  assert.equal(second.code, 1);
  assert.match(
    second.logs,
    new RegExp(`FATAL: The data directory .* in use by the broker with pid ${first.pid}\\.`),
  );
  await push(first.url, 'kept', 0, 1);
});

test('a port that is taken: a sentence, exit code 1, and no database left behind', async (t) => {
  const squatter = createServer();
  atEnd(t, () => void squatter.close());
  await new Promise<void>((resolve) => squatter.listen(0, '127.0.0.1', resolve));
  const { port } = squatter.address() as AddressInfo;
  const broker = spawnBroker({ env: { PORT: String(port) } }, t);
  const ended = await broker.ended;
  assert.equal(ended.code, 1);
  assert.match(
    ended.logs,
    new RegExp(`FATAL: port ${port} of 127\\.0\\.0\\.1 is taken by another process.*PORT`),
  );
  assert.ok(!existsSync(join(broker.dataDir!, 'postgres')), 'nothing was made');
  assert.doesNotMatch(ended.logs, /stopped/);
});

test('settings that do not fit: every fault at once, nothing touched', async (t) => {
  const env = {
    PORT: '99999',
    QUEEN_LOG_JSON: 'maybe',
    QUEEN_ADMISSION_MIN: '50',
    QUEEN_ADMISSION_MAX: '20',
    QUEEN_TYPO: '1',
  };
  const broker = spawnBroker({ env }, t);
  const ended = await broker.ended;
  assert.equal(ended.code, 1);
  assert.match(ended.logs, /FATAL: PORT="99999" is out of range \(expected 0\.\.65535\)/);
  assert.match(ended.logs, /FATAL: QUEEN_LOG_JSON="maybe" is not a boolean/);
  assert.match(ended.logs, /WARNING: QUEEN_TYPO is unknown/);
  assert.ok(!existsSync(join(broker.dataDir!, 'postgres')));

  const { PORT: _, QUEEN_LOG_JSON: __, ...contradiction } = env;
  const second = await spawnBroker({ env: contradiction }, t).ended;
  assert.equal(second.code, 1);
  assert.match(second.logs, /FATAL: QUEEN_ADMISSION_MIN="50" is above QUEEN_ADMISSION_MAX/);
});
