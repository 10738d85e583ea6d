import { randomBytes } from 'node:crypto';
import type { Command } from 'commander';
import { optionsOf } from '../apply/queue_options.ts';
import { Bench, type BenchResult } from '../bench/run.ts';
import { type Call, does } from '../call.ts';
import { usage } from '../exit.ts';
import { durationMs, integer, several, size } from '../input/values.ts';
import { Progress } from '../output/progress.ts';
import { facts } from '../output/table.ts';
import { duration } from '../output/text.ts';
import { examples } from './examples.ts';

interface Options {
  readonly messages?: number;
  readonly for?: number;
  readonly size: number;
  readonly partitions: number;
  readonly producers: number;
  readonly consumers: number;
  readonly batch: number;
  readonly option?: string[];
  readonly keep?: boolean;
}

const MESSAGES = 100_000;
const HOUR_MS = 3_600_000;

export function benchCommand(program: Command): void {
  const command = program
    .command('bench')
    .description(
      'measure pushes and deliveries against these brokers, in a queue of its own that is deleted at the end',
    )
    .option('--messages <n>', `end after so many (default: ${MESSAGES}, or none with --for)`, integer(1))
    .option('--for <time>', 'end after so long, up to 1h', durationMs)
    .option('--size <bytes>', 'of a payload', size, 256)
    .option('--partitions <n>', 'how many', integer(1, 100_000), 16)
    .option('--producers <n>', 'requests under way at a time', integer(1, 1_000), 4)
    .option('--consumers <n>', 'the same, of pops; 0: push only', integer(0, 1_000), 4)
    .option('--batch <n>', 'messages in a request', integer(1, 10_000), 100)
    .option('--option <name=value>', 'option of the queue; may be given again', several)
    .option('--keep', 'do not delete the queue')
    .action(does<Options>(bench));
  examples(command, [
    ['queenctl bench --for 30s --size 1KiB'],
    ['queenctl bench --batch 1 --producers 32 --consumers 0 -o json', 'single pushes'],
  ]);
}

async function bench(call: Call<Options>): Promise<void> {
  const { out, options, signal } = call;
  const { producers, consumers, partitions, batch } = options;
  if (options.for !== undefined && (options.for < 1 || options.for > HOUR_MS))
    throw usage('--for is from 1ms to 1h');
  const messages = options.messages ?? (options.for === undefined ? MESSAGES : Number.MAX_SAFE_INTEGER);
  // Digits do not matter here, and to keep them costs time.
  const queen = call.client({ parse: JSON.parse });
  const queue = `queenctl-bench-${randomBytes(4).toString('hex')}`;
  const setup = { queue, partitions, producers, consumers, batch, size: options.size };
  const given = optionsOf(options.option ?? []);
  await queen.queue(queue).configure(given, { signal });
  const run = new Bench(queen, { ...setup, options: given, messages, forMs: options.for ?? HOUR_MS });
  const progress = new Progress(out.progress);
  const drawing = setInterval(() => {
    progress.show(() => `${run.pushed} pushed, ${run.consumed} consumed`);
  }, 200);
  let result: BenchResult;
  try {
    result = await run.run(signal);
  } finally {
    clearInterval(drawing);
    progress.clear();
    if (options.keep !== true) await queen.queue(queue).delete();
  }
  out.one({ ...setup, ...result }, () => report(result, setup));
}

type Setup = { size: number; partitions: number; producers: number; consumers: number; batch: number };

function report({ pushed, consumed }: BenchResult, setup: Setup): string {
  const { size: bytes, partitions, producers, consumers, batch } = setup;
  const lines: [string, string][] = [
    [
      'with',
      `${bytes} B, ${partitions} partitions, ${producers} producers, ${consumers} consumers, batches of ${batch}`,
    ],
    [
      'pushed',
      `${pushed.messages} in ${duration(pushed.seconds)}: ${pushed.perSecond}/s, ${pushed.mibPerSecond} MiB/s`,
    ],
    ['a push took', spread(pushed.request)],
  ];
  if (consumed !== null) {
    const again = consumed.again === 0 ? '' : `, ${consumed.again} of them again`;
    lines.push([
      'consumed',
      `${consumed.messages} in ${duration(consumed.seconds)}: ${consumed.perSecond}/s${again}`,
    ]);
    lines.push(['from push to pop', spread(consumed.endToEnd)]);
  }
  return facts(lines);
}

function spread({ p50Ms, p95Ms, p99Ms, maxMs }: BenchResult['pushed']['request']): string {
  return `${p50Ms} ms for half, ${p95Ms} ms for 95 %, ${p99Ms} ms for 99 %, ${maxMs} ms at most`;
}
