/** What a slot, a pointer and the server's history mean together. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pointer } from '../../../src/connectors/postgres/source/pointer.ts';
import { judgeSlot, type SlotRow } from '../../../src/connectors/postgres/source/slot.ts';
import { branchPoint, judgeSystem } from '../../../src/connectors/postgres/source/system.ts';

const SLOT = 'queen_s';
const POINTER: Pointer = {
  epoch: '0badcafe',
  systemId: '7',
  timeline: 2,
  slot: SLOT,
  lsn: 0x500n,
  inTxn: null,
  snapshot: null,
  resyncedAt: null,
  updatedAt: '',
};
const ROW: SlotRow = {
  type: 'logical',
  plugin: 'pgoutput',
  here: true,
  temporary: false,
  twoPhase: false,
  activePid: null,
  confirmed: 0x400n,
  walStatus: 'reserved',
  invalidation: null,
  lagBytes: 0n,
};

test('the slot is there or not, and so is the pointer', () => {
  assert.deepEqual(judgeSlot(SLOT, null, null), { kind: 'create' });
  assert.throws(() => judgeSlot(SLOT, null, POINTER), { code: 'slot_lost' });
  assert.deepEqual(judgeSlot(SLOT, ROW, null), { kind: 'adopt', lsn: 0x400n });
  assert.deepEqual(judgeSlot(SLOT, ROW, POINTER), { kind: 'go' });
  assert.deepEqual(judgeSlot(SLOT, { ...ROW, confirmed: 0x500n }, POINTER), { kind: 'go' });
  assert.deepEqual(judgeSlot(SLOT, { ...ROW, confirmed: 0x501n }, POINTER), {
    kind: 'ahead',
    confirmed: 0x501n,
  });
  assert.deepEqual(judgeSlot(SLOT, { ...ROW, activePid: 5 }, null), { kind: 'busy', pid: 5 });
  assert.deepEqual(judgeSlot(SLOT, { ...ROW, activePid: 5 }, POINTER), { kind: 'busy', pid: 5 });
  assert.throws(() => judgeSlot('other', ROW, POINTER), { code: 'slot_changed' });
  assert.throws(() => judgeSlot('other', null, POINTER), { code: 'slot_changed' });
});

test('a slot that is not of our kind, or has lost what it held', () => {
  const odd: Partial<SlotRow>[] = [
    { type: 'physical', plugin: null },
    { plugin: 'test_decoding' },
    { here: false },
    { temporary: true },
    { twoPhase: true },
  ];
  for (const change of odd) {
    for (const pointer of [null, POINTER]) {
      assert.throws(() => judgeSlot(SLOT, { ...ROW, ...change }, pointer), { code: 'slot_mismatch' });
    }
  }
  for (const change of [{ walStatus: 'lost' }, { invalidation: 'idle_timeout' }]) {
    assert.throws(() => judgeSlot(SLOT, { ...ROW, ...change }, POINTER), { code: 'slot_invalidated' });
  }
});

test('the same database goes on; one that forgot what the queues have does not', () => {
  const facts = { systemId: '7', timeline: 2, walEnd: 0x600n };
  judgeSystem(facts, POINTER, null);
  judgeSystem({ ...facts, walEnd: 0x500n }, POINTER, null);
  judgeSystem({ ...facts, timeline: 3 }, POINTER, 0x500n);
  const changed = { code: 'system_changed' };
  assert.throws(() => judgeSystem({ ...facts, systemId: '8' }, POINTER, null), changed);
  assert.throws(() => judgeSystem({ ...facts, walEnd: 0x4ffn }, POINTER, null), changed);
  assert.throws(() => judgeSystem({ ...facts, timeline: 3 }, POINTER, 0x4ffn), changed);
  assert.throws(() => judgeSystem({ ...facts, timeline: 3 }, POINTER, null), changed);
  const history = '1\t0/300\tno recovery target specified\n\n2\t0/500\tbefore 2026\n';
  assert.equal(branchPoint(history, 2), 0x500n);
  assert.equal(branchPoint(history, 4), null);
});
