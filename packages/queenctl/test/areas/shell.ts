import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Command } from 'commander';
import { startBroker } from '../../../../test/kit/broker.ts';
import { SECRET, sign } from '../../../broker/test/http/access/issuer.ts';
import { broker } from '../../../client/test/setup.ts';
import { EXIT } from '../../src/exit.ts';
import { programOf } from '../../src/program.ts';
import {
  asOften,
  closedUrl,
  directory,
  ended,
  environment,
  fails,
  json,
  MAIN,
  ok,
  run,
  start,
} from '../run.ts';

/** A line of bash in which `queenctl` is the program. */
async function shell(line: string) {
  const child = spawn('bash', ['-c', `queenctl() { "${process.execPath}" "${MAIN}" "$@"; }\n${line}`], {
    env: await environment(),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  return ended(child);
}

test('a process for each: what it prints, and how it ends', async () => {
  const nowhere = asOften(await closedUrl());
  const runs: [number, RegExp, string[]][] = [
    [0, /"status": "queued"/, ['push', 's0', '1', '-o', 'json']],
    [1, /refused/, ['ack', 'none', '--partition-id', '999999999']],
    [2, /^$/, ['queues', 'delete', 's0']],
    [3, /^$/, ['kv', 'get', 'none', 'none']],
    [4, /^$/, ['kv', 'get', 'NOT ALLOWED', 'none']],
    [6, /^$/, ['timers', 'list', 's0', '-u', nowhere]],
  ];
  const check = async ([code, prints, args]: (typeof runs)[number]) => {
    const ran = await ended(await start(args));
    const what = `queenctl ${args.join(' ')}\n${ran.out}${ran.err}`;
    assert.equal(ran.code, code, what);
    assert.match(ran.out, prints, what);
    // What went wrong is said, and never among the data.
    if (code > 1) assert.match(ran.err, /^queenctl: /, what);
  };
  // Two at a time: more would only wait for each other.
  for (let at = 0; at < runs.length; at += 2) await Promise.all(runs.slice(at, at + 2).map(check));
});

test('help: every command says what it does, and the top lists the exit codes', async () => {
  const visit = (command: Command, path: string) => {
    if (command.name() === 'help' || command.name().startsWith('__')) return;
    assert.ok(command.description().length > 10, `${path} has no description`);
    for (const option of command.options) assert.ok(option.description.length > 3, `${path} ${option.flags}`);
    for (const sub of command.commands) visit(sub, `${path} ${sub.name()}`);
  };
  visit(programOf(), 'queenctl');
  const help = await ok('--help');
  for (const { code, meaning } of Object.values(EXIT))
    assert.ok(help.includes(`${code}  ${meaning}`), meaning);
  const sub = await ok('seek', '--help');
  assert.match(
    sub,
    /Examples:\n {2}# what would come again[^\n]*\n {2}\$ queenctl seek billing orders --to 2h --dry-run\n/,
  );
  assert.match(sub, /Global Options:[\s\S]*--token/);
  assert.match(await ok('--version'), /^\d+\.\d+\.\d+\n$/);
});

test('a command line that is wrong: exit code 2, with what is allowed', async () => {
  await fails(2, /unknown command 'queus'\n\(Did you mean one of queue, queues\?\)/, ['queus']);
  await fails(2, /unknown option '--grup'\n\(Did you mean --group\?\)/, ['pop', 'q', '--grup', 'x']);
  await fails(2, /missing required argument 'queue'/, ['push']);
  await fails(2, /Allowed choices are table, json, yaml/, ['queues', 'list', '-o', 'xml']);
  await fails(2, /--batch <n>.*It is an integer, from 1 to 100000/, ['pop', 'q', '-n', '0']);
  await fails(2, /--timeout <time>.*It is a time like/, ['queues', 'list', '--timeout', 'soon']);
  await fails(2, /is not an http or https URL/, ['queues', 'list', '-u', 'ftp://x']);
  await fails(2, /--token-file cannot be read/, ['queues', 'list', '--token-file', 'none']);
  assert.equal((await run(['queues'])).code, 2);
});

test('whoever stops reading ends it without a word', async () => {
  const path = join(directory, 'many.ndjson');
  writeFileSync(
    path,
    Array.from({ length: 3_000 }, (_, n) => `{"n":${n},"pad":"${'x'.repeat(100)}"}\n`).join(''),
  );
  await ok('push', 's1', '-f', path);
  const { out, err } = await shell(
    `queenctl tail s1 --no-follow -o json | head -n 1; echo "\${PIPESTATUS[0]}"`,
  );
  assert.match(out, /^\{"queue":"s1".*\}\n0\n$/);
  assert.equal(err, '');
});

test('no colours, no cuts where there is no terminal; a question where there is one', async (t) => {
  await ok('push', 's2', JSON.stringify({ long: 'y'.repeat(300) }));
  const out = await ok('tail', 's2', '--no-follow');
  assert.ok(out.includes('y'.repeat(300)) && !out.includes('\u001b'));
  if (!existsSync('/usr/bin/script')) return t.skip('there is no script(1)');
  const command = `"${process.execPath}" "${MAIN}" queues delete s2`;
  const terminal = async (answer: string) => {
    const { url } = await broker();
    const child = spawn('script', ['-qec', command, '/dev/null'], {
      env: {
        HOME: directory,
        XDG_CACHE_HOME: directory,
        PATH: '/usr/bin:/bin',
        TERM: 'xterm',
        QUEEN_URL: url,
      },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    child.stdin.write(`${answer}\n`);
    return ended(child);
  };
  const no = await terminal('n');
  assert.match(no.out, /s2 will be deleted with all messages\. Go on\? \[y\/N\] [\s\S]*nothing was changed/);
  assert.match((await terminal('y')).out, /s2 is deleted/);
});

test('completion: scripts that shells can read, and what they offer', async (t) => {
  const scripts: Record<string, string> = {};
  for (const name of ['bash', 'zsh', 'fish']) {
    scripts[name] = join(directory, `queenctl.${name}`);
    writeFileSync(scripts[name], await ok('completion', name));
    const installed = [`/bin/${name}`, `/usr/bin/${name}`].find((path) => existsSync(path));
    if (installed === undefined) t.diagnostic(`${name} is not here`);
    else execFileSync(installed, ['-n', scripts[name]], { stdio: 'pipe' });
  }
  await ok('queues', 'configure', 'complete-me');
  const offered = async (...words: string[]) => {
    const quoted = words.map((word) => `'${word}'`).join(' ');
    const line = `source ${scripts.bash}; COMP_WORDS=(${quoted}); COMP_CWORD=${words.length - 1}; _queenctl; echo "\${COMPREPLY[*]}"`;
    return (await shell(line)).out.trim().split(' ');
  };
  assert.deepEqual(await offered('queenctl', 'q'), ['queues']);
  assert.deepEqual(await offered('queenctl', 'queue', 'd'), ['describe', 'delete']);
  assert.deepEqual(await offered('queenctl', '-o', 'y'), ['yaml']);
  assert.deepEqual(await offered('queenctl', 'maintenance', 'pause', 'timers-f'), ['timers-fire']);
  assert.deepEqual(await offered('queenctl', 'tail', 'complete-'), ['complete-me']);
  assert.ok((await offered('queenctl', 'pop', 'x', '--')).includes('--batch'));
});

test('tokens: none, one that may not, one that may', async (t) => {
  const { database } = await broker();
  const env = { JWT_ENABLED: 'true', JWT_ALGORITHM: 'HS256', JWT_SECRET: SECRET };
  const { url } = await startBroker({ database, env, alone: 'tokens' }, t);
  const args = ['queues', 'delete', 's5', '--yes', '-u', url];
  await fails(5, /Authentication required\n +give a token with QUEEN_TOKEN/, args);
  const reader = await sign('HS256', SECRET, { sub: 'r', role: 'read-only' });
  const refused = await fails(5, /Insufficient permissions\n +the role of this token/, args, {
    env: { QUEEN_TOKEN: reader },
  });
  assert.ok(!refused.err.includes(reader));
  const path = join(directory, 'token');
  writeFileSync(path, `${await sign('HS256', SECRET, { sub: 'a', role: 'admin' })}\n`);
  await ok('queues', 'delete', 's5', '--yes', '--if-exists', '-u', url, '--token-file', path);
  const status = await run(['status', '-u', url, '-o', 'json'], { env: { QUEEN_TOKEN: reader } });
  assert.deepEqual([status.code, JSON.parse(status.out).maintenance], [0, null]);
});

test('what was only read is in no doubt, whatever its answer was', async (t) => {
  const server = createServer((_, response) => void response.writeHead(502).end('bad gateway'));
  t.after(() => server.close());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const there = ['-u', asOften(`http://127.0.0.1:${port}`)];
  await fails(6, /bad gateway/, ['queues', 'list', ...there]);
  await fails(6, /bad gateway/, ['tail', 's6', ...there]);
  await fails(6, /bad gateway/, ['kv', 'get', 's6', 'n', ...there]);
  await fails(7, /bad gateway\n +it may have been done/, ['pop', 's6', ...there]);
  await fails(7, /bad gateway/, ['kv', 'incr', 's6', 'n', ...there]);
});

test('bench measures, and cleans up', async () => {
  const { pushed, consumed, queue } = await json(
    'bench',
    '--messages',
    '300',
    '--batch',
    '50',
    '--size',
    '1KiB',
    '--option',
    'leaseTime=30',
  );
  assert.deepEqual([pushed.messages, consumed.messages, consumed.again], [300, 300, 0]);
  assert.ok(pushed.perSecond > 0 && pushed.request.p50Ms <= pushed.request.maxMs);
  assert.ok(consumed.endToEnd.p99Ms > 0);
  await fails(3, /there is no queue/, ['queues', 'describe', queue]);
});

test('an older Node than it needs hands over to the one of the working copy', (t) => {
  const older = ['/usr/local/bin/node', '/usr/bin/node'].find(
    (path) => existsSync(path) && /^v(1\d|2[0-3])\./.test(String(execFileSync(path, ['--version']))),
  );
  if (older === undefined) return t.skip('every Node here is new enough');
  assert.match(String(execFileSync(older, [MAIN, '--version'])), /^\d+\.\d+\.\d+\n$/);
});
