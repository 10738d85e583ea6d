import type { KvWritten, Life } from '@queen-mq/client';
import type { Command } from 'commander';
import { type Call, does } from '../call.ts';
import { Failure, usage } from '../exit.ts';
import { confirm } from '../input/confirm.ts';
import { textOf } from '../input/lines.ts';
import { durationSeconds, finite, integer, payload } from '../input/values.ts';
import { jsonText } from '../output/exact_json.ts';
import type { Column } from '../output/table.ts';
import { count } from '../output/text.ts';
import { examples } from './examples.ts';
import { limited } from './limited.ts';

interface Entry {
  readonly key: string;
  readonly value?: unknown;
  readonly version: number;
  readonly expiresAt: string | null;
  readonly updatedAt: string;
}

const KEY: Column<Entry> = { title: 'KEY', of: ({ key }) => key };
const META: readonly Column<Entry>[] = [
  { title: 'VERSION', of: ({ version }) => version, right: true },
  { title: 'EXPIRES', of: ({ expiresAt }) => expiresAt },
  { title: 'UPDATED', of: ({ updatedAt }) => updatedAt },
];
const VALUE: Column<Entry> = { title: 'VALUE', of: ({ value }) => JSON.stringify(value), cut: true };

interface Write {
  readonly ttl?: number;
  readonly text?: boolean;
  readonly expect?: number;
  readonly ifAbsent?: boolean;
}

/** Why a write was not applied, for people. */
const REASONS: Readonly<Record<string, string>> = {
  exists: 'there is a value already',
  absent: 'there is no value',
  version: 'somebody else has written it meanwhile',
  limit: 'the result would leave --min to --max',
  type: 'its value is no number',
};

export function kvCommands(program: Command): void {
  const kv = program
    .command('kv')
    .description('keys and values: namespaces, list, get, put, cas, incr, delete');
  examples(kv, [
    ['queenctl kv put settings mode \'{"dry": true}\' --ttl 1h'],
    ['queenctl kv get settings mode'],
    ['queenctl kv cas settings mode 3 \'{"dry": false}\'', 'only over version 3'],
    ['queenctl kv list settings --prefix user/'],
  ]);

  kv.command('namespaces')
    .description('namespaces, with how many keys each has')
    .action(
      does(async ({ queen, out, signal }) => {
        const columns: Column<{ namespace: string; keys: number }>[] = [
          { title: 'NAMESPACE', of: ({ namespace }) => namespace },
          { title: 'KEYS', of: ({ keys }) => keys, right: true },
        ];
        out.rows(await queen.admin.kvNamespaces({ signal }), columns, 'there are no keys');
      }),
    );

  kv.command('list <namespace>')
    .alias('ls')
    .description('keys of a namespace in order, with their values')
    .option('--prefix <text>', 'only keys that begin so')
    .option('--keys-only', 'without values')
    .option('--limit <n>', 'at most; 0: all', integer(0), 100)
    .action(
      does<{ prefix?: string; keysOnly?: boolean; limit: number }, [string]>(async (call, namespace) => {
        const { queen, out, options, signal } = call;
        const { prefix, limit } = options;
        const keysOnly = options.keysOnly === true;
        const columns = keysOnly ? [KEY, ...META] : [KEY, ...META, VALUE];
        const entries = queen.admin.kvKeys(namespace, { prefix, keysOnly, signal });
        await limited(out, entries, limit, columns, `${namespace} has no such keys`);
      }),
    );

  kv.command('get <namespace> <key>')
    .description('print a value; with -o json also its version and when it expires')
    .action(
      does<object, [string, string]>(async ({ queen, out, signal }, namespace, key) => {
        const entry = await queen.kv(namespace).get(key, { signal });
        if (entry === null) throw new Failure('notFound', `${namespace} has no key "${key}"`);
        out.one(entry, () => `${jsonText(entry.value, 2)}\n`);
      }),
    );

  written(
    kv.command('put <namespace> <key> <value>').description('write a value; - reads it from standard input'),
  )
    .option('--expect <version>', 'only over this version; 0: only where nothing is', integer(0))
    .option('--if-absent', 'only where nothing is')
    .action(
      does<Write, [string, string, string]>(async (call, namespace, key, text) => {
        const { ifAbsent, expect } = call.options;
        if (ifAbsent === true && expect !== undefined)
          throw usage('--if-absent and --expect exclude each other');
        await put(call, namespace, key, text, ifAbsent === true ? 0 : expect);
      }),
    );

  written(
    kv
      .command('cas <namespace> <key> <version> <value>')
      .description('write a value if its version is this one (0: if there is none)'),
  ).action(
    does<Write, [string, string, string, string]>(async (call, namespace, key, version, text) => {
      await put(call, namespace, key, text, integer(0)(version));
    }),
  );

  kv.command('incr <namespace> <key>')
    .description('add to a number; one that is not there is 0')
    .option('--by <n>', 'how much, also less than 0', finite, 1)
    .option('--min <n>', 'not below', finite)
    .option('--max <n>', 'not above', finite)
    .option('--ttl <time>', 'how long a new key lives (default: for ever)', durationSeconds)
    .action(
      does<{ by: number; min?: number; max?: number; ttl?: number }, [string, string]>(
        async ({ queen, out, options, signal }, namespace, key) => {
          const { by, min, max, ttl } = options;
          const bounds = { ...(min === undefined ? {} : { min }), ...(max === undefined ? {} : { max }) };
          const result = await queen.kv(namespace).incr(key, by, { ...lifeOf(ttl), ...bounds, signal });
          applied(result, namespace);
          out.one(result, () => `${result.value}\n`);
        },
      ),
    );

  kv.command('delete <namespace> [keys...]')
    .alias('rm')
    .description('delete keys')
    .option('--expect <version>', 'only this version of the one key', integer(1))
    .option('--prefix <text>', 'all keys that begin so')
    .option('-y, --yes', 'do not ask before --prefix')
    .action(does<{ expect?: number; prefix?: string; yes?: boolean }, [string, string[]]>(remove));
}

