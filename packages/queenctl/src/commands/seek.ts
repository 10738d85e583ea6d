import type { SeekTarget } from '@queen-mq/client';
import type { Command } from 'commander';
import { type Call, does } from '../call.ts';
import { usage } from '../exit.ts';
import { confirm } from '../input/confirm.ts';
import { instantOr, integer } from '../input/values.ts';
import type { Column } from '../output/table.ts';
import { count } from '../output/text.ts';
import { type Move, movesOf } from '../seek/moves.ts';
import { examples } from './examples.ts';
import { suggested } from './suggested.ts';

interface Options {
  readonly to?: string;
  readonly offset?: number;
  readonly partition?: string;
  readonly dryRun?: boolean;
  readonly yes?: boolean;
}

const COLUMNS: readonly Column<Move>[] = [
  { title: 'PARTITION', of: ({ partition }) => partition },
  { title: 'FROM', of: ({ from }) => from, right: true },
  { title: 'TO', of: ({ to }) => to, right: true },
  { title: 'SKIPPED', of: ({ skipped }) => skipped, right: true },
  { title: 'AGAIN', of: ({ again }) => again, right: true },
  { title: 'TO COME', of: ({ toCome }) => toCome, right: true },
];
const SHOWN = 20;

export function seekCommand(program: Command): void {
  const command = program
    .command('seek <group> <queue>')
    .description('move a group on a queue: back to get messages again, or forward to skip them')
    .option(
      '--to <where>',
      'beginning, end, or an instant or a time ago (2026-01-31T10:00:00Z, 15m)',
      instantOr('beginning', 'end'),
    )
    .option('--offset <n>', 'to a place in one partition', integer(0))
    .option('-p, --partition <name>', 'only on a partition')
    .option('--dry-run', 'tell what would move, and move nothing')
    .option('-y, --yes', 'do not ask')
    .action(does<Options, [string, string]>(seek));
  examples(command, [
    ['queenctl seek billing orders --to 2h --dry-run', 'what would come again of the last two hours?'],
    ['queenctl seek billing orders --to beginning --yes'],
    ['queenctl seek billing orders --partition customer-7 --offset 1200'],
  ]);
  command.addHelpText(
    'after',
    '\nLeases that the group has there end: acks that are under way are refused. To an instant: to the first batch\nthat was written at or after it.',
  );
}

async function seek(call: Call<Options>, group: string, queue: string): Promise<void> {
  const { queen, out, options, signal } = call;
  const target = targetOf(options);
  const { partition } = options;
  const where = { group, queue, partition };
  const moves = await suggested(queen, queue, movesOf(queen, where, target, signal));
  const sum = (of: (move: Move) => number) => moves.reduce((total, move) => total + of(move), 0);
  const effect = {
    partitions: moves.length,
    skipped: sum(({ skipped }) => skipped),
    again: sum(({ again }) => again),
    toCome: sum(({ toCome }) => toCome),
  };
  if (options.dryRun === true) {
    if (!out.forPeople) return out.one({ ...where, dryRun: true, ...effect, moves }, () => '');
    const moving = moves.filter(({ skipped, again, from }) => skipped > 0 || again > 0 || from === null);
    moving.sort((one, other) => other.skipped + other.again - one.skipped - one.again);
    out.rows(moving.slice(0, SHOWN), COLUMNS, 'nothing would move');
    if (moving.length > SHOWN)
      out.note(`… and ${moving.length - SHOWN} more partitions (all of them with -o json)`);
    out.note(`${sentence(group, queue, effect)}. Nothing was moved`);
    return;
  }
  if (effect.skipped + effect.again > 0) await confirm(sentence(group, queue, effect), options.yes, signal);
  const moved = await queen.groups.seek(group, queue, target, {
    ...(partition === undefined ? {} : { partition }),
    signal,
  });
  out.one(
    { ...where, dryRun: false, ...effect, partitions: moved },
    () => `${group} moved on ${count(moved, 'partition')} of ${queue}\n`,
  );
}

function sentence(
  group: string,
  queue: string,
  { skipped, again, toCome }: Record<'skipped' | 'again' | 'toCome', number>,
): string {
  const what = [
    skipped > 0 ? `skip ${count(skipped, 'message')}` : '',
    again > 0 ? `get ${count(again, 'message')} again` : '',
  ].filter((part) => part !== '');
  const will = what.length === 0 ? 'stay where it is' : what.join(' and ');
  return `${group} would ${will} on ${queue}, with ${toCome} to come`;
}

function targetOf({ to, offset, partition }: Options): SeekTarget {
  if (offset !== undefined) {
    if (to !== undefined) throw usage('--to and --offset exclude each other');
    if (partition === undefined) throw usage('--offset needs --partition: it means nothing on a whole queue');
    return { to: offset };
  }
  if (to === undefined) throw usage('--to or --offset is needed');
  return { to };
}
