import type { Setting } from './kinds.ts';
import { SETTINGS } from './settings.ts';

/** The table of the environment variables as Markdown, one section a group. */
export function settingsAsMarkdown(): string {
  return Object.entries(SETTINGS)
    .map(([group, settings]) => {
      const rows = (Object.values(settings) as Setting<unknown>[]).map(row);
      return `### ${group[0]!.toUpperCase()}${group.slice(1)}\n\n| Variable | Accepts | Default | Meaning |\n|---|---|---|---|\n${rows.join('\n')}\n`;
    })
    .join('\n');
}

function row(setting: Setting<unknown>): string {
  const names = [setting.name, ...setting.aliases].map((name) => `\`${name}\``).join(', else ');
  const fixed = setting.default === null ? '-' : `\`${setting.default}\``;
  const later = setting.later ? ' (no effect yet)' : '';
  const cells = [names, setting.accepts, setting.derived ?? fixed, setting.about + later];
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
}

/** The whole page docs/configuration.md; a test keeps the file equal to it. */
export function configurationPage(): string {
  return `# Configuration

Everything is set by environment variables. An empty variable counts as not set. A value that does not fit stops
the start with a line that names the variable and what it may be; an unknown \`QUEEN_\` name draws a warning.
Booleans are \`true\`/\`false\`, \`1\`/\`0\`, \`yes\`/\`no\` or \`on\`/\`off\`, in any case.

This page is rendered from the table that the broker reads: \`npm run docs\`.

${settingsAsMarkdown()}`;
}

if (import.meta.main) process.stdout.write(configurationPage());
