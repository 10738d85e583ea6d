import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build as buildClient } from '../client/build.ts';

/**
 * Makes the package that is published, in `dist` or the directory that is given: compiled modules beside the command, as they
 * lie here, and a package.json. The client library stays a dependency. The repository itself runs the sources.
 *
 *   npm run build -w packages/queenctl
 */
const HERE = import.meta.dirname;

/** @param client where the package of the client was built; default: it is built for this */
export function build(to: string, client?: string): void {
  rmSync(to, { recursive: true, force: true });
  const scratches = join(HERE, '.tmp');
  mkdirSync(scratches, { recursive: true });
  const scratch = mkdtempSync(join(scratches, 'build-'));
  try {
    // Compiled against the client as it is published: its sources would be compiled into this package.
    const built = client ?? join(scratch, 'client');
    if (client === undefined) buildClient(built);
    const config = {
      extends: '../../tsconfig.build.json',
      compilerOptions: {
        rootDir: '../../src',
        outDir: join(to, 'src'),
        paths: { '@queen-mq/client': [join(built, 'index.d.ts')] },
      },
      include: ['../../src'],
    };
    writeFileSync(join(scratch, 'tsconfig.json'), JSON.stringify(config));
    execFileSync(join(HERE, '../../node_modules/.bin/tsc'), ['-p', scratch], { stdio: 'inherit' });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  const {
    private: _,
    scripts: __,
    ...manifest
  } = JSON.parse(readFileSync(join(HERE, 'package.json'), 'utf8')) as Record<string, unknown>;
  writeFileSync(join(to, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  copyFileSync(join(HERE, 'src/main.mjs'), join(to, 'src/main.mjs'));
  copyFileSync(join(HERE, 'README.md'), join(to, 'README.md'));
  copyFileSync(join(HERE, '../../LICENSE'), join(to, 'LICENSE'));
}

if (import.meta.main) build(process.argv[2] ?? join(HERE, 'dist'));
