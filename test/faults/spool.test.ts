/**
 * Brokers with messages on their disks are killed: while they write them, and while they store them, at each place where that
 * may leave a doubt. Whatever was acknowledged is in the log afterwards, once, in the order of its lane, under the id that
 * its answer named.
 */
import assert from 'node:assert/strict';
import { closeSync, openSync, readdirSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Client } from '../broker/client.ts';
import { until } from '../kit/until.ts';
import { seeded } from './seed.ts';
import { Scene } from './spool_scene.ts';

test('killed while it writes to its disk, again and again', async (t) => {
  const chance = seeded(t);
  const scene = await Scene.open(t);
  let broker = await scene.start();
  await scene.push(broker, 6);
  await scene.pause(broker, true);
  for (let round = 0; round < 2; round++) {
    const pushing = scene.push(broker, 10_000);
    const before = [...scene.told.values()].reduce((sum, lane) => sum + lane.size, 0);
    const wanted = before + chance.integer(20, 120);
    await until('some are told', async () => {
      return [...scene.told.values()].reduce((sum, lane) => sum + lane.size, 0) > wanted;
    });
    await broker.kill('SIGKILL');
    await pushing;
    broker = await scene.start();
  }
  const kept = await scene.pending(broker);
  assert.ok(kept > 40, `${kept}`);
  // And in the instant between the disk and the answer.
  await broker.kill('SIGKILL');
  broker = await scene.start({ point: 'spool.kept', nth: 3 });
  await scene.push(broker, 10);
  assert.equal((await broker.ended).signal, 'SIGKILL');
  broker = await scene.start();
  await scene.pause(broker, false);
  await scene.push(broker, 6);
  await scene.empty(broker);
  await scene.check(broker);
  assert.equal((await broker.stop()).code, 0);
});

for (const point of ['push.stored', 'spool.stored'] as const) {
  test(`killed while it stores what lies on its disk: ${point}`, async (t) => {
    const scene = await Scene.open(t);
    let broker = await scene.start();
    await scene.push(broker, 6);
    await scene.pause(broker, true);
    await scene.push(broker, 60);
    await broker.kill('SIGKILL');
    // It dies at its first deed of the kind, and its heir some deeds later.
    for (const nth of [1, 5]) {
      await scene.pauseByHand();
      broker = await scene.start({ point, nth });
      await scene.pause(broker, false).catch(() => {});
      const { signal, logs } = await broker.ended;
      assert.equal(signal, 'SIGKILL', logs);
    }
    // This one finds the rest at its start.
    broker = await scene.start();
    assert.equal(await scene.pending(broker), 0);
    await scene.push(broker, 6);
    await scene.check(broker);
  });
}

test('damage on the disk: what is readable is stored, the rest is kept and reported', async (t) => {
  const scene = await Scene.open(t);
  let broker = await scene.start();
  await scene.pause(broker, true);
  await scene.push(broker, 40);
  await broker.kill('SIGKILL');
  const slot = join(scene.spoolDir, '0');
  const files = readdirSync(slot).filter((name) => name.endsWith('.buf'));
  const path = join(slot, files[1]!);
  // One letter of one payload.
  const bytes = readFileSync(path);
  const at = bytes.indexOf('"payload":{"n":') + '"payload":{"n":'.length;
  const fd = openSync(path, 'r+');
  writeSync(fd, 'x', at);
  closeSync(fd);
  const record = bytes.lastIndexOf('"txn":"', at);
  const victim = bytes.toString('utf8', record + 7, bytes.indexOf('"', record + 7));
  // And the file that it was writing ends in the middle of a record, as after a crash.
  const [growing] = readdirSync(slot).filter((name) => name.endsWith('.tmp'));
  if (growing !== undefined) {
    const torn = openSync(join(slot, growing), 'a');
    writeSync(torn, bytes.subarray(0, 50));
    closeSync(torn);
  }
  broker = await scene.start();
  await scene.pause(broker, false);
  await scene.empty(broker);
  for (const told of scene.told.values()) told.delete(victim);
  await scene.check(broker);
  assert.match(broker.logs(), /a part of a spool file is damaged/);
  const { body } = await new Client(broker.url).call('GET', '/api/v1/system/maintenance');
  const { failedFiles } = body.bufferStats as { failedFiles: { count: number; totalBytes: number } };
  assert.deepEqual([failedFiles.count, failedFiles.totalBytes], [1, bytes.length]);
  assert.ok(readFileSync(join(slot, 'failed', files[1]!.replace('buf', 'damaged'))).length > 0);
});
