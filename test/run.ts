import { execFileSync } from 'node:child_process';
import { appendFileSync, globSync } from 'node:fs';
import { join, relative } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { COMPILED } from './kit/broker.ts';
import { haveBrowser } from './kit/browser.ts';
import { SHARED_SERVER, startTestServer } from './kit/server.ts';

/**
 * Runs the tests, one process a file:
 *
 *   npm test                 everything but the long ones
 *   npm test -- push wake    files whose path holds one of the words
 *   npm test -- --soak       the long ones (*.soak.test.ts) as well
 *   npm run test:browser     those that need a browser (*.browser.test.ts), and only those
 *
 * One PostgreSQL serves the whole run. The last line counts the tests; the exit code is 1 when one failed or
 * when there was none to run. The file that QUEEN_TEST_COUNTS names, if it does, gets a line "passed failed".
 */
const ROOT = join(import.meta.dirname, '..');
const BROWSER_TEST = /\.browser(\.soak)?\.test\.ts$/;
const FILES = ['packages/*/test/**/*.test.ts', 'test/**/*.test.ts'];
/** Tests start brokers and servers of their own, and wait for them half of the time: three at a time keep two cores busy. */
const CONCURRENCY = 3;
/** Files that a run names for their time, so that it does not grow unseen. */
const SLOWEST = 25;
/** A test that takes longer is cancelled and counted as failed, and its file is ended. */
const TEST_LIMIT_MS = { short: 5 * 60_000, soak: 3 * 60 * 60_000 };

async function main(args: readonly string[]): Promise<number> {
  const soak = args.includes('--soak');
  const browser = args.includes('--browser');
  const words = args.filter((word) => !word.startsWith('--'));
  const asked = globSync(FILES, { cwd: ROOT, exclude: ['**/node_modules/**'] })
    .filter((file) => soak || !file.endsWith('.soak.test.ts'))
    .filter((file) => words.length === 0 || words.some((word) => file.includes(word)))
    .sort();
  const inBrowser = asked.filter((file) => BROWSER_TEST.test(file));
  const files = (browser ? inBrowser : asked.filter((file) => !BROWSER_TEST.test(file))).map((file) =>
    join(ROOT, file),
  );
  if (browser) {
    await haveBrowser();
    execFileSync(process.execPath, [join(ROOT, 'packages/dashboard/build.mjs')], { stdio: 'inherit' });
  }

  process.env.NODE_COMPILE_CACHE ??= COMPILED;
  const shared = await startTestServer();
  process.env[SHARED_SERVER] = JSON.stringify(shared.server);
  const counts = await runFiles(files, soak ? TEST_LIMIT_MS.soak : TEST_LIMIT_MS.short).finally(shared.stop);
  if (!browser && inBrowser.length > 0) {
    console.log(`left out: ${inBrowser.length} files that need a browser (npm run test:browser)`);
  }
  const sum = process.env.QUEEN_TEST_COUNTS;
  if (sum !== undefined) appendFileSync(sum, `${counts.passed} ${counts.failed}\n`);
  console.log(`${counts.passed} passed, ${counts.failed} failed`);
  return counts.failed === 0 && counts.passed > 0 ? 0 : 1;
}

function runFiles(files: string[], timeout: number): Promise<{ passed: number; failed: number }> {
  return new Promise((resolve, reject) => {
    const total = { passed: 0, failed: 0 };
    if (files.length === 0) return resolve(total);
    const events = run({
      files,
      concurrency: CONCURRENCY,
      timeout,
      cwd: ROOT,
      execArgv: ['--test-force-exit'],
    });
    let ended = false;
    const times: { file: string; seconds: number }[] = [];
    events.on('test:summary', ({ file, counts, success, duration_ms }) => {
      // One more of these comes for each file; the one of the run names none.
      if (file !== undefined) {
        times.push({ file: relative(ROOT, file), seconds: Math.round(duration_ms / 1000) });
        return;
      }
      ended = true;
      total.passed = counts.passed;
      total.failed = counts.tests - counts.passed - counts.skipped - counts.todo;
      if (!success && total.failed === 0) total.failed = 1;
    });
    const report = events.compose(spec);
    report.pipe(process.stdout, { end: false });
    report.on('error', reject);
    report.on('end', () => {
      times.sort((one, other) => other.seconds - one.seconds);
      for (const { file, seconds } of times.slice(0, SLOWEST)) console.log(`${seconds} s in ${file}`);
      if (ended) resolve(total);
      else reject(new Error('the run has no summary'));
    });
  });
}

process.exitCode = await main(process.argv.slice(2));
