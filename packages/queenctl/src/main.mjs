#!/usr/bin/env node
// The entry. It parses on every Node that is around. In a working copy the program is TypeScript, which the Node that
// `npm ci` installed can run, whatever is on the PATH; a package that was built is JavaScript.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import module from 'node:module';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const sources = existsSync(join(here, 'main.ts'));
const [major, minor] = process.versions.node.split('.').map(Number);
const enough = sources ? major >= 24 : major > 22 || (major === 22 && minor >= 12);

if (enough) {
  // A start takes a third of the time when the modules are compiled already. Where nothing can be written it does without.
  module.enableCompileCache?.(join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'queenctl'));
  const { main } = await import(sources ? './main.ts' : './main.js');
  await main(process.argv.slice(2));
} else {
  const bundled = sources ? join(here, '../../../node_modules/.bin/node') : null;
  if (bundled !== null && existsSync(bundled)) rerun(bundled);
  else {
    const wanted = sources ? 'Node 24 or newer (npm ci installs one)' : 'Node 22.12 or newer';
    console.error(`queenctl: this is Node ${process.version}, and ${wanted} is needed`);
    process.exitCode = 1;
  }
}

/** The same command line under another Node, which gets the signals and whose end is ours. */
function rerun(node) {
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], { stdio: 'inherit' });
  // A terminal sends SIGINT to both, and the child decides when it is over.
  process.on('SIGINT', () => {});
  for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.on('error', (error) => {
    console.error(`queenctl: ${node} does not run: ${error.message}`);
    process.exitCode = 1;
  });
  child.on('exit', (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}
