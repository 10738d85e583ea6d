import { execFileSync } from 'node:child_process';
import { copyFileSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Makes the package that is published, in `dist` or the directory that is given: compiled modules with their types,
 * and a package.json that points at them. The repository itself runs the sources.
 *
 *   npm run build -w packages/client
 */
const HERE = import.meta.dirname;

export function build(to: string): void {
  rmSync(to, { recursive: true, force: true });
  const tsc = join(HERE, '../../node_modules/.bin/tsc');
  execFileSync(tsc, ['-p', join(HERE, 'tsconfig.build.json'), '--outDir', to], { stdio: 'inherit' });
  // The compiler rewrites imports in the modules, not in their declarations.
  for (const file of globSync('**/*.d.ts', { cwd: to })) {
    const path = join(to, file);
    const text = readFileSync(path, 'utf8');
    writeFileSync(path, text.replace(/(from |import\()(['"])(\.[^'"]*)\.ts\2/g, '$1$2$3.js$2'));
  }
  const {
    private: _,
    scripts: __,
    ...manifest
  } = JSON.parse(readFileSync(join(HERE, 'package.json'), 'utf8')) as Record<string, unknown>;
  const exports = { '.': { types: './index.d.ts', default: './index.js' } };
  writeFileSync(join(to, 'package.json'), `${JSON.stringify({ ...manifest, exports }, null, 2)}\n`);
  copyFileSync(join(HERE, 'README.md'), join(to, 'README.md'));
  copyFileSync(join(HERE, '../../LICENSE'), join(to, 'LICENSE'));
}

if (import.meta.main) build(process.argv[2] ?? join(HERE, 'dist'));
