import type { Command } from 'commander';
import { shownOf } from '../apply/connector_document.ts';
import { unusual } from '../apply/queue_options.ts';
import { type Call, does } from '../call.ts';
import { yamlOf } from '../output/yaml.ts';
import { examples } from './examples.ts';

export function exportCommand(program: Command): void {
  const command = program
    .command('export [queues...]')
    .description(
      'manifests of what is there, for apply: the queues that are named, or all queues and connectors',
    )
    .action(does<object, [string[]]>(exportAll));
  examples(command, [['queenctl export > queen.yaml'], ['queenctl export orders']]);
  command.addHelpText(
    'after',
    '\nOptions that are as usual are left out. Passwords are never shown: they are not in it.',
  );
}

async function exportAll({ queen, out, signal }: Call, names: readonly string[]): Promise<void> {
  const wanted = names.length > 0 ? names : (await queen.admin.queues({ signal })).map(({ name }) => name);
  const manifests: { kind: string; name: string; spec: object }[] = [];
  for (const name of wanted) {
    const { queue } = await queen.queue(name).partitions({ limit: 1, signal });
    manifests.push({ kind: 'Queue', name, spec: unusual(queue.options) });
  }
  if (names.length === 0) {
    for (const connector of await queen.connectors.list({ signal }))
      manifests.push({ kind: 'Connector', name: connector.name, spec: shownOf(connector) });
  }
  if (out.format === 'json') out.one(manifests, () => '');
  else out.write(manifests.map((manifest) => yamlOf(manifest)).join('---\n'));
}
