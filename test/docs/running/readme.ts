import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, type TestContext, test } from 'node:test';
import { promisify } from 'node:util';
import { until } from '../../kit/until.ts';
import { blocks, documents, ROOT, textOf } from '../markdown.ts';
import { broker } from './broker.ts';

/** What a newcomer types, in the order of the README, each as it stands there. */
const README = textOf('README.md');
const ADDRESS = /http:\/\/127\.0\.0\.1:6632/g;

/** The commands of the one shell block that has these words; comments and blank lines stand between them. */
function commands(words: string): string[] {
  const [block, ...others] = blocks(README, 'sh').filter((text) => text.includes(words));
  assert.ok(block !== undefined && others.length === 0, `one block with ${words}`);
  return block
    .split(/^(?:#.*)?\n/m)
    .map((command) => command.trim())
    .filter((command) => command !== '');
}

async function run(command: string): Promise<string> {
  const { url } = await broker();
  const shell = ['-o', 'pipefail', '-ec', command.replaceAll(ADDRESS, url)];
  const env = { ...process.env, QUEEN_URL: url };
  const { stdout } = await promisify(execFile)('bash', shell, { cwd: ROOT, env, timeout: 60_000 });
  return stdout;
}

suite('what the README says', () => {
  test('push, pop and ack by hand', async () => {
    const [push, pop, ack, ...more] = commands('/api/v1/push') as [string, string, string];
    assert.deepEqual(more, []);
    const [stored] = JSON.parse(await run(push));
    assert.equal(stored.status, 'queued');
    const [again] = JSON.parse(await run(push));
    assert.deepEqual([again.status, again.message_id], ['duplicate', stored.message_id]);

    const text = await run(pop);
    assert.ok(text.includes('"data":{"total":12.50}'), text);
    const { messages, partitionId, leaseId } = JSON.parse(text);
    assert.equal(messages[0].transactionId, 'order-1');
    const [done] = JSON.parse(
      await run(ack.replace('<partitionId>', partitionId).replace('<leaseId>', leaseId)),
    );
    assert.equal(done.success, true);
  });

  test('the same with queenctl', async () => {
    const [all] = commands('npx queenctl push');
    const [push, pop, list, help, ...more] = all!.split('\n') as [string, string, string, string];
    assert.deepEqual(more, []);
    assert.match(await run(push), /queued/);
    // What npx finds, without its second.
    const direct = (line: string) => run(line.replaceAll('npx queenctl', 'node_modules/.bin/queenctl'));
    assert.match(await direct(pop), /order-2/);
    assert.match(await direct(list), /orders/);
    assert.match(await direct(help), /Usage: queenctl/);
  });

  test('a consumer in TypeScript, until Ctrl-C', async (t) => {
    const [example, ...others] = blocks(README, 'ts');
    assert.deepEqual(others, []);
    const lines = ['customer-7 12.5', 'customer-7 20', 'customer-8 8'];
    const { printed, end } = await runUntil(t, example!.replace("from './", "from '../../"), lines, 'SIGINT');
    assert.deepEqual(end, [0, null], printed);
    assert.equal(printed.trim().split('\n').length, 3, printed);
  });

  test('the page at /', async () => {
    const { url } = await broker();
    const answer = await fetch(url, { headers: { accept: 'text/html' } });
    assert.equal(answer.status, 200);
    assert.match(answer.headers.get('content-type') ?? '', /^text\/html/);
    assert.doesNotMatch(await answer.text(), /not built/);
  });

  test('the consumer of the HTTP interface', async (t) => {
    const { url } = await broker();
    const [example, ...others] = blocks(textOf('docs/http.md'), 'js');
    assert.deepEqual(others, []);
    const items = [{ queue: 'orders', partition: 'customer-9', payload: { total: 99 } }];
    await fetch(`${url}/api/v1/push`, { method: 'POST', body: JSON.stringify({ items }) });
    await runUntil(t, example!, ['{ total: 99 }'], 'SIGKILL', async () => {
      await until('it is acknowledged', async () => {
        const depth = await fetch(`${url}/api/v1/resources/queues/orders/depth?group=billing`);
        return ((await depth.json()) as { pending: number }).pending === 0;
      });
    });
  });

  test('a token to try out', async () => {
    const command = blocks(textOf('docs/access.md'), 'sh').find((text) => text.includes('SignJWT'))!;
    assert.match(await run(`export JWT_SECRET=secret\n${command}`), /^[\w-]+\.[\w-]+\.[\w-]+\n$/);
  });

  test('scripts that documents name are there', () => {
    const scriptsOf = (path: string): Record<string, string> => JSON.parse(textOf(path)).scripts;
    const named = documents().flatMap((file) =>
      Array.from(
        textOf(file).matchAll(/npm run (?:-s )?([a-z][\w:]*)(?: -w (packages\/\w+))?/g),
        ([text, script, workspace]) => ({ file, text, script: script!, workspace }),
      ),
    );
    assert.ok(named.length > 10);
    const missing = named.filter(
      ({ script, workspace = '.' }) => !(script in scriptsOf(join(workspace, 'package.json'))),
    );
    assert.deepEqual(missing, []);
  });
});

/** Runs a program until it has printed all of this, then sends the signal and waits for its end. */
async function runUntil(
  t: TestContext,
  program: string,
  wanted: readonly string[],
  signal: NodeJS.Signals,
  before: () => Promise<void> = async () => {},
): Promise<{ printed: string; end: unknown[] }> {
  const { url } = await broker();
  mkdirSync(join(ROOT, '.tmp'), { recursive: true });
  const directory = mkdtempSync(join(ROOT, '.tmp/readme-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const path = join(directory, 'program.ts');
  writeFileSync(path, program.replaceAll(ADDRESS, url));
  const child = spawn(process.execPath, [path], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  let printed = '';
  let told = false;
  for await (const chunk of child.stdout.setEncoding('utf8')) {
    printed += chunk;
    if (told || !wanted.every((line) => printed.includes(line))) continue;
    told = true;
    await before();
    child.kill(signal);
  }
  assert.ok(told, `it ended with ${printed}`);
  return { printed, end: await ended };
}
