import type { Command } from 'commander';

/** What can be typed, place by place, and the options that are the same everywhere. */
export interface Tree {
  readonly places: readonly Place[];
  readonly globals: readonly CompletedOption[];
}

/** One place of the tree of commands. */
export interface Place {
  /** Names of commands on the way: `/queues/list`; the top is ''. */
  readonly path: string;
  /** The path with every name that its last command has. */
  readonly spellings: readonly string[];
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly CompletedOption[];
  /** Words that an argument may be. */
  readonly choices: readonly string[];
  /** What its arguments name, to be asked of a broker; null: nothing that is known. */
  readonly names: Names | null;
}

export interface CompletedOption {
  readonly short: string | null;
  readonly long: string;
  readonly description: string;
  readonly takesValue: boolean;
  readonly choices: readonly string[];
  readonly names: Names | null;
  readonly isPath: boolean;
}

export const NAMES = ['queue', 'group', 'connector', 'namespace'] as const;
export type Names = (typeof NAMES)[number];

/** The tree of a program, the top first. What is hidden is left out. */
export function treeOf(program: Command): Tree {
  const places: Place[] = [];
  const visit = (command: Command, parent: string, path: string) => {
    const help = command.createHelp();
    const visible = help.visibleCommands(command).filter((sub) => sub.name() !== 'help');
    const args = command.registeredArguments;
    places.push({
      path,
      spellings: [path, ...command.aliases().map((alias) => `${parent}/${alias}`)],
      commands: visible.map((sub) => ({ name: sub.name(), description: brief(sub.description()) })),
      options: command === program ? [] : optionsOf(command),
      choices: args.flatMap((argument) => argument.argChoices ?? []),
      names: args.map((argument) => namesOf(argument.name())).find((each) => each !== null) ?? null,
    });
    for (const sub of visible) visit(sub, path, `${path}/${sub.name()}`);
  };
  visit(program, '', '');
  return { places, globals: optionsOf(program) };
}

function optionsOf(command: Command): CompletedOption[] {
  return command
    .createHelp()
    .visibleOptions(command)
    .filter((option) => command.parent === null || option.long !== '--help')
    .map((option) => ({
      short: option.short ?? null,
      long: option.long ?? option.short!,
      description: brief(option.description),
      takesValue: option.required || option.optional,
      choices: option.argChoices ?? [],
      names: option.required ? namesOf(option.long?.replace(/^--(to-)?/, '') ?? '') : null,
      isPath: option.long?.endsWith('file') === true,
    }));
}

function namesOf(argument: string): Names | null {
  const singular = argument.replace(/s$/, '');
  return NAMES.find((name) => name === singular) ?? null;
}

/** What stands before the details. */
function brief(text: string): string {
  return text.replace(/[;:(].*$/s, '').trim();
}
