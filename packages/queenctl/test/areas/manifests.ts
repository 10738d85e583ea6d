import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { clientOf } from '../../../client/test/setup.ts';
import { completed, shownOf } from '../../src/apply/connector_document.ts';
import { QUEUE_DEFAULTS } from '../../src/apply/queue_options.ts';
import { asOften, closedUrl, directory, fails, json, ok, run } from '../run.ts';

const sink = (mode: string) => `kind: Connector
name: m-copy
spec:
  kind: sink
  enabled: false
  connection: {url: "postgres://queen@127.0.0.1:1/shop", passwordEnv: SHOP_PASSWORD}
  sink: {queue: m.in, table: copy, mode: ${mode}}
`;
const env = { SHOP_PASSWORD: 'from-the-environment' };

test('what is thought to be the default is what a broker makes of it', async (t) => {
  const client = await clientOf(t);
  const { options, namespace, task } = await client.queue('m-defaults').configure({}, { replace: true });
  assert.deepEqual({ ...options, namespace, task }, QUEUE_DEFAULTS);
  const connection = { host: '127.0.0.1', port: 1, database: 'd', user: 'u' };
  const documents = [
    { kind: 'sink', enabled: false, connection, sink: { queue: 'q', table: 't', mode: 'append' } },
    {
      kind: 'sink',
      enabled: false,
      connection: { url: 'postgres://u%40x:p@127.0.0.1/d%20e?sslmode=require&connect_timeout=7' },
      sink: { queue: 'q', table: 's.t', mode: 'sql', statement: 'SELECT 1', params: ['$.a'], metadata: null },
    },
    {
      kind: 'source',
      enabled: false,
      connection,
      source: {
        tables: [
          { table: 't', queue: 'q' },
          { table: 's.u', queue: 'r', partitionBy: ['a'] },
        ],
      },
    },
  ] as const;
  for (const [nth, document] of documents.entries()) {
    const name = `m-defaults-${nth}`;
    const stored = await client.connectors.put(name, document as never);
    assert.deepEqual(completed(name, document as never), shownOf(stored));
    assert.deepEqual(completed(name, stored as never), shownOf(stored), 'what was read can be written');
    await client.connectors.delete(name, { dropSlot: false });
  }
});

test('apply: a dry run, the change, nothing to change, and what differs', async () => {
  const path = join(directory, 'm.yaml');
  writeFileSync(
    path,
    `kind: Queue\nname: m.in\nspec: {leaseTime: 60, retryLimit: 5}\n---\n${sink('append')}`,
  );
  const apply = (...more: string[]) => run(['apply', '-f', path, ...more], { env });
  const dry = await apply('--dry-run', '--exit-code');
  assert.equal(dry.code, 8, dry.err);
  assert.match(
    dry.out,
    /^Queue m\.in would be created\n {2}\+ leaseTime: 60\n {2}\+ retryLimit: 5\nConnector m-copy would be created\n/,
  );
  assert.match(dry.out, / {2}\+ connection\.database: "shop"\n/);
  assert.match(dry.err, /2 documents: 2 would be created/);
  await fails(3, /there is no queue "m\.in"/, ['queues', 'describe', 'm.in']);

  const made = await apply();
  assert.deepEqual([made.code, made.err], [0, '2 documents: 2 created\n']);
  assert.equal((await json('queues', 'describe', 'm.in')).options.leaseTime, 60);
  assert.equal((await json('connectors', 'status', 'm-copy')).connection.passwordSet, true);
  const again = await apply('--dry-run', '--exit-code', '-o', 'json');
  assert.deepEqual(
    [again.code, JSON.parse(again.out).map(({ result }: { result: string }) => result)],
    [0, ['unchanged', 'unchanged']],
  );
  assert.match((await apply()).out, /Connector m-copy unchanged\n {2}! the password was sent anew\n$/);

  // What a manifest does not name goes back to its default; with --merge it stays.
  writeFileSync(path, 'kind: Queue\nname: m.in\nspec: {retryLimit: 5, dedupWindowSeconds: 60}\n');
  assert.equal(
    (await apply('--merge', '--dry-run')).out,
    'Queue m.in would change\n  ~ dedupWindowSeconds: 3600 -> 60\n',
  );
  const changed = await apply('-o', 'json');
  assert.deepEqual(JSON.parse(changed.out)[0].changes, [
    { path: 'leaseTime', before: 60, after: 300 },
    { path: 'dedupWindowSeconds', before: 3600, after: 60 },
  ]);
  assert.equal((await json('queues', 'describe', 'm.in')).options.leaseTime, 300);
});

