import { Argument, type Command } from 'commander';
import { type Call, does } from '../call.ts';
import { confirm } from '../input/confirm.ts';
import { examples } from './examples.ts';

const WHAT = ['push', 'pop', 'kv', 'timers-schedule', 'timers-fire'] as const;
type What = (typeof WHAT)[number];

/** What it means to switch something off. */
const MEANING: Readonly<Record<What, string>> = {
  push: 'pushes will wait on the disks of the brokers',
  pop: 'every pop will get nothing',
  kv: 'keys can neither be read nor written',
  'timers-schedule': 'no timer can be scheduled',
  'timers-fire': 'no timer will fire',
};

export function maintenanceCommands(program: Command): void {
  const command = program
    .command('maintenance')
    .description('switches for all brokers, and for good: show, pause, resume');
  examples(command, [
    ['queenctl maintenance show'],
    ['queenctl maintenance pause push --yes', 'pushes wait on disk'],
    ['queenctl maintenance resume push'],
  ]);

  command.command('show').description('what is paused').action(does(show));
  command
    .command('pause')
    .description('pause pushes, pops, keys or timers')
    .addArgument(new Argument('<what>', 'what to pause').choices(WHAT))
    .option('-y, --yes', 'do not ask')
    .action(
      does<{ yes?: boolean }, [What]>(async (call, what) => {
        await confirm(`On all brokers ${MEANING[what]}`, call.options.yes, call.signal);
        await set(call, what, true);
      }),
    );
  command
    .command('resume')
    .description('let them go on')
    .addArgument(new Argument('<what>', 'what goes on').choices(WHAT))
    .action(does<object, [What]>((call, what) => set(call, what, false)));
}

async function set(call: Call, what: What, paused: boolean): Promise<void> {
  const { queen, signal } = call;
  const { admin } = queen;
  if (what === 'push') await admin.setMaintenance(paused, { signal });
  else if (what === 'pop') await admin.setPopMaintenance(paused, { signal });
  else {
    const name = ({ kv: 'kv', 'timers-schedule': 'timersSchedule', 'timers-fire': 'timersFire' } as const)[
      what
    ];
    await admin.setSwitches({ [name]: !paused }, { signal });
  }
  await show(call);
}

async function show({ queen, out, signal }: Call): Promise<void> {
  const [maintenance, switches] = await Promise.all([
    queen.admin.maintenance({ signal }),
    queen.admin.switches({ signal }),
  ]);
  const paused: Record<What, boolean> = {
    push: maintenance.maintenanceMode,
    pop: maintenance.popMaintenanceMode === true,
    kv: !switches.kvEnabled,
    'timers-schedule': !switches.timersScheduleEnabled,
    'timers-fire': !switches.timersFireEnabled,
  };
  const { bufferedMessages } = maintenance;
  out.facts({ paused, bufferedMessages }, [
    ...WHAT.map((what) => [what, paused[what] ? 'paused' : 'on'] as const),
    ['waiting on disk', bufferedMessages],
  ]);
}
