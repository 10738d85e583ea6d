import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { build } from '../../build.ts';
import { broker } from '../setup.ts';

test('the package that is published is built, typed, and runs on the oldest Node that it promises', async (t) => {
  const home = mkdtempSync(join(tmpdir(), 'queen-client-'));
  t.after(() => rmSync(home, { recursive: true, force: true }));
  const to = join(home, 'node_modules/@queen-mq/client');
  build(to);
  const manifest = JSON.parse(readFileSync(join(to, 'package.json'), 'utf8')) as Record<string, unknown>;
  assert.deepEqual(
    [manifest.private, manifest.dependencies, manifest.scripts],
    [undefined, undefined, undefined],
  );
  assert.ok(existsSync(join(to, 'index.d.ts')) && existsSync(join(to, 'LICENSE')));
  for (const file of globSync('**/*.{js,d.ts}', { cwd: to })) {
    const text = readFileSync(join(to, file), 'utf8');
    assert.doesNotMatch(text, /from '[^']*\.ts'|from '[^.]/, file);
  }
  writeFileSync(
    join(home, 'typed.ts'),
    `import { Queen, type Message } from '@queen-mq/client';
     const queue = new Queen('http://127.0.0.1').queue<{ n: number }>('typed');
     export const taken: Promise<Message<{ n: number }>[]> = queue.pop();
     queue.consume(({ data }) => void data.n.toFixed());
     // @ts-expect-error: no such message goes into this queue
     void queue.push({ data: { m: 1 } });`,
  );
  const compilerOptions = {
    module: 'nodenext',
    target: 'es2022',
    lib: ['es2022', 'dom'],
    types: [],
    strict: true,
    noEmit: true,
  };
  writeFileSync(join(home, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['typed.ts'] }));
  writeFileSync(join(home, 'package.json'), '{"type":"module"}');
  execFileSync(join(import.meta.dirname, '../../../../node_modules/.bin/tsc'), ['-p', home], {
    stdio: 'inherit',
  });

  const { url } = await broker();
  writeFileSync(
    join(home, 'use.mjs'),
    `import { Queen, RefusedError } from '@queen-mq/client';
     const client = new Queen(${JSON.stringify(url)});
     const queue = client.queue('published').group('g');
     await queue.push([{ data: { n: 1 } }]);
     for await (const message of queue.messages({ subscriptionMode: 'all' })) {
       console.log(process.version.split('.')[0], message.data.n);
       await message.ack();
       break;
     }
     await queue.inspect().then(({ totals }) => console.log(totals.pending));
     await client.queue('none').inspect().catch((error) => console.log(error instanceof RefusedError, error.name));
     await client.close();`,
  );
  // The one of the machine, where it is old enough to tell something; else ours.
  const nodes = ['/usr/local/bin/node', '/usr/bin/node'].filter((node) => existsSync(node));
  const node =
    nodes.find((path) => /^v2\d\./.test(String(execFileSync(path, ['--version'])))) ?? process.execPath;
  const printed = String(execFileSync(node, ['use.mjs'], { cwd: home, timeout: 20_000 }));
  assert.match(printed, /^v2\d 1\n0\ntrue RefusedError\n$/);
});
