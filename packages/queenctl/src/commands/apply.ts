import type { Queen } from '@queen-mq/client';
import type { Command } from 'commander';
import { type Change, lineOf } from '../apply/changes.ts';
import { checkConnector, connectorPlan } from '../apply/connector_plan.ts';
import { type Manifest, manifestsOf } from '../apply/documents.ts';
import type { Plan } from '../apply/plan.ts';
import { checkQueue, queuePlan } from '../apply/queue_plan.ts';
import { type Call, does } from '../call.ts';
import { type ExitName, usage } from '../exit.ts';
import { explain } from '../explain.ts';
import { again } from '../input/values.ts';
import { count } from '../output/text.ts';
import { examples } from './examples.ts';

interface Options {
  readonly file?: string[];
  readonly dryRun?: boolean;
  readonly exitCode?: boolean;
  readonly merge?: boolean;
}

type Result =
  | 'created'
  | 'changed'
  | 'unchanged'
  | 'would be created'
  | 'would change'
  | 'failed'
  | 'not tried';

interface Report {
  readonly kind: string;
  readonly name: string;
  readonly where: string;
  readonly result: Result;
  readonly changes: readonly Change[];
  readonly notes: readonly string[];
  readonly error: string | null;
}

/** After one of these the others would fail as well. */
const ENDS_ALL: ReadonlySet<ExitName> = new Set(['unavailable', 'forbidden', 'interrupted', 'usage']);

export function applyCommand(program: Command): void {
  const command = program
    .command('apply')
    .description('make queues and connectors as manifests want them, and show what changes')
    .option('-f, --file <path>', 'file, directory, or - for standard input; may be given again', again)
    .option('--dry-run', 'show what would change, and change nothing')
    .option('--exit-code', 'with --dry-run: end with 8 when something would change')
    .option('--merge', 'options of a queue that a manifest does not name stay as they are')
    .action(does<Options>(apply));
  examples(command, [
    ['queenctl apply -f queues.yaml --dry-run'],
    ['queenctl apply -f manifests/'],
    ['queenctl export | queenctl apply -f - --url http://other:6632', 'the same queues elsewhere'],
  ]);
  command.addHelpText('after', `\nA manifest has one document or several:\n${SAMPLE}`);
}

const SAMPLE = `
  kind: Queue
  name: orders
  spec: {leaseTime: 60, retryLimit: 5}
  ---
  kind: Connector
  name: orders-copy
  spec:
    kind: sink
    connection: {host: copy, database: shop, user: queen, passwordEnv: SHOP_PASSWORD}
    sink: {queue: orders, table: public.orders_copy, mode: cdc}

Options of a queue that are not named go back to their defaults, unless --merge is given. A password can come from
the environment (passwordEnv) or a file (passwordFile); without one the stored one stays.

All documents are checked before the first is applied. One that fails leaves the others alone.`;

async function apply(call: Call<Options>): Promise<void> {
  const { options } = call;
  if (options.file === undefined) throw usage('--file is needed', '`queenctl apply --help` shows a manifest');
  if (options.exitCode === true && options.dryRun !== true) throw usage('--exit-code is for --dry-run');
  await applyAll(call, await manifestsOf(options.file), { dryRun: false, merge: false, ...options });
}

/** Applies manifests, or tells what that would do; prints a report and sets the exit code. */
export async function applyAll(
  call: Call,
  manifests: readonly Manifest[],
  { dryRun, merge, exitCode = false }: { dryRun: boolean; merge: boolean; exitCode?: boolean },
): Promise<void> {
  const { out, queen } = call;
  const planned = manifests.map((manifest) => ({ manifest, plan: plannerOf(queen, manifest, merge) }));
  const reports: Report[] = [];
  let ended: ExitName = 'ok';
  for (const { manifest, plan } of planned) {
    const { kind, name, where } = manifest;
    const facts = { kind, name, where, changes: [], notes: [], error: null } as const;
    if (ENDS_ALL.has(ended)) {
      reports.push({ ...facts, result: 'not tried' });
      continue;
    }
    let changes: readonly Change[] = [];
    try {
      const made = await plan(call.signal);
      changes = made.changes;
      const notes = dryRun || (made.action === 'none' && !made.resends) ? [] : await made.apply();
      reports.push({ ...facts, changes, notes, result: resultOf(made, dryRun) });
    } catch (error) {
      const { exit, sentence } = explain(error);
      ended = ENDS_ALL.has(exit) || ended === 'ok' ? exit : 'failure';
      reports.push({ ...facts, changes, result: 'failed', error: sentence });
    }
    if (out.forPeople) print(call, reports.at(-1)!);
  }
  if (!out.forPeople) out.one(reports, () => '');
  const sums = new Map<Result, number>();
  for (const { result } of reports) sums.set(result, (sums.get(result) ?? 0) + 1);
  const summary = [...sums].map(([result, many]) => `${many} ${result}`).join(', ');
  out.note(`${count(reports.length, 'document')}: ${summary}`);
  if (ended !== 'ok') call.ends(ended);
  else if (exitCode && reports.some(({ changes }) => changes.length > 0)) call.ends('differs');
}

/** Checks a manifest, and gives back what finds out how to get there. */
function plannerOf(queen: Queen, manifest: Manifest, merge: boolean): (signal: AbortSignal) => Promise<Plan> {
  if (manifest.kind === 'Queue') {
    checkQueue(manifest);
    return (signal) => queuePlan(queen, manifest, merge, signal);
  }
  const spec = checkConnector(manifest);
  return (signal) => connectorPlan(queen, manifest.name, spec, signal);
}

function resultOf({ action }: Plan, dryRun: boolean): Result {
  if (action === 'none') return 'unchanged';
  if (action === 'create') return dryRun ? 'would be created' : 'created';
  return dryRun ? 'would change' : 'changed';
}

function print({ out }: Call, { kind, name, where, result, changes, notes, error }: Report): void {
  const colour = result === 'failed' ? 'red' : result === 'unchanged' ? 'dim' : 'green';
  const rest = error === null ? '' : `: ${error} (${where})`;
  out.write(`${kind} ${name} ${out.colour(colour, result)}${rest}\n`);
  for (const change of changes) out.write(`${lineOf(change)}\n`);
  for (const note of notes) out.write(`  ! ${note}\n`);
}
