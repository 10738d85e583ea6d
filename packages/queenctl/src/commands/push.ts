import {
  InDoubtError,
  type NewMessage,
  PushError,
  PushInDoubtError,
  type PushResult,
} from '@queen-mq/client';
import type { Command } from 'commander';
import { type Call, does } from '../call.ts';
import { Failure, usage } from '../exit.ts';
import { type Line, linesOf, type Source, sourceOf } from '../input/lines.ts';
import { again, at, integer, payload } from '../input/values.ts';
import { digitsOf } from '../output/exact_json.ts';
import { Progress } from '../output/progress.ts';
import type { Column } from '../output/table.ts';
import { bytes, count } from '../output/text.ts';
import { examples } from './examples.ts';

interface Options {
  readonly partition?: string;
  readonly transactionId?: string;
  readonly key?: string;
  readonly idKey?: string;
  readonly file?: string[];
  readonly text?: boolean;
  readonly envelope?: boolean;
  readonly batch: number;
}

const COLUMNS: readonly Column<PushResult>[] = [
  { title: 'TRANSACTION ID', of: ({ transactionId }) => transactionId },
  { title: 'STATUS', of: ({ status }) => status },
  { title: 'OFFSET', of: ({ offset }) => offset, right: true },
  { title: 'MESSAGE ID', of: ({ messageId }) => messageId },
];

export function pushCommand(program: Command): void {
  const command = program
    .command('push <queue> [payloads...]')
    .description('store messages: JSON payloads, or a file or standard input with one a line')
    .option('-p, --partition <name>', 'partition of all of them (default: Default)')
    .option('--key <path>', 'partition: what this path finds in the payload (customer.id)')
    .option('--transaction-id <id>', 'of the one payload that is given')
    .option('--id-key <path>', 'transactionId: what this path finds in the payload')
    .option('-f, --file <file>', 'read payloads from a file, - for standard input; may be given again', again)
    .option('--text', 'payloads are texts, not JSON')
    .option('--envelope', 'lines are {"data", "partition"?, "transactionId"?}, as tail and pop print them')
    .option('--batch <n>', 'messages in one request', integer(1, 10_000), 500)
    .action(does<Options, [string, string[]]>(push));
  examples(command, [
    ['queenctl push orders \'{"total": 12.50}\' --partition customer-7 --transaction-id order-1'],
    ['queenctl push orders -f orders.ndjson --key customer.id --id-key orderId', 'each line of a file, once'],
    [
      'queenctl tail orders --from beginning --no-follow -o json | queenctl push copy --envelope',
      'copy a queue',
    ],
  ]);
  command.addHelpText(
    'after',
    '\nWhat is pushed again with the transactionId that it had is not stored twice, so a push of a file with --id-key\nthat was cut off can be repeated.',
  );
}

async function push(call: Call<Options>, queue: string, payloads: readonly string[]): Promise<void> {
  const { options } = call;
  const { partition, key, envelope, transactionId, idKey } = options;
  if (key !== undefined && partition !== undefined) throw usage('--key and --partition exclude each other');
  if (envelope === true && (key !== undefined || idKey !== undefined || options.text === true))
    throw usage('--envelope excludes --key, --id-key and --text');
  if (transactionId !== undefined && (payloads.length !== 1 || idKey !== undefined))
    throw usage('--transaction-id is for one payload on the command line');
  if (payloads.length > 0) {
    if (options.file !== undefined) throw usage('payloads and --file exclude each other');
    return pushGiven(call, queue, payloads);
  }
  if (options.file === undefined && process.stdin.isTTY)
    throw usage('a payload is needed, or --file', '`queenctl push --help` has examples');
  await pushFiles(call, queue, (options.file ?? ['-']).map(sourceOf));
}

async function pushGiven(call: Call<Options>, queue: string, payloads: readonly string[]): Promise<void> {
  const { queen, out, options, signal } = call;
  const messages = payloads.map((text, nth) => {
    const message = messageOf(text, options, payloads.length === 1 ? 'the payload' : `payload ${nth + 1}`);
    return { transactionId: options.transactionId, ...message };
  });
  let results: readonly PushResult[];
  try {
    results = await queen.queue(queue).push(messages, { signal });
  } catch (error) {
    if (!(error instanceof PushError || error instanceof PushInDoubtError)) throw error;
    results = error.results;
    call.ends(error instanceof PushError ? 'failure' : 'inDoubt');
  }
  out.rows(results, COLUMNS, '');
  for (const { status, error, transactionId } of results) {
    if (status === 'failed') out.warn(`${transactionId} is not stored: ${error}`);
    if (status === 'in_doubt') out.warn(`nobody knows whether ${transactionId} is stored: ${error}`);
  }
}

/** So much is read ahead of what is stored. */
const WINDOW = { messages: 5_000, characters: 32 * 1024 * 1024 };
const FAILURES_SHOWN = 5;

/** What became of the lines of files. */
class Tally {
  queued = 0;
  duplicates = 0;
  buffered = 0;
  failed = 0;
  inDoubt = 0;

