/** The files of the spool: what is on disk when an append is answered, and what is found after any end. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { atEnd, type Cleanup } from '../../../../test/kit/cleanup.ts';
import { choosePlace } from '../../src/store/spool/place.ts';
import { SpoolFull } from '../../src/store/spool/room.ts';
import type { Shelf } from '../../src/store/spool/shelf.ts';
import { SpoolWriter } from '../../src/store/spool/writer.ts';
import { append, DATABASE, encoded, filesOf, messages, openShelf, takeAll, temporary } from './fixture.ts';

const OTHER_DATABASE = '99999999-2222-4333-8444-555555555555';

test('what was appended is on disk, unit by unit, in files of so many messages', async (t) => {
  const shelf = await openShelf(temporary(t), { eventsPerFile: 5 });
  await Promise.all([append(shelf, 'p', ['a', 'b']), append(shelf, 'p', ['c']), append(shelf, 'r', ['d'])]);
  const [growing] = filesOf(shelf.path, '.tmp');
  assert.ok(readFileSync(join(shelf.path, growing!)).includes('"txn":"d"'));
  assert.equal(shelf.events, 4);
  await append(shelf, 'p', ['e', 'f']);
  await append(shelf, 'p', ['g']);
  assert.equal(filesOf(shelf.path, '.buf').length, 1);
  assert.deepEqual([shelf.events, shelf.bytes > 700], [7, true]);
  assert.deepEqual(await takeAll(shelf), {
    units: [['a', 'b'], ['c'], ['d'], ['e', 'f'], ['g']],
    damages: 0,
  });
  assert.deepEqual([shelf.events, shelf.bytes], [0, 0]);
  await shelf.close();
  assert.deepEqual(filesOf(shelf.path, 'buf'), []);
});

test('names are in the order of writing, whatever the clock does', async (t) => {
  const directory = temporary(t);
  const names: string[] = [];
  let now = 1_764_500_000_000;
  const writer = (lastName: string | null) =>
    new SpoolWriter({
      directory,
      eventsPerFile: 1,
      fileBytesMax: 1_000,
      lastName,
      wallMs: () => now,
      finished: ({ name }) => void names.push(name),
    });
  const first = writer(null);
  for (const step of [0, 0, 5, -60_000, 1]) {
    now += step;
    await first.append(Buffer.from('x'), 1);
  }
  const second = writer(names.at(-1)!);
  await second.append(Buffer.from('x'), 1);
  assert.match(names[0]!, /^1764500000000-00000001\.buf$/);
  assert.deepEqual([...names].sort(), names);
  assert.equal(new Set(names).size, 6);
});

test('a file may end anywhere: whole units before that are found, the rest was never acknowledged', async (t) => {
  const directory = temporary(t);
  const units = [['a'], ['b', 'c', 'd'], ['e'], ['f', 'g']];
  const parts = units.map((ids) => encoded(messages('p', ids)));
  const file = Buffer.concat(parts);
  let first = true;
  await fc.assert(
    fc.asyncProperty(fc.nat(file.length), fc.boolean(), async (cut, zeros) => {
      const slot = join(directory, '0');
      if (!first) {
        const name = '1764500000000-00000001.tmp';
        const end = zeros ? Buffer.alloc(50) : Buffer.alloc(0);
        writeFileSync(join(slot, name), Buffer.concat([file.subarray(0, cut), end]));
      }
      let whole = 0;
      let end = 0;
      for (const part of parts) {
        if (first || end + part.length > cut) break;
        end += part.length;
        whole++;
      }
      first = false;
      const seen: string[] = [];
      const shelf = await openShelf(
        directory,
        {},
        ({ records }) => void seen.push(records[0]!.frame.transactionId),
      );
      try {
        assert.equal(shelf.path, slot);
        assert.deepEqual(
          seen,
          units.slice(0, whole).map(([id]) => id),
        );
        assert.equal(shelf.events, units.slice(0, whole).flat().length);
        // It goes on behind it.
        await append(shelf, 'p', ['new']);
        assert.deepEqual((await takeAll(shelf)).units, [...units.slice(0, whole), ['new']]);
        assert.deepEqual(shelf.failed, { count: 0, bytes: 0, events: 0 });
      } finally {
        await takeAll(shelf);
        await shelf.close();
      }
    }),
    { numRuns: 60 },
  );
});

test('a file with damage in the middle gives what is readable, and is kept', async (t) => {
  const directory = temporary(t);
  const first = await openShelf(directory);
  await append(first, 'p', ['a']);
  await append(first, 'p', ['b', 'c']);
  await append(first, 'p', ['d']);
  await first.close();
  const [name] = filesOf(first.path, '.buf');
  const path = join(first.path, name!);
  const bytes = readFileSync(path);
  bytes[bytes.indexOf('"txn":"b"') + 7]! ^= 1;
  writeFileSync(path, bytes);
  const shelf = await openShelf(directory);
  assert.equal(shelf.events, 3);
  assert.deepEqual(await takeAll(shelf), { units: [['a'], ['c'], ['d']], damages: 1 });
  assert.deepEqual([shelf.events, shelf.failed.count], [0, 1]);
  assert.deepEqual(readFileSync(join(shelf.path, 'failed', name!.replace('buf', 'damaged'))), bytes);
  await shelf.close();
  // It is still counted, and read by nobody.
  const again = await openShelf(directory);
  assert.deepEqual([again.events, again.failed.count, again.failed.bytes], [0, 1, bytes.length]);
  await again.close();
});

test('what is stored of a file is not found again; a note about it that makes no sense is none', async (t) => {
  const directory = temporary(t);
  const first = await openShelf(directory);
  for (const id of ['a', 'b', 'c']) await append(first, 'p', [id]);
  const file = (await first.oldest())!;
  const [, second] = [...(await first.read(file))] as { end: number }[];
  first.stored(file, second!.end, 2);
  assert.equal(first.events, 1);
  await first.close();
  const next = await openShelf(directory);
  assert.deepEqual([next.events, (await takeAll(next)).units], [1, [['c']]]);
  assert.deepEqual(readdirSync(next.path).sort(), ['broker.sock', 'database', 'failed']);
  await append(next, 'p', ['d']);
  await next.close();
  const [name] = filesOf(next.path, '.buf');
  for (const note of ['', 'x', '-5', '1e99', '99999999999999999999']) {
    writeFileSync(join(next.path, name!.replace('buf', 'pos')), note);
    const shelf = await openShelf(directory);
    assert.equal(shelf.events, 1, note);
    await shelf.close();
  }
});

test('brokers share a directory: each has a slot of its own, and takes over one whose owner is gone', async (t) => {
  const directory = temporary(t);
  const one = await openShelf(directory);
  const two = await openShelf(directory);
  const strange = await openShelf(directory, { databaseId: OTHER_DATABASE });
  assert.deepEqual(readdirSync(directory).sort(), ['0', '1', '2']);
  await append(one, 'p', ['one']);
  await append(two, 'p', ['two', 'three']);
  await append(strange, 'p', ['for another database']);
  assert.equal(await one.adopt(), 0);
  assert.equal(await one.adopt(), 0, 'its owner lives');
  await two.close();
  await strange.close();
  assert.equal(await one.adopt(), 0, 'perhaps it is just starting again');
  const back = await openShelf(directory);
  assert.equal(back.path, two.path, 'it finds what it left, before an empty slot');
  assert.equal(back.events, 2);
  assert.equal(await one.adopt(), 0);
  await back.close();
  const seen: string[] = [];
  await one.close();
  const heir = await openShelf(
    directory,
    {},
    ({ records }) => void seen.push(records[0]!.frame.transactionId),
  );
  assert.equal(heir.path, one.path);
  assert.equal(await heir.adopt(), 0);
  assert.equal(await heir.adopt(), 1);
  assert.deepEqual([seen, heir.events], [['one', 'two'], 3]);
  assert.deepEqual((await takeAll(heir)).units, [['one'], ['two', 'three']]);
  assert.equal(filesOf(strange.path, '.buf').length, 1, 'nobody touches what is for another database');
  // An empty slot is used again, whoever had it.
  const newcomer = await openShelf(directory, { databaseId: OTHER_DATABASE });
  assert.equal(newcomer.path, strange.path);
  assert.equal(newcomer.events, 1);
  const other = await openShelf(directory, { databaseId: OTHER_DATABASE });
  assert.equal(other.path, two.path);
  for (const shelf of [heir, newcomer, other]) await shelf.close();
});

test('the slot of a process that is killed is free at once', async (t) => {
  const directory = temporary(t);
  const script = `
    import { openShelf, append } from ${JSON.stringify(join(import.meta.dirname, 'fixture.ts'))};
    const shelf = await openShelf(${JSON.stringify(directory)});
    for (let i = 0; ; i++) {
      await append(shelf, 'p', ['m' + i]);
      process.stdout.write('m' + i + '\\n');
    }`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let told = '';
  child.stdout.on('data', (chunk: Buffer) => {
    told += chunk.toString();
    if (told.length > 400) child.kill('SIGKILL');
  });
  await once(child, 'close');
  const acknowledged = told.split('\n').slice(0, -1);
  assert.ok(acknowledged.length > 50);
  const shelf = await openShelf(directory);
  assert.equal(shelf.path, join(directory, '0'));
  const found = (await takeAll(shelf)).units.flat();
  assert.deepEqual(found.slice(0, acknowledged.length), acknowledged, 'everything that it was told');
  // One more may have been on disk when it died.
  assert.ok(found.length <= acknowledged.length + 1);
  await shelf.close();
});

test('no more than its limit, counting what is on its way and what was put aside', async (t) => {
  const shelf = await openShelf(temporary(t), { bytesMax: 1_000 });
  const unit = encoded(messages('p', ['a'], 200));
  const outcomes = await Promise.allSettled([1, 2, 3, 4].map(() => shelf.append(unit, 1)));
  const full = outcomes.filter((outcome) => outcome.status === 'rejected');
  assert.equal(full.length, 4 - Math.floor(1_000 / unit.length));
  assert.ok(full.every((outcome) => outcome.status === 'rejected' && outcome.reason instanceof SpoolFull));
  const file = (await shelf.oldest())!;
  shelf.putAside(file, unit, 1);
  shelf.done(file, false);
  await shelf.append(unit, 1);
  await assert.rejects(shelf.append(Buffer.concat([unit, unit]), 2), SpoolFull);
  await shelf.close();
});

/** The mount point of a disk of one megabyte, or null: only root can make one. */
function tinyDisk(t: Cleanup): string | null {
  const at = temporary(t);
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,mode=700', 'queen-test', at]);
  if (mounted.status !== 0) return null;
  atEnd(t, () => void spawnSync('umount', ['--lazy', at]));
  return at;
}

