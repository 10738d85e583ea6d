import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { anchors, documents, links, ROOT, textOf } from './markdown.ts';

/** What is wrong with a document's links into the repository; those to the web are not followed. */
function faults(path: string, text: string): string[] {
  return links(text).flatMap(({ target, line }) => {
    if (/^[a-z][a-z0-9+.-]*:/i.test(target)) return [];
    const [file = '', anchor] = target.split('#');
    const to = file === '' ? path : join(dirname(path), decodeURIComponent(file));
    const at = `${path}:${line}: ${target}`;
    if (to !== path && (to.startsWith('..') || !existsSync(join(ROOT, to))))
      return [`${at}: there is no ${to}`];
    if (anchor === undefined) return [];
    if (!to.endsWith('.md')) return [`${at}: an anchor into a file that has none`];
    const there = to === path ? text : textOf(to);
    return anchors(there).has(anchor) ? [] : [`${at}: ${to} has no heading "${anchor}"`];
  });
}

test('every link in the documents leads somewhere', () => {
  const paths = documents();
  assert.ok(paths.includes('README.md') && paths.some((path) => path.startsWith('docs/')), paths.join(' '));
  assert.deepEqual(
    paths.flatMap((path) => faults(path, textOf(path))),
    [],
  );
});

test('a link that leads nowhere is found', () => {
  const text = [
    '# A `b` (c), d!',
    '# A b c d',
    '[good](#a-b-c-d) [good](#a-b-c-d-1) [good](../docs/http.md#push) [far](https://example.org/none)',
    '```',
    '[not](a-link.md)',
    '# not-a-heading',
    '```',
    '`[not](a-link.md)` [bad](none.md) ![bad](#not-a-heading)',
    '[bad](../LICENSE#terms) [bad](../../outside.md)',
  ].join('\n');
  assert.deepEqual(faults('docs/made-up.md', text), [
    'docs/made-up.md:8: none.md: there is no docs/none.md',
    'docs/made-up.md:8: #not-a-heading: docs/made-up.md has no heading "not-a-heading"',
    'docs/made-up.md:9: ../LICENSE#terms: an anchor into a file that has none',
    'docs/made-up.md:9: ../../outside.md: there is no ../outside.md',
  ]);
});
