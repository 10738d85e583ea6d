import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { globSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { build as buildClient } from '../../../client/build.ts';
import { build } from '../../build.ts';
import { directory, environment } from '../run.ts';

const MODULES = join(import.meta.dirname, '../../../../node_modules');

test('the package that is published is built, and runs where it is installed', async () => {
  const modules = join(directory, 'installed/node_modules');
  const to = join(modules, '@queen-mq/queenctl');
  mkdirSync(join(modules, '@queen-mq'), { recursive: true });
  const client = join(modules, '@queen-mq/client');
  buildClient(client);
  build(to, client);
  const manifest = JSON.parse(readFileSync(join(to, 'package.json'), 'utf8')) as Record<string, unknown>;
  assert.deepEqual(
    [manifest.private, manifest.scripts, manifest.bin],
    [undefined, undefined, { queenctl: 'src/main.mjs' }],
  );
  for (const name of Object.keys(manifest.dependencies as object)) {
    if (name !== '@queen-mq/client') symlinkSync(join(MODULES, name), join(modules, name));
  }
  for (const file of globSync('**/*.js', { cwd: to }))
    assert.doesNotMatch(readFileSync(join(to, file), 'utf8'), /from '[^']*\.ts'/, file);
  const options = { cwd: directory, env: await environment() };
  const printed = execFileSync(
    process.execPath,
    [join(to, 'src/main.mjs'), 'push', 'published', '1.0'],
    options,
  );
  assert.match(String(printed), /queued/);
  assert.match(readFileSync(join(to, 'src/main.mjs'), 'utf8'), /^#!\/usr\/bin\/env node\n/);
});
