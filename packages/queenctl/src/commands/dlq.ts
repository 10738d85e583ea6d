import { type DeadLetter, type DeadLetters, type Queen, RefusedError, type Replayed } from '@queen-mq/client';
import type { Command } from 'commander';
import { type Call, does } from '../call.ts';
import { Failure, usage } from '../exit.ts';
import { confirm } from '../input/confirm.ts';
import { instant, integer } from '../input/values.ts';
import { jsonText } from '../output/exact_json.ts';
import { Progress } from '../output/progress.ts';
import { type Column, facts } from '../output/table.ts';
import { age, count } from '../output/text.ts';
import { examples } from './examples.ts';

interface Scope {
  readonly queue?: string;
  readonly partition?: string;
  readonly group?: string;
}

interface Filter extends Scope {
  readonly from?: string;
  readonly to?: string;
}

const COLUMNS: readonly Column<DeadLetter>[] = [
  { title: 'ID', of: ({ id }) => id },
  { title: 'QUEUE', of: ({ queue }) => queue },
  { title: 'PARTITION', of: ({ partition }) => partition },
  { title: 'GROUP', of: ({ consumerGroup }) => consumerGroup },
  { title: 'TRANSACTION ID', of: ({ transactionId }) => transactionId },
  { title: 'TRIES', of: ({ retryCount }) => retryCount, right: true },
  { title: 'FAILED', of: ({ failedAt }) => age(failedAt), right: true },
  { title: 'REASON', of: ({ errorMessage }) => errorMessage, cut: true },
];
const PAGE_MAX = 1_000;

export function dlqCommands(program: Command): void {
  const dlq = program.command('dlq').description('dead letters: list, show, replay, delete');
  examples(dlq, [
    ['queenctl dlq list --queue orders --group billing'],
    ['queenctl dlq replay --queue orders --all', 'push them again, the oldest first'],
    ['queenctl dlq delete --queue orders --all --yes'],
  ]);

  filtered(dlq.command('list').alias('ls').description('dead letters, the latest first'))
    .option('--limit <n>', 'at most', integer(1, PAGE_MAX), 100)
    .option('--offset <n>', 'skip so many', integer(0), 0)
    .action(
      does<Filter & { limit: number; offset: number }>(async ({ queen, out, options, signal }) => {
        const letters = lettersOf(queen, options);
        const { limit, offset } = options;
        const rows = await letters.list({ ...timesOf(options), limit, offset, signal });
        out.rows(rows, COLUMNS, 'there are no dead letters');
        if (rows.length < limit) return;
        const total = await letters.count({ ...timesOf(options), signal });
        if (total > offset + rows.length)
          out.note(`${rows.length} of ${total}; --offset ${offset + rows.length} shows more`);
      }),
    );

  scoped(dlq.command('show <id>').description('one dead letter with its payload')).action(
    does<Scope, [string]>(async ({ queen, out, options, signal }, id) => {
      const [letter] = await find(lettersOf(queen, options), [id], signal);
      out.one(letter, () => shown(letter!));
    }),
  );

  filtered(
    dlq
      .command('replay [ids...]')
      .description(
        'push dead letters again, at the end of their partition; all groups of the queue see them',
      ),
  )
    .option('--all', 'all of --queue that fit the filters, the oldest first')
    .option('--to-queue <name>', 'into another queue')
    .option('--to-partition <name>', 'into another partition')
    .option('-y, --yes', 'do not ask')
    .action(does<Replay, [string[]]>(replay));

  scoped(
    dlq
      .command('delete [ids...]')
      .alias('rm')
      .description('delete dead letters; with an id, those of its message in all groups'),
  )
    .option('--all', 'all of --queue, or of --queue and --group')
    .option('-y, --yes', 'do not ask')
    .action(does<Scope & { all?: boolean; yes?: boolean }, [string[]]>(remove));
}

type Replay = Filter & { all?: boolean; toQueue?: string; toPartition?: string; yes?: boolean };

async function replay(call: Call<Replay>, ids: readonly string[]): Promise<void> {
  const { queen, out, options, signal } = call;
  const letters = lettersOf(queen, options);
  const wanted = await chosen(letters, ids, options, signal);
  if (ids.length === 0) {
    const where = options.toQueue ?? options.queue;
    await confirm(
      `${count(wanted.length, 'dead letter')} will be pushed again into ${where}`,
      options.yes,
      signal,
    );
  }
  const progress = new Progress(out.progress);
  const to = { queue: options.toQueue, partition: options.toPartition };
  const results: { id: string; result: Replayed['result'] | 'gone' | 'failed'; error?: string }[] = [];
  for (const id of wanted) {
    if (signal.aborted) break;
    try {
      results.push({ id, result: (await letters.replay(id, { ...to, signal })).result });
    } catch (error) {
      if (!(error instanceof RefusedError)) throw stoppedAt(error, results.length, wanted.length);
      const gone = error.code === 'message_not_found';
      results.push({ id, result: gone ? 'gone' : 'failed', error: error.message });
    }
    progress.show(() => `${results.length} of ${wanted.length} replayed`);
  }
  progress.clear();
  const of = (result: string) => results.filter((each) => each.result === result).length;
  const summary = { moved: of('moved'), duplicates: of('duplicate'), gone: of('gone'), failed: of('failed') };
  out.one({ ...summary, results }, () => `${summary.moved} replayed${rest(summary)}\n`);
  for (const { id, result, error } of results.slice(0, 20))
    if (result === 'failed') out.warn(`${id}: ${error}`);
  if (signal.aborted)
    throw new Failure('interrupted', `interrupted: ${wanted.length - results.length} were not replayed`);
  if (summary.failed > 0) call.ends('refused');
  else if (ids.length > 0 && summary.gone > 0) call.ends('notFound');
}