test('apply: all documents are checked first, one that fails leaves the others alone', async () => {
  const wrong = async (stdin: string, says: RegExp) => fails(2, says, ['apply', '-f', '-'], { stdin });
  await wrong(
    'kind: Queue\nname: never\n---\nkind: Queue\nname: x\nspec: {leaseTim: 1}\n',
    /standard input, line 4: Queue x: leaseTim is no option of a queue: did you mean leaseTime\?/,
  );
  await fails(3, /./, ['queues', 'describe', 'never']);
  await wrong('kind: Quue\nname: x\n', /kind is Queue or Connector, not "Quue"\n +did you mean "Queue"/);
  await wrong('kind: Queue\nname: x\nspecs: {}\n', /"specs" is no member/);
  await wrong('kind: Queue\nname: [\n', /standard input, line \d, column \d/);
  await wrong(
    'kind: Queue\nname: x\n---\nkind: Queue\nname: x\n',
    /Queue x is there a second time, after standard input, line 1/,
  );
  await wrong(sink('append'), /the variable SHOP_PASSWORD has no password/);
  await wrong('# nothing\n', /there is no document/);
  await fails(2, /--file is needed/, ['apply']);

  const text = `kind: Connector\nname: BAD\nspec: {kind: sink, connection: {host: h, password: secret-word}, sink: {}}\n---\nkind: Queue\nname: m.after\n`;
  const ran = await fails(4, /2 documents: 1 failed, 1 created/, ['apply', '-f', '-'], { stdin: text });
  assert.match(ran.out, /^Connector BAD failed: .*\(standard input, line 1\)\n/);
  assert.doesNotMatch(ran.out + ran.err, /secret-word/);
  const away = await fails(
    6,
    /1 failed, 1 not tried/,
    ['apply', '-f', '-', '-u', asOften(await closedUrl())],
    {
      stdin: 'kind: Queue\nname: x\n---\nkind: Queue\nname: y\n',
    },
  );
  assert.match(away.out, /^Queue x failed: no answer/);
});

test('directories and export: what is there, as manifests', async () => {
  const manifests = join(directory, 'manifests');
  mkdirSync(manifests);
  writeFileSync(join(manifests, '1.yaml'), 'kind: Queue\nname: m.dir-1\nspec: {leaseTime: 45}\n');
  writeFileSync(join(manifests, '2.json'), '{"kind": "Queue", "name": "m.dir-2"}');
  writeFileSync(join(manifests, 'notes.txt'), 'no manifest');
  assert.match(
    await ok('apply', '-f', manifests),
    /^Queue m\.dir-1 created\n[\s\S]*Queue m\.dir-2 created\n$/,
  );
  assert.equal(await ok('export', 'm.dir-1'), 'kind: Queue\nname: m.dir-1\nspec:\n  leaseTime: 45\n');
  const all = await ok('export');
  assert.match(all, /\n---\nkind: Queue\nname: m\.dir-1\n/);
  const applied = await run(['apply', '-f', '-', '-o', 'json'], { stdin: all });
  assert.equal(applied.code, 0, applied.err);
  for (const { result } of JSON.parse(applied.out)) assert.equal(result, 'unchanged');
});

test('connectors: apply, list, status, pause, resume, resync, delete', async () => {
  const path = join(directory, 'source.json');
  const document = {
    kind: 'source',
    connection: { host: '127.0.0.1', port: 1, database: 'd', user: 'u', password: 'secret-word' },
    source: { tables: [{ table: 'orders', queue: 'm.orders' }] },
  };
  writeFileSync(path, JSON.stringify(document));
  assert.match(await ok('connectors', 'apply', 'm-src', '-f', path), /^Connector m-src created\n/);
  assert.match(await ok('connectors', 'list'), /m-src +source +\S+ +127\.0\.0\.1:1\/d +m\.orders /);
  const trouble = await run(['connectors', 'status', 'm-src', '--wait', '20s']);
  assert.equal(trouble.code, 1);
  assert.match(
    trouble.out,
    /phase: +error\nerror: +io: [^\n]*\n[\s\S]*copies: +public\.orders -> m\.orders\n/,
  );
  assert.match(await ok('connectors', 'pause', 'm-src'), /m-src is paused/);
  assert.equal((await json('connectors', 'status', 'm-src')).enabled, false);
  assert.equal((await json('connectors', 'resume', 'm-src')).connection.passwordSet, true);
  await fails(2, /m-src will drop its slot and copy all rows of its tables again; that has to be confirmed/, [
    'connectors',
    'resync',
    'm-src',
  ]);
  assert.equal(await ok('connectors', 'resync', 'm-src', '-y'), 'm-src begins anew\n');
  await fails(3, /there is no connector "m-srcc"\n +did you mean "m-src"/, [
    'connectors',
    'delete',
    'm-srcc',
    '-y',
  ]);
  const copy = join(directory, 'sink.yaml');
  writeFileSync(
    copy,
    sink('cdc').replace('passwordEnv: SHOP_PASSWORD', 'password: secret-word').replaceAll('m-copy', 'm-sink'),
  );
  assert.match(await ok('connectors', 'apply', 'm-sink', '-f', copy), /^Connector m-sink created\n/);
  await fails(2, /sink\.yaml has no Connector m-none/, ['connectors', 'apply', 'm-none', '-f', copy]);
  await fails(4, /m-sink/, ['connectors', 'resync', 'm-sink', '-y']);
  await ok('connectors', 'delete', 'm-src', '--keep-slot', '-y');
  assert.equal(await ok('connectors', 'delete', 'm-sink', '-y'), 'm-sink is deleted\n');
});
