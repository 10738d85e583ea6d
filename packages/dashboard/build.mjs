// Builds the page into dist, with compressed copies beside its files: brotli and gzip at their best once, instead of
// with each request. Plain JavaScript, since an install may run it with a Node that knows no types.
import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const HERE = import.meta.dirname;
/** Smaller files do not get smaller. */
const WORTHWHILE_BYTES = 1024;

/** Replaces dist once everything is there, so that a broker that serves it meanwhile is never without. */
export async function build({ quiet = false } = {}) {
  const { build: bundle } = await import('vite');
  const next = join(HERE, 'dist.next');
  rmSync(next, { recursive: true, force: true });
  await bundle({
    configFile: join(HERE, 'vite.config.ts'),
    logLevel: quiet ? 'warn' : 'info',
    build: { outDir: next },
  });
  for (const name of readdirSync(next, { recursive: true })) {
    if (!/\.(js|css|svg)$/.test(name)) continue;
    const path = join(next, name);
    const bytes = readFileSync(path);
    if (bytes.length < WORTHWHILE_BYTES) continue;
    const params = {
      [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
      [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
    };
    writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params }));
    writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
  }
  rmSync(join(HERE, 'dist'), { recursive: true, force: true });
  renameSync(next, join(HERE, 'dist'));
}

if (process.argv[1] === import.meta.filename) await build();
