import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import { addGlobalOptions } from './call.ts';
import { ackCommands } from './commands/ack.ts';
import { applyCommand } from './commands/apply.ts';
import { benchCommand } from './commands/bench.ts';
import { completionCommand } from './commands/completion.ts';
import { connectorCommands } from './commands/connectors.ts';
import { dlqCommands } from './commands/dlq.ts';
import { examples } from './commands/examples.ts';
import { exportCommand } from './commands/export.ts';
import { groupCommands } from './commands/groups.ts';
import { kvCommands } from './commands/kv.ts';
import { maintenanceCommands } from './commands/maintenance.ts';
import { messageCommands } from './commands/messages.ts';
import { partitionCommands } from './commands/partitions.ts';
import { popCommand } from './commands/pop.ts';
import { pushCommand } from './commands/push.ts';
import { queueCommands } from './commands/queues.ts';
import { seekCommand } from './commands/seek.ts';
import { statusCommands } from './commands/status.ts';
import { tailCommand } from './commands/tail.ts';
import { timerCommands } from './commands/timers.ts';
import { EXIT } from './exit.ts';

/** The tree of commands. Nothing is sent before one of them is run. */
export function programOf(): Command {
  const program = new Command('queenctl')
    .description('The command line of Queen, a partitioned message queue.')
    .version(versionOf(), '-V, --version')
    .exitOverride()
    .showHelpAfterError('(see --help)')
    .configureHelp({ showGlobalOptions: true })
    .helpCommand(true);
  addGlobalOptions(program);

  program.commandsGroup('Messages:');
  pushCommand(program);
  popCommand(program);
  tailCommand(program);
  ackCommands(program);

  messageCommands(program);

  program.commandsGroup('Queues and groups:');
  queueCommands(program);
  partitionCommands(program);
  groupCommands(program);
  seekCommand(program);
  dlqCommands(program);

  program.commandsGroup('Keys and timers:');
  kvCommands(program);
  timerCommands(program);

  program.commandsGroup('Connectors and manifests:');
  connectorCommands(program);
  applyCommand(program);
  exportCommand(program);

  program.commandsGroup('The installation:');
  statusCommands(program);
  maintenanceCommands(program);
  benchCommand(program);
  completionCommand(program);

  examples(program, [
    ['queenctl push orders \'{"total": 12.50}\' --partition customer-7', 'a message'],
    ['queenctl tail orders', 'messages as they come, without taking them'],
    ['queenctl queues list', 'queues and what waits in them'],
    ["queenctl groups list -o json | jq '.[] | select(.totalLag > 1000)'", 'groups that are behind'],
  ]);
  program.addHelpText('after', `\nExit codes:\n${exitCodes()}`);
  return program;
}

function exitCodes(): string {
  return Object.values(EXIT)
    .map(({ code, meaning }) => `  ${String(code).padStart(3)}  ${meaning}`)
    .join('\n');
}

function versionOf(): string {
  const manifest = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(manifest) as { version: string }).version;
}