function fill(directory: string): string {
  const ballast = join(directory, 'ballast');
  const fd = openSync(ballast, 'a');
  try {
    for (;;) writeSync(fd, Buffer.alloc(4096, 1));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  } finally {
    closeSync(fd);
  }
  return ballast;
}

test('a disk that runs full in the middle of a write keeps all or nothing of it', async (t) => {
  const disk = tinyDisk(t);
  if (disk === null) return t.skip('no small disk');
  const shelf = await openShelf(disk, { fileBytesMax: 16 * 1024 * 1024 });
  await append(shelf, 'p', ['before']);
  // Room for a part of the next one.
  const ballast = fill(disk);
  truncateSync(ballast, statSync(ballast).size - 40_960);
  const large = messages('p', ['x', 'y', 'z'], 100_000);
  const beside = messages('r', ['beside'], 100_000);
  const outcomes = await Promise.allSettled([
    shelf.append(encoded(large), 3),
    shelf.append(encoded(beside), 1),
  ]);
  assert.deepEqual(
    outcomes.map((o) => (o.status === 'rejected' ? (o.reason as NodeJS.ErrnoException).code : o.status)),
    ['ENOSPC', 'ENOSPC'],
  );
  assert.equal(shelf.events, 1);
  await append(shelf, 'p', ['small']);
  rmSync(ballast);
  await shelf.append(encoded(beside), 1);
  assert.equal(shelf.events, 3);
  await shelf.close();
  const next = await openShelf(disk);
  assert.deepEqual(await takeAll(next), { units: [['before'], ['small'], ['beside']], damages: 0 });
  await next.close();
});

