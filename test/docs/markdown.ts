/** What the tests of the documents read out of them. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const ROOT = join(import.meta.dirname, '../..');

/** Every Markdown file of the repository, as a path from its root. */
export function documents(): string[] {
  return globSync('**/*.md', {
    cwd: ROOT,
    exclude: ['**/node_modules/**', '**/dist/**', '**/.tmp/**'],
  }).sort();
}

export function textOf(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

/** The text without its fenced blocks, whose lines are kept empty so that line numbers stay. */
export function prose(text: string): string {
  return text.replaceAll(/^(```+)[^\n]*\n(.*?)^\1$/gms, (block) => block.replaceAll(/[^\n]/g, ''));
}

/** The fenced blocks of one language, in order. */
export function blocks(text: string, language: string): string[] {
  return [...text.matchAll(/^(```+)(\w*)\n(.*?)^\1$/gms)]
    .filter(([, , named]) => named === language)
    .map(([, , , body]) => body!);
}

/** The anchors of a document's headings, by the rules of GitHub: a repeated one gets a number. */
export function anchors(text: string): Set<string> {
  const seen = new Map<string, number>();
  const found = new Set<string>();
  for (const [, heading] of prose(text).matchAll(/^#{1,6} +(.+?) *#*$/gm)) {
    const slug = heading!
      .replaceAll(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\p{M} _-]/gu, '')
      .replaceAll(' ', '-');
    const times = seen.get(slug) ?? 0;
    seen.set(slug, times + 1);
    found.add(times === 0 ? slug : `${slug}-${times}`);
  }
  return found;
}

export interface Link {
  readonly target: string;
  readonly line: number;
}

/** Links and images outside of code. */
export function links(text: string): Link[] {
  const bare = prose(text).replaceAll(/`[^`\n]*`/g, (code) => ' '.repeat(code.length));
  return [...bare.matchAll(/\]\(\s*<?([^)>\s]+)>?(?:\s+"[^"]*")?\s*\)/g)].map(({ 1: target, index }) => ({
    target: target!,
    line: bare.slice(0, index).split('\n').length,
  }));
}
