import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { faultsOf } from './boundaries.ts';

const SOURCE = join(import.meta.dirname, '../packages/broker/src');
const faults = (file: string, text: string): string[] => faultsOf(join(SOURCE, file), text);

test('imports that point down are fine', () => {
  assert.deepEqual(faults('http/server.ts', "import type { BrokerFace } from '../engine/types.ts';"), []);
  assert.deepEqual(
    faults('engine/push/path.ts', "import { x } from '../../store/push.ts';\nimport pg from 'pg';"),
    [],
  );
  assert.deepEqual(faults('store/push.ts', "import {\n  encodeFrames,\n} from '../log/frame.ts';"), []);
  assert.deepEqual(
    faults('log/hash.ts', "import { zstdCompress } from 'node:zlib';\nimport './names.ts';"),
    [],
  );
  assert.deepEqual(faults('main.ts', "import { createServer } from './http/server.ts';"), []);
});

test('every way of writing an import that points up is caught', () => {
  const up = [
    "import { a } from '../engine/types.ts';",
    "import type { A } from '../engine/types.ts';",
    "import * as a from '../engine/types.ts';",
    "import a, {\n  b,\n  type C,\n} from '../engine/types.ts';",
    "export { a } from '../engine/types.ts';",
    "export * from '../engine/types.ts';",
    "import '../engine/types.ts';",
    "const a = await import('../engine/types.ts');",
  ];
  for (const text of up) {
    assert.deepEqual(
      faults('store/push.ts', text),
      ['store/push.ts: store/ may not import engine/ (../engine/types.ts)'],
      text,
    );
  }
  assert.equal(faults('engine/a.ts', "import { c } from '../config.ts';").length, 1);
  assert.equal(faults('observability/log.ts', "import { c } from '../log/hash.ts';").length, 1);
});

test('the pure floor does no I/O, nobody leaves the sources, and a new floor must be entered', () => {
  assert.match(faults('log/a.ts', "import { readFile } from 'node:fs';")[0] ?? '', /log\/ is pure/);
  assert.match(faults('store/a.ts', "import { t } from '../../test/x.ts';")[0] ?? '', /outside the package/);
  assert.match(faults('store/a.ts', "import { t } from './b';")[0] ?? '', /lacks its \.ts/);
  assert.match(faults('cellar/a.ts', '')[0] ?? '', /there is no floor "cellar"/);
});

test('text that only looks like an import is none', () => {
  assert.deepEqual(faults('store/a.ts', "export const d = new URL('../engine/', import.meta.url);"), []);
  assert.deepEqual(faults('store/a.ts', "// see ../engine/types.ts\nconst from = '../engine/types.ts';"), []);
});

test('the client: imports point down, and nothing comes from outside', () => {
  const client = (file: string, text: string): string[] =>
    faultsOf(join(import.meta.dirname, '../packages/client/src', file), text);
  assert.deepEqual(client('queue/queue.ts', "import { push } from '../calls/push.ts';"), []);
  assert.deepEqual(client('wire/transport.ts', "import { QueenError } from '../errors.ts';"), []);
  assert.equal(client('wire/transport.ts', "import { push } from '../calls/push.ts';").length, 1);
  assert.match(client('errors.ts', "import { Queen } from './client.ts';")[0] ?? '', /nobody below/);
  for (const outside of ['node:crypto', 'undici']) {
    assert.match(client('uuid.ts', `import x from '${outside}';`)[0] ?? '', /nothing from outside/, outside);
  }
});

test('the command line stands on the client, and on nothing of the broker', () => {
  const queenctl = (file: string, text: string): string[] =>
    faultsOf(join(import.meta.dirname, '../packages/queenctl/src', file), text);
  assert.deepEqual(
    queenctl('commands/a.ts', "import { Queen } from '@queen-mq/client';\nimport '../output/text.ts';"),
    [],
  );
  assert.match(queenctl('commands/a.ts', "import pg from 'pg';")[0] ?? '', /not pg/);
  assert.match(
    queenctl('main.ts', "import { x } from '@queen-mq/broker/x.ts';")[0] ?? '',
    /queenctl imports/,
  );
  assert.match(queenctl('output/a.ts', "import '../commands/push.ts';")[0] ?? '', /output\/ may not import/);
  assert.match(queenctl('a.ts', "import '../../client/src/client.ts';")[0] ?? '', /outside the package/);
});