test('a place: the first that can be written, else a temporary one, with a warning', (t) => {
  const directory = temporary(t);
  const warnings: string[] = [];
  const log = { info() {}, warn: (_: object, text: string) => void warnings.push(text), error() {} };
  const file = join(directory, 'file');
  writeFileSync(file, '');
  const good = join(directory, 'made', 'for', 'it');
  assert.deepEqual(choosePlace([join(file, 'below'), good], log), { directory: good, lasting: true });
  assert.equal(statSync(good).mode & 0o777, 0o700);
  assert.deepEqual(warnings, []);
  const poor = choosePlace([file, join(file, 'below')], log);
  assert.equal(poor?.lasting, false);
  assert.match(warnings[0]!, /temporary directory .* FILE_BUFFER_DIR/);
});

test('files that are none of ours are left alone', async (t) => {
  const directory = temporary(t);
  mkdirSync(join(directory, 'other'));
  mkdirSync(join(directory, '7'));
  appendFileSync(join(directory, '7', 'note.txt'), 'x');
  mkdirSync(join(directory, '3'));
  // A file of a spool, and nobody says for which database.
  const lost = encoded(messages('p', ['lost']));
  writeFileSync(join(directory, '3', '1764500000000-00000001.buf'), lost);
  const warnings: string[] = [];
  const log = { info() {}, warn: (_: object, text: string) => void warnings.push(text), error() {} };
  const shelf: Shelf = await openShelf(directory, { log });
  assert.equal(shelf.path, join(directory, '7'));
  assert.match(warnings.join(), /for another database: they are left alone/);
  await append(shelf, 'p', ['a']);
  await shelf.close();
  writeFileSync(join(directory, '3', 'database'), `${DATABASE}\n`);
  const next = await openShelf(directory);
  assert.equal(next.path, join(directory, '3'));
  await next.adopt();
  await next.adopt();
  assert.deepEqual((await takeAll(next)).units, [['lost'], ['a']]);
  assert.ok(readdirSync(join(directory, '7')).includes('note.txt'));
  await next.close();
  renameSync(join(directory, 'other'), join(directory, 'others'));
});
