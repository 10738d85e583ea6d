import { setTimeout } from 'node:timers/promises';
import type { Connector, ConnectorSpec, Queen } from '@queen-mq/client';
import type { Command } from 'commander';
import { documentsOf, type Manifest, manifestOf } from '../apply/documents.ts';
import { type Call, does } from '../call.ts';
import { Failure, usage } from '../exit.ts';
import { confirm } from '../input/confirm.ts';
import { textOf } from '../input/lines.ts';
import { durationMs } from '../input/values.ts';
import { Progress } from '../output/progress.ts';
import { type Column, facts } from '../output/table.ts';
import { bytes, duration } from '../output/text.ts';
import { applyAll } from './apply.ts';
import { examples } from './examples.ts';
import { notFound } from './suggested.ts';

const COLUMNS: readonly Column<Connector>[] = [
  { title: 'CONNECTOR', of: ({ name }) => name },
  { title: 'KIND', of: ({ kind }) => kind },
  { title: 'PHASE', of: ({ status }) => status?.phase },
  { title: 'DATABASE', of: ({ connection }) => databaseOf(connection) },
  { title: 'QUEUES', of: queuesOf },
  {
    title: 'ERROR',
    of: ({ status }) => (status?.error ? `${status.error.code}: ${status.error.message}` : null),
    cut: true,
  },
];

/** How a connector is when there is nothing to wait for. */
const AT_WORK: ReadonlySet<string> = new Set(['streaming', 'running', 'standby', 'disabled']);
const LOOK_EVERY_MS = 500;

export function connectorCommands(program: Command): void {
  const connectors = program
    .command('connectors')
    .alias('connector')
    .description('connectors to PostgreSQL: list, status, apply, pause, resume, resync, delete');
  examples(connectors, [
    ['queenctl connectors list'],
    ['queenctl connectors apply orders-src -f orders-src.yaml', 'the document as docs/connectors.md has it'],
    ['queenctl connectors status orders-src --wait 60s', 'until it streams, or says why not'],
  ]);

  connectors
    .command('list')
    .alias('ls')
    .description('all connectors with their phase, as the broker that answers sees it')
    .action(
      does(async ({ queen, out, signal }) => {
        out.rows(await queen.connectors.list({ signal }), COLUMNS, 'there are no connectors');
      }),
    );

  connectors
    .command('status <connector>')
    .alias('describe')
    .description('one connector: what it does, and what keeps it from that')
    .option('--wait <time>', 'wait until it is at work or in trouble, for so long', durationMs, 0)
    .action(
      does<{ wait: number }, [string]>(async (call, name) => {
        const { queen, out, options } = call;
        const connector =
          options.wait > 0 ? await atWork(call, name, options.wait) : await get(queen, name, call.signal);
        out.one(connector, () => described(connector));
        if (connector.enabled && connector.status?.phase === 'error') call.ends('failure');
      }),
    );

  connectors
    .command('apply <connector>')
    .description('make or replace a connector from a file, and show what changes')
    .requiredOption('-f, --file <path>', 'its document, or a manifest that has it; - for standard input')
    .option('--dry-run', 'show what would change, and change nothing')
    .action(
      does<{ file: string; dryRun?: boolean }, [string]>(async (call, name) => {
        const { file, dryRun = false } = call.options;
        await applyAll(call, [await manifestIn(file, name)], { dryRun, merge: false });
      }),
    );

  for (const enabled of [false, true]) {
    connectors
      .command(enabled ? 'resume <connector>' : 'pause <connector>')
      .description(enabled ? 'let it run again' : 'stop it; a source keeps its slot, and so WAL, meanwhile')
      .action(does<object, [string]>((call, name) => setEnabled(call, name, enabled)));
  }

  connectors
    .command('resync <connector>')
    .description('let a source forget how far it was, and copy its tables anew')
    .option('-y, --yes', 'do not ask')
    .option('--wait <time>', 'wait until it streams again, for so long', durationMs, 0)
    .action(
      does<{ yes?: boolean; wait: number }, [string]>(async (call, name) => {
        const { queen, out, options, signal } = call;
        await get(queen, name, signal);
        await confirm(
          `${name} will drop its slot and copy all rows of its tables again`,
          options.yes,
          signal,
        );
        await queen.connectors.resync(name, { signal });
        if (options.wait === 0) return out.one({ name, resync: 'requested' }, () => `${name} begins anew\n`);
        const connector = await atWork(call, name, options.wait);
        out.one(connector, () => described(connector));
      }),
    );

  connectors
    .command('delete <connector>')
    .alias('rm')
    .description('delete a connector; a source drops its slot first')
    .option('--keep-slot', 'leave the slot, which holds WAL until somebody drops it')
    .option('-y, --yes', 'do not ask')
    .action(
      does<{ keepSlot?: boolean; yes?: boolean }, [string]>(async (call, name) => {
        const { queen, out, options, signal } = call;
        await get(queen, name, signal);
        await confirm(`The connector ${name} will be deleted`, options.yes, signal);
        const gone = await queen.connectors.delete(name, { dropSlot: options.keepSlot !== true, signal });
        const say = gone ? 'is deleted' : 'will be gone when its slot is dropped';
        out.one({ name, deleted: gone }, () => `${name} ${say}\n`);
      }),
    );
}

