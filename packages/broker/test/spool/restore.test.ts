import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Restore } from '../../src/engine/spool/restore.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { mintUuidV7 } from '../../src/log/uuid.ts';
import { NO_CACHE, QUEUE, Rig, sql } from '../push/fixture.ts';

test('a unit of several requests is searched for equal ids when it comes back', async (t) => {
  const rig = await Rig.open(t);
  await rig.window(60);
  const path = rig.path();
  const silent = { warn() {}, error() {} };
  const restore = new Restore({
    db: rig.db,
    admission: { run: (_lane, work) => work() },
    dedup: NO_CACHE,
    memo: path.memo,
    provisioner: path.provisioner,
    announcer: { pushed() {}, released() {}, queueDeleted() {} },
    zstdLevel: 1,
    seal: null,
    unseal: (payload) => payload,
    log: silent,
  });
  const records = ['a', 'b', 'a'].map((transactionId, i) => ({
    tenant: DEFAULT_TENANT,
    queue: QUEUE,
    partition: 'Default',
    more: i < 2,
    frame: {
      messageId: mintUuidV7(Date.now()),
      traceId: null,
      transactionId,
      producerSub: null,
      encrypted: false,
      payload: Buffer.from('{}'),
    },
  }));
  const outcomes = await restore.store([{ records, end: 1, open: false }]);
  assert.deepEqual([...outcomes.values()], [{ stored: 2, duplicates: 1 }]);
  const [log] = await sql<{ n: number }>(
    rig.db,
    'SELECT sum(end_offset - base_offset + 1)::int AS n FROM queen.log_segments',
  );
  assert.equal(log!.n, 2);
});
