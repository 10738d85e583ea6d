import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { broker } from '../setup.ts';

/**
 * The examples of the README, each as it stands there: it has to be sound to the compiler, run to its end against a broker, and
 * print what its comments of the form `// → text` say, in that order.
 */
const HERE = import.meta.dirname;
const README = readFileSync(join(HERE, '../../README.md'), 'utf8');

const examples = [...README.matchAll(/^```ts\n(.*?)^```/gms)].map(([, text]) => text!);

test('every example of the README does what it says', async (t) => {
  assert.ok(examples.length >= 10, `${examples.length} examples`);
  const { url } = await broker();
  mkdirSync(join(HERE, '../../.tmp'), { recursive: true });
  const directory = mkdtempSync(join(HERE, '../../.tmp/readme-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const files = examples.map((text, nth) => {
    const path = join(directory, `example${nth + 1}.ts`);
    const code = text
      .replaceAll("'@queen-mq/client'", "'../../src/index.ts'")
      .replaceAll(/http:\/\/(127\.0\.0\.1:6632|queen-[12]:6632)/g, url);
    writeFileSync(path, `${code}\nexport {};\n`);
    return path;
  });
  const root = join(HERE, '../../../..');
  writeFileSync(
    join(directory, 'tsconfig.json'),
    JSON.stringify({ extends: join(root, 'tsconfig.json'), include: ['*.ts'] }),
  );
  execFileSync(join(root, 'node_modules/.bin/tsc'), ['-p', directory], { stdio: 'inherit' });

  for (const [nth, path] of files.entries()) {
    const printed: string[] = [];
    const mock = t.mock.method(console, 'log', (...values: unknown[]) => void printed.push(values.join(' ')));
    try {
      await import(path);
    } catch (error) {
      throw new Error(`example ${nth + 1} failed:\n${examples[nth]}`, { cause: error });
    } finally {
      mock.mock.restore();
    }
    const promised = [...examples[nth]!.matchAll(/\/\/ → (.*)$/gm)].map(([, text]) => text!.trim());
    assert.deepEqual(printed, promised, `example ${nth + 1}:\n${examples[nth]}`);
  }
});
