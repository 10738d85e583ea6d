import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { EXIT } from '../../src/exit.ts';
import { directory, ended, environment, MAIN } from '../run.ts';

/**
 * The examples of the README, as they stand there: each block runs in a shell to its end, and prints what its comments of
 * the form `# → text` say, in that order. Blanks count as one, and `…` stands for anything.
 */
const README = readFileSync(join(import.meta.dirname, '../../README.md'), 'utf8');
const blocks = [...README.matchAll(/^```sh\n(.*?)^```/gms)].map(([, text]) => text!);

test('every example of the README does what it says', async () => {
  assert.ok(blocks.length >= 9, `${blocks.length} blocks`);
  const left = [...blocks];
  const lane = async () => {
    for (let block = left.shift(); block !== undefined; block = left.shift()) await check(block);
  };
  await Promise.all([lane(), lane()]);
});

async function check(block: string): Promise<void> {
  const script = `set -euo pipefail\nqueenctl() { "${process.execPath}" "${MAIN}" "$@"; }\n${block.replaceAll('/tmp/', `${directory}/`)}`;
  const child = spawn('bash', ['-c', script], {
    env: await environment(),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const { code, out, err } = await ended(child);
  assert.equal(code, 0, `${block}\n${out}${err}`);
  let rest = out;
  for (const [, promised] of block.matchAll(/^# → (.*)$/gm)) {
    const found = patternOf(promised!).exec(rest);
    assert.ok(found, `${block}\nno "${promised}" in\n${rest}`);
    rest = rest.slice(found.index + found[0].length);
  }
}

test('the README has every exit code', () => {
  for (const { code } of Object.values(EXIT)) assert.match(README, new RegExp(`^\\| ${code} \\|`, 'm'));
});

function patternOf(promised: string): RegExp {
  const words = promised.trim().split(/ +/);
  const parts = words.map((word) =>
    word
      .split('…')
      .map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
      .join('.*'),
  );
  return new RegExp(`^ *${parts.join(' *')} *$`, 'm');
}