function rest({ duplicates, gone, failed }: Record<'duplicates' | 'gone' | 'failed', number>): string {
  const parts = [
    duplicates > 0 ? `${duplicates} there already` : '',
    gone > 0 ? `${gone} gone meanwhile` : '',
    failed > 0 ? `${failed} refused` : '',
  ];
  return parts
    .filter((part) => part !== '')
    .map((part) => `, ${part}`)
    .join('');
}

function stoppedAt(error: unknown, done: number, all: number): unknown {
  if (error instanceof Error && done > 0) error.message += ` (${done} of ${all} were replayed before)`;
  return error;
}

/** Ids that were typed, or of all that there are now, the oldest first. */
async function chosen(
  letters: DeadLetters,
  ids: readonly string[],
  options: Replay,
  signal: AbortSignal,
): Promise<readonly string[]> {
  if (ids.length > 0 === (options.all === true)) throw usage('ids are needed, or --queue with --all');
  if (ids.length > 0) return ids;
  if (options.queue === undefined) throw usage('--all needs --queue');
  // One that fails meanwhile moves the others a place on: some are seen twice.
  const found = new Set<string>();
  for await (const { id } of all(letters, timesOf(options), signal)) found.add(id);
  return [...found].reverse();
}

async function remove(
  call: Call<Scope & { all?: boolean; yes?: boolean }>,
  ids: readonly string[],
): Promise<void> {
  const { queen, out, options, signal } = call;
  const letters = lettersOf(queen, options);
  if (ids.length > 0 === (options.all === true)) throw usage('ids are needed, or --queue with --all');
  if (ids.length > 0) {
    const found = await find(letters, ids, signal);
    // Those of several groups may be of one message, and go together.
    const messages = new Map(found.map((each) => [`${each.partitionId} ${each.transactionId}`, each]));
    await confirm(
      `The dead letters of ${count(messages.size, 'message')} will be deleted`,
      options.yes,
      signal,
    );
    for (const message of messages.values()) await letters.delete(message, { signal });
    return out.one({ deleted: found.length }, () => `${count(found.length, 'dead letter')} deleted\n`);
  }
  if (options.queue === undefined) throw usage('--all needs --queue');
  if (options.partition !== undefined)
    throw usage('dead letters are deleted by queue and group, or by their ids');
  const there = await letters.count({ signal });
  await confirm(`${count(there, 'dead letter')} of ${options.queue} will be deleted`, options.yes, signal);
  const deleted = await letters.clear({ signal });
  out.one({ deleted }, () => `${count(deleted, 'dead letter')} deleted\n`);
}

/** Those of some ids. @throws Failure for the first that is not there */
async function find(
  letters: DeadLetters,
  ids: readonly string[],
  signal: AbortSignal,
): Promise<DeadLetter[]> {
  const wanted = new Set(ids);
  const found = new Map<string, DeadLetter>();
  for await (const letter of all(letters, {}, signal)) {
    if (wanted.has(letter.id)) found.set(letter.id, letter);
    if (found.size === wanted.size) return [...found.values()];
  }
  const missing = ids.find((id) => !found.has(id));
  throw new Failure('notFound', `there is no dead letter "${missing}"`);
}

/** Dead letters page by page, the latest first. */
async function* all(
  letters: DeadLetters,
  times: { from?: string; to?: string },
  signal: AbortSignal,
): AsyncGenerator<DeadLetter, void, undefined> {
  for (let offset = 0; ; offset += PAGE_MAX) {
    const page = await letters.list({ ...times, limit: PAGE_MAX, offset, signal });
    yield* page;
    if (page.length < PAGE_MAX) return;
  }
}

function lettersOf(queen: Queen, { queue, partition, group }: Scope): DeadLetters {
  if (queue === undefined) {
    if (partition !== undefined || group !== undefined) throw usage('--partition and --group need --queue');
    return queen.deadLetters;
  }
  let of = queen.queue(queue);
  if (partition !== undefined) of = of.partition(partition);
  if (group !== undefined) of = of.group(group);
  return of.deadLetters;
}

function timesOf({ from, to }: Filter): { from?: string; to?: string } {
  return {
    ...(from === undefined ? {} : { from }),
    ...(to === undefined ? {} : { to }),
  };
}

function scoped(command: Command): Command {
  return command
    .option('--queue <name>', 'of a queue')
    .option('-p, --partition <name>', 'of a partition of it')
    .option('-g, --group <name>', 'of a group of it');
}

function filtered(command: Command): Command {
  return scoped(command)
    .option('--from <instant>', 'failed at or after: an instant, or a time ago', instant)
    .option('--to <instant>', 'failed at or before', instant);
}

function shown({ data, ...letter }: DeadLetter): string {
  const lines = facts([
    ['id', letter.id],
    ['queue', letter.queue],
    ['partition', letter.partition],
    ['partition id', letter.partitionId],
    ['group', letter.consumerGroup],
    ['transaction id', letter.transactionId],
    ['tries', letter.retryCount],
    ['failed at', letter.failedAt],
    ['reason', letter.errorMessage],
  ]);
  return `${lines}\n${jsonText(data, 2)}\n`;
}
