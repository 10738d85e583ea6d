/**
 * The random histories are worth something if they find it when a rule of the snapshot is missing: each rule is taken out of
 * a copy of the sources in turn, and then some history must complain.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { complaintOf, type SnapshotClass } from './world.ts';

const SOURCES = join(import.meta.dirname, '../../../src/connectors/postgres/source/snapshot');
const HISTORIES_MAX = 4_000;

/** `seed`: of a history that is known to complain; tried first, since some of them are rare. */
const RULES: [rule: string, file: string, text: string, without: string, seed?: number][] = [
  [
    'rows that changed between the markers are dropped',
    'window.ts',
    'return inside || !visibility.seesLow(touch.xid)',
    'return !visibility.seesLow(touch.xid)',
  ],
  [
    'rows that changed before, unseen by the chunk, are dropped',
    'window.ts',
    'return inside || !visibility.seesLow(touch.xid)',
    'return inside',
  ],
  [
    'a truncate drops all',
    'window.ts',
    'if (truncated !== null && this.#mayBeNewer(truncated, visibility)) {',
    'if (truncated === undefined) {',
    817,
  ],
  ['a row that is gone by a truncate is not filled', 'window.ts', 'touch.at > truncated.at', 'true', 2385],
  ['what a later chunk may not see is kept', 'window.ts', 'if (visibility.seesLow(touch.xid) && ', 'if ('],
  [
    'changes between the markers are kept in any case',
    'window.ts',
    'if (this.#openedAt === null && this.#seen',
    'if (this.#seen',
  ],
  [
    'too many keys between the markers',
    'window.ts',
    '#overflow(): void {\n    if (this.#openedAt !== null) this.#spoiled = true;',
    '#overflow(): void {',
  ],
  [
    'transactions without their keys',
    'window.ts',
    'for (const xid of this.#wide) if (!visibility.seesLow(xid)) return false;',
    '',
  ],
  [
    'a whole row has nothing to fill',
    'window.ts',
    'gone ? null : before.missing',
    'gone || before.missing.size === 0 ? null : before.missing',
  ],
  ['only what no change has carried is filled', 'window.ts', 'if (!before.has(column))', 'if (false)', 292],
  ['fills', 'chunk_rows.ts', '|| fates[i]!.size > 0', ''],
  ['the old key of a moved row', 'touches.ts', 'if (moved) window.removed', 'if (false) window.removed', 109],
  ['deletes', 'touches.ts', 'window.removed(name, xid, keyText(change.before, at.key));', ''],
  ['inserts', 'touches.ts', 'window.wrote(name, xid, keyText(change.after, at.key), NO_NAMES);', ''],
  ['what was done when the stream began', 'base.ts', 'visibility.covers(this.#sees) &&', ''],
  ['what an earlier owner delivered', 'base.ts', 'this.#former.every((xid) => visibility.sees(xid))', 'true'],
  ['what this owner delivers', 'base.ts', 'this.#own.add(xid)', 'false'],
  [
    'with a slot that was found, all has to end first',
    'snapshot.ts',
    'if (visibility.xmin <= this.#settlesAt!) return this.#waitFor(visibility);',
    '',
  ],
  ['markers of an earlier owner', 'snapshot.ts', 'randomInt(2 ** 47)', '0', 294],
];

let directory: string;
before(() => {
  directory = mkdtempSync(join(tmpdir(), 'queen-rules-'));
});
after(() => rmSync(directory, { recursive: true, force: true }));

/** The module of a copy in which a text of one file is another one. */
async function mutated(file: string, text: string, without: string): Promise<SnapshotClass> {
  const copy = mkdtempSync(join(directory, 'copy-'));
  for (const name of readdirSync(SOURCES)) {
    let source = readFileSync(join(SOURCES, name), 'utf8');
    if (name === file) {
      assert.ok(source.includes(text), `${file} has "${text}"`);
      source = source.replace(text, without);
    }
    source = source.replaceAll(/from '(\.\.\/[^']+)'/g, (_, path: string) => {
      return `from '${pathToFileURL(join(SOURCES, path)).href}'`;
    });
    writeFileSync(join(copy, name), source);
  }
  return (await import(pathToFileURL(join(copy, 'snapshot.ts')).href)).Snapshot;
}

for (const [rule, file, text, without, known = 0] of RULES) {
  test(`missed when it is gone: ${rule}`, async () => {
    const Snapshot = await mutated(file, text, without);
    for (let i = 0; i < HISTORIES_MAX; i++) {
      const seed = i === 0 ? known : i - 1;
      if ((await complaintOf({ seed, Snapshot })) !== null) return;
    }
    assert.fail(`${HISTORIES_MAX} histories had nothing to complain of`);
  });
}