async function get(queen: Queen, name: string, signal: AbortSignal): Promise<Connector> {
  const connector = await queen.connectors.get(name, { signal });
  if (connector !== null) return connector;
  const names = (await queen.connectors.list()).map((each) => each.name);
  throw notFound(`there is no connector "${name}"`, 'connectors', name, names);
}

/** Looks until a connector is at work. @throws Failure when it is not in time; one in trouble is given back at once */
async function atWork({ queen, out, signal }: Call, name: string, waitMs: number): Promise<Connector> {
  const until = performance.now() + waitMs;
  const progress = new Progress(out.progress);
  try {
    for (;;) {
      const connector = await get(queen, name, signal);
      const phase = connector.status?.phase ?? 'unknown';
      if (AT_WORK.has(phase) || phase === 'error' || !connector.enabled) return connector;
      if (performance.now() >= until)
        throw new Failure('failure', `${name} is still ${phase} after ${duration(waitMs / 1000)}`);
      progress.show(() => `${name}: ${phase}${snapshotOf(connector)}`);
      await setTimeout(LOOK_EVERY_MS, undefined, { signal });
    }
  } finally {
    progress.clear();
  }
}

function snapshotOf({ status }: Connector): string {
  const snapshot = status?.snapshot;
  return typeof snapshot === 'object' && snapshot !== null ? ` ${JSON.stringify(snapshot)}` : '';
}

async function setEnabled({ queen, out, signal }: Call, name: string, enabled: boolean): Promise<void> {
  const connector = await get(queen, name, signal);
  // What was read can be written back; the password stays.
  const made = await queen.connectors.put(name, { ...connector, enabled } as unknown as ConnectorSpec, {
    signal,
  });
  out.one(made, () => `${name} ${enabled ? 'runs' : 'is paused'}\n`);
}

/** The document of a connector: by itself, or in a manifest among others. */
async function manifestIn(path: string, name: string): Promise<Manifest> {
  const text = await textOf(path);
  const documents = documentsOf(text, path);
  const [first] = documents;
  if (first === undefined) throw usage(`there is no document in ${path}`);
  const kind = (first.value as { kind?: unknown } | null)?.kind;
  if (kind === 'source' || kind === 'sink') {
    if (documents.length > 1) throw usage(`${path} has more than one document`);
    return { kind: 'Connector', name, spec: first.value as Record<string, unknown>, where: first.where };
  }
  const manifests = documents.map(({ value, where }) => manifestOf(value, where));
  const found = manifests.find((each) => each.kind === 'Connector' && each.name === name);
  if (found === undefined) throw usage(`${path} has no Connector ${name}`);
  return found;
}

function databaseOf({ host, port, database }: Connector['connection']): string {
  return `${host}:${port}/${database}`;
}

function queuesOf({ source, sink }: Connector): string {
  const queues = sink === undefined ? (source?.tables.map(({ queue }) => queue) ?? []) : [sink.queue];
  return [...new Set(queues)].join(',');
}

/** Of a status what is shown under other names, or is nothing to people. */
const SHOWN_ELSEWHERE = new Set(['name', 'kind', 'phase', 'error', 'enabled', 'queue', 'table']);

function described(connector: Connector): string {
  const { name, kind, connection, source, sink, status, state } = connector;
  const rest = Object.entries(status ?? {}).filter(
    ([fact, value]) => !SHOWN_ELSEWHERE.has(fact) && value !== null,
  );
  return facts([
    ['connector', name],
    ['kind', kind],
    ['phase', status?.phase],
    ...(status?.error ? ([['error', `${status.error.code}: ${status.error.message}`]] as const) : []),
    ['database', databaseOf(connection)],
    ...(source?.tables.map(({ table, queue }) => ['copies', `${table} -> ${queue}`] as const) ?? []),
    ...(sink === undefined ? [] : ([['copies', `${sink.queue} -> ${sink.table} (${sink.mode})`]] as const)),
    ...rest.map(
      ([fact, value]) => [fact, fact.endsWith('Bytes') ? bytes(value as number) : plain(value)] as const,
    ),
    ...Object.entries(state ?? {}).map(([fact, value]) => [fact, plain(value)] as const),
  ]);
}

function plain(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
