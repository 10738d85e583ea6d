import { Argument, type Command } from 'commander';
import { does } from '../call.ts';
import { bash } from '../completion/bash.ts';
import { fish } from '../completion/fish.ts';
import { NAMES, type Names, treeOf } from '../completion/tree.ts';
import { zsh } from '../completion/zsh.ts';
import { examples } from './examples.ts';

const SHELLS = { bash, zsh, fish } as const;

/** What completes names may take, ms: somebody has pressed a key. */
const NAMES_TIMEOUT_MS = 2_000;

export function completionCommand(program: Command): void {
  const command = program
    .command('completion')
    .description('a script that completes commands, options and names in a shell')
    .addArgument(new Argument('<shell>').choices(Object.keys(SHELLS)))
    .action(
      does<object, [keyof typeof SHELLS]>(async ({ out }, shell) => {
        out.write(SHELLS[shell](treeOf(program)));
      }),
    );
  examples(command, [
    ['source <(queenctl completion bash)'],
    ['queenctl completion zsh > "$HOME/.zfunc/_queenctl"', 'a directory in fpath'],
    ['queenctl completion fish > ~/.config/fish/completions/queenctl.fish'],
  ]);

  program
    .command('__names', { hidden: true })
    .addArgument(new Argument('<what>').choices(NAMES))
    .action(
      does<object, [Names]>(async (call, what) => {
        const queen = call.client({
          retry: { retries: 0, overloadedRetries: 0 },
          timeoutMs: NAMES_TIMEOUT_MS,
        });
        const lists: Record<Names, () => Promise<string[]>> = {
          queue: async () => (await queen.admin.queues()).map(({ name }) => name),
          group: async () => (await queen.groups.list()).map(({ name }) => name),
          connector: async () => (await queen.connectors.list()).map(({ name }) => name),
          namespace: async () => (await queen.admin.kvNamespaces()).map(({ namespace }) => namespace),
        };
        // A name with a blank would be two words to a shell.
        const names = [...new Set(await lists[what]())].filter((name) => /^\S+$/.test(name));
        call.out.write(names.map((name) => `${name}\n`).join(''));
      }),
    );
}
