/** The checker of the log's invariants, on rows that were damaged by hand: it must find every kind of damage. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertLogInvariants, checkLogInvariants } from '../../../../test/kit/invariants.ts';
import { pushIds, Rig, sql } from './fixture.ts';

/** Each takes away its own damage with the second statement. */
const DAMAGES: { what: string; damage: string; repair: string; finds: RegExp }[] = [
  {
    what: 'ranges that overlap',
    damage: 'UPDATE queen.log_segments SET end_offset = 3 WHERE base_offset = 0',
    repair: 'UPDATE queen.log_segments SET end_offset = 2 WHERE base_offset = 0',
    finds: /segment 3\.\.3 overlaps 0\.\.3/,
  },
  {
    what: 'a hole',
    damage: 'UPDATE queen.log_segments SET base_offset = 8, end_offset = 9 WHERE base_offset = 4',
    repair: 'UPDATE queen.log_segments SET base_offset = 4, end_offset = 5 WHERE base_offset = 8',
    finds: /segment 8\.\.9: a hole in front of it/,
  },
  {
    what: 'frames that are not as many as offsets',
    damage: 'UPDATE queen.log_segments SET base_offset = 2 WHERE base_offset = 3',
    repair: 'UPDATE queen.log_segments SET base_offset = 3 WHERE base_offset = 2',
    finds: /segment 2\.\.3 cannot be read: .*1 frames instead of 2/,
  },
  {
    what: 'a sidecar row of another length',
    damage: `UPDATE queen.log_txns SET hashes = hashes || '\\x00' WHERE base_offset = 3`,
    repair: 'UPDATE queen.log_txns SET hashes = substring(hashes FROM 1 FOR 16) WHERE base_offset = 3',
    finds: /segment 3\.\.3: 17 bytes of hashes/,
  },
  {
    what: 'a sidecar row of another range',
    damage: 'UPDATE queen.log_txns SET end_offset = 1 WHERE base_offset = 0',
    repair: 'UPDATE queen.log_txns SET end_offset = 2 WHERE base_offset = 0',
    finds: /segment 0\.\.2: its sidecar row ends at 1/,
  },
  {
    what: 'a sidecar row of another time',
    damage: `UPDATE queen.log_txns SET created_at = created_at - interval '1 microsecond' WHERE base_offset = 4`,
    repair: `UPDATE queen.log_txns SET created_at = created_at + interval '1 microsecond' WHERE base_offset = 4`,
    finds: /segment 4\.\.5: its sidecar row has another created_at/,
  },
  {
    what: 'a hash that is not its frame’s',
    damage:
      'UPDATE queen.log_txns SET hashes = set_byte(hashes, 20, get_byte(hashes, 20) # 1) WHERE base_offset = 0',
    repair:
      'UPDATE queen.log_txns SET hashes = set_byte(hashes, 20, get_byte(hashes, 20) # 1) WHERE base_offset = 0',
    finds: /segment 0\.\.2: the hashes are not those of its frames/,
  },
  {
    what: 'a sidecar row that is not there',
    damage: 'UPDATE queen.log_txns SET partition_id = -partition_id WHERE base_offset = 3',
    repair: 'UPDATE queen.log_txns SET partition_id = -partition_id WHERE base_offset = 3',
    finds: /segment 3\.\.3 has no sidecar row/,
  },
  {
    what: 'time that goes back',
    damage: `UPDATE queen.log_segments SET created_at = created_at - interval '1 hour' WHERE base_offset = 4`,
    repair: `UPDATE queen.log_segments SET created_at = created_at + interval '1 hour' WHERE base_offset = 4`,
    finds: /segment 4\.\.5 is older than the one before/,
  },
  {
    what: 'a segment newer than the newest',
    damage: `UPDATE queen.log_partitions SET last_created_at = last_created_at - interval '1 second'`,
    repair: `UPDATE queen.log_partitions SET last_created_at = last_created_at + interval '1 second'`,
    finds: /segment 4\.\.5 is newer than last_created_at/,
  },
  {
    what: 'an allocator behind its log',
    damage: 'UPDATE queen.log_partitions SET last_offset = 3',
    repair: 'UPDATE queen.log_partitions SET last_offset = 5',
    finds: /last_offset is 3, the last segment ends at 5/,
  },
  {
    what: 'a wrong start of the log',
    damage: 'UPDATE queen.log_partitions SET log_start = 3',
    repair: 'UPDATE queen.log_partitions SET log_start = 0',
    finds: /log_start is 3, the log begins at 0/,
  },
  {
    what: 'a wrong start of the sidecar',
    damage: 'UPDATE queen.log_partitions SET txns_start = 3',
    repair: 'UPDATE queen.log_partitions SET txns_start = 0',
    finds: /txns_start is 3, the sidecar begins at 0/,
  },
  {
    what: 'a wrong age of the oldest segment',
    damage: 'UPDATE queen.log_partitions SET oldest_live_at = NULL, oldest_txn_at = NULL',
    repair:
      'UPDATE queen.log_partitions p SET oldest_live_at = s.created_at, oldest_txn_at = s.created_at FROM queen.log_segments s WHERE s.partition_id = p.id AND s.base_offset = 0',
    finds: /oldest_live_at is null/,
  },
  {
    what: 'a flipped bit in a blob',
    damage:
      'UPDATE queen.log_segments SET blob = set_byte(blob, length(blob) - 9, get_byte(blob, length(blob) - 9) # 4) WHERE base_offset = 3',
    repair:
      'UPDATE queen.log_segments SET blob = set_byte(blob, length(blob) - 9, get_byte(blob, length(blob) - 9) # 4) WHERE base_offset = 3',
    finds: /segment 3\.\.3 cannot be read/,
  },
];