function written(command: Command): Command {
  return command
    .option('--ttl <time>', 'how long it lives (default: until it is deleted)', durationSeconds)
    .option('--text', 'the value is a text, not JSON');
}

async function put(
  { queen, out, options, signal }: Call<Write>,
  namespace: string,
  key: string,
  text: string,
  expect: number | undefined,
): Promise<void> {
  const value = payload(text === '-' ? await textOf('-') : text, options.text === true, 'the value');
  const result = await queen.kv(namespace).put(key, value, { ...lifeOf(options.ttl), expect, signal });
  applied(result, namespace);
  out.one(result, () => `${key} is written, version ${result.version}\n`);
}

/** @throws Failure for a write whose condition did not hold */
function applied({ applied, key, reason, version, value }: KvWritten, namespace: string): void {
  if (applied) return;
  const why = REASONS[reason ?? ''] ?? reason;
  const now = version > 0 ? `version ${version} is there: ${JSON.stringify(value)}` : undefined;
  throw new Failure('refused', `${namespace}/${key} was not written: ${why}`, now);
}

async function remove(
  call: Call<{ expect?: number; prefix?: string; yes?: boolean }>,
  namespace: string,
  given: readonly string[],
): Promise<void> {
  const { queen, out, options, signal } = call;
  const { prefix, expect } = options;
  if (given.length > 0 === (prefix !== undefined)) throw usage('keys are needed, or --prefix');
  if (expect !== undefined && given.length !== 1) throw usage('--expect is for one key');
  const keys = [...given];
  if (prefix !== undefined) {
    for await (const { key } of queen.admin.kvKeys(namespace, { prefix, keysOnly: true, signal }))
      keys.push(key);
    await confirm(`${count(keys.length, 'key')} of ${namespace} will be deleted`, options.yes, signal);
  }
  let deleted = 0;
  for (const key of keys) {
    const result = await queen
      .kv(namespace)
      .delete(key, { ...(expect === undefined ? {} : { expect }), signal });
    if (result.applied) deleted++;
    else if (expect !== undefined && result.reason === 'version') applied(result, namespace);
  }
  out.one({ namespace, deleted, absent: keys.length - deleted }, () => `${count(deleted, 'key')} deleted\n`);
  if (given.length > 0 && deleted < given.length) call.ends('notFound');
}

function lifeOf(ttlSeconds: number | undefined): Life {
  return ttlSeconds === undefined ? { forever: true } : { ttlSeconds };
}