  count(status: PushResult['status']): void {
    if (status === 'queued') this.queued++;
    else if (status === 'duplicate') this.duplicates++;
    else if (status === 'buffered') this.buffered++;
    else if (status === 'in_doubt') this.inDoubt++;
    else this.failed++;
  }

  get done(): number {
    return this.queued + this.duplicates + this.buffered + this.failed + this.inDoubt;
  }
}

async function pushFiles(call: Call<Options>, queue: string, sources: readonly Source[]): Promise<void> {
  const { queen, out, options, signal } = call;
  const producer = queen.queue(queue).producer({ batch: options.batch, pending: 2 * WINDOW.messages });
  const tally = new Tally();
  const progress = new Progress(out.progress);
  const began = performance.now();
  const perSecond = () => Math.round(tally.done / Math.max(0.001, (performance.now() - began) / 1000));
  const open = { messages: 0, characters: 0 };
  let wake = () => {};
  let broken: unknown;
  let shown = 0;

  const send = (source: Source, { text, number, end }: Line) => {
    const where = `${source.name}, line ${number}`;
    const message = messageOf(text, options, where);
    open.messages++;
    open.characters += text.length;
    const failed = (error: unknown) => {
      const doubt = error instanceof InDoubtError;
      tally.count(doubt ? 'in_doubt' : 'failed');
      // A message that is not stored leaves the others alone; a broker that is away does not.
      if (!(error instanceof PushError)) broken ??= error;
      if (++shown > FAILURES_SHOWN) return;
      progress.clear();
      const what = doubt ? 'is stored, or not' : 'is not stored';
      out.warn(`${where} ${what}: ${(error as Error).message}`);
    };
    const settled = () => {
      open.messages--;
      open.characters -= text.length;
      wake();
      progress.show(() => {
        const share = source.bytes === null ? bytes(end) : `${Math.floor((end / source.bytes) * 100)} %`;
        return `${source.name}: ${share}, ${count(tally.done, 'message')}, ${perSecond()}/s`;
      });
    };
    producer
      .send(message, { signal })
      .then(({ status }) => tally.count(status), failed)
      .finally(settled);
  };

  try {
    for (const source of sources) {
      for await (const line of linesOf(source)) {
        while (
          broken === undefined &&
          (open.messages >= WINDOW.messages || open.characters >= WINDOW.characters)
        ) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
        if (broken !== undefined || signal.aborted) break;
        send(source, line);
      }
      if (broken !== undefined || signal.aborted) break;
    }
  } catch (error) {
    // What was read before it is stored all the same, and counted.
    broken ??= error;
  }
  // What went wrong with a message was told where it was sent.
  await producer.close().catch(() => {});
  progress.clear();

  const seconds = Math.round(performance.now() - began) / 1000;
  const { queued, duplicates, buffered, failed, inDoubt } = tally;
  out.one({ queue, queued, duplicates, buffered, failed, inDoubt, seconds }, () => {
    const more = [
      duplicates > 0 ? count(duplicates, 'duplicate') : '',
      buffered > 0 ? `${buffered} on the broker's disk for now` : '',
      failed > 0 ? `${failed} not stored` : '',
      inDoubt > 0 ? `${inDoubt} in doubt` : '',
    ].filter((part) => part !== '');
    const also = more.length === 0 ? '' : `, ${more.join(', ')}`;
    return `${count(queued, 'message')} stored in ${queue}${also} (${seconds} s, ${perSecond()}/s)\n`;
  });
  if (signal.aborted) throw new Failure('interrupted', 'interrupted: what follows was not pushed');
  if (broken !== undefined) throw broken;
  if (failed > 0) call.ends('failure');
}

/** @param where the payload stands, for what is said about it */
function messageOf(text: string, options: Options, where: string): NewMessage {
  const value = payload(text, options.text === true, where);
  if (options.envelope === true) return envelopeOf(value, options, where);
  const { partition, key, idKey } = options;
  return {
    data: value,
    partition: key === undefined ? partition : nameAt(value, key, where),
    ...(idKey === undefined ? {} : { transactionId: nameAt(value, idKey, where) }),
  };
}

function envelopeOf(value: unknown, options: Options, where: string): NewMessage {
  const { data, partition, transactionId } = (value ?? {}) as Record<string, unknown>;
  if (data === undefined) throw usage(`${where} has no "data", as --envelope wants it`);
  for (const [name, text] of Object.entries({ partition, transactionId })) {
    if (text !== undefined && typeof text !== 'string') throw usage(`${where}: "${name}" is a text`);
  }
  return {
    data,
    partition: options.partition ?? (partition as string | undefined),
    transactionId: transactionId as string | undefined,
  };
}

/** A text or a number, which names a partition or a message. */
function nameAt(value: unknown, path: string, where: string): string {
  const found = at(value, path);
  const digits = digitsOf(found);
  if (digits !== null) return digits;
  if (typeof found === 'string' && found !== '') return found;
  if (typeof found === 'number') return String(found);
  throw usage(`${where} has no text or number at ${path}`);
}