test('every kind of damage is found, and nothing else is', async (t) => {
  const rig = await Rig.open(t);
  const path = rig.path();
  await pushIds(path, ['a', 'b', 'c']);
  await pushIds(path, ['d']);
  await pushIds(path, ['e', 'f']);
  const before = await assertLogInvariants(rig.db, { windowsNeverRaised: true });
  for (const { what, damage, repair, finds } of DAMAGES) {
    await sql(rig.db, damage);
    const { faults } = await checkLogInvariants(rig.db);
    assert.ok(
      faults.some((fault) => finds.test(fault)),
      `${what}: ${JSON.stringify(faults)}`,
    );
    await sql(rig.db, repair);
    await assertLogInvariants(rig.db);
  }

  const { id } = await rig.partition();
  const since = new Map([[id, { lastOffset: 6, logStart: 1, txnsStart: 1 }]]);
  const { faults } = await checkLogInvariants(rig.db, { since });
  assert.deepEqual(
    faults.map((fault) => fault.replace(/^partition \d+: /, '')),
    [
      'last_offset went back from 6 to 5',
      'log_start went back from 1 to 0',
      'txns_start went back from 1 to 0',
    ],
  );
  await assertLogInvariants(rig.db, { since: before.watermarks });

  // The same messages in another partition: ids and, inside one partition, transactionIds that are there twice.
  await pushIds(path, ['x', 'y', 'z'], 'copy');
  await sql(
    rig.db,
    `UPDATE queen.log_segments s SET blob = o.blob FROM queen.log_segments o
      WHERE o.partition_id = $1::bigint AND o.base_offset = 0 AND s.partition_id <> $1::bigint`,
    [id],
  );
  const copied = await checkLogInvariants(rig.db);
  assert.equal(copied.faults.filter((fault) => /message id .* is at partition/.test(fault)).length, 3);
  await rig.window(0);
  await pushIds(path, ['a'], 'twice');
  await pushIds(path, ['a'], 'twice');
  await rig.window(3600);
  const twice = await checkLogInvariants(rig.db, { windowsNeverRaised: true });
  assert.ok(
    twice.faults.some((fault) => /offsets 0 and 1 have one transactionId inside the window/.test(fault)),
  );
});
