import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BackOff } from '../../src/engine/retention/back_off.ts';

test('8 cycles, then twice as many each time, up to 512', () => {
  const backOff = new BackOff();
  let cycle = 1;
  const waits: number[] = [];
  for (let i = 0; i < 9; i++) {
    backOff.idle(1, 'r', cycle);
    const from = cycle;
    while (backOff.skips(1, 'r', cycle)) cycle++;
    waits.push(cycle - from);
  }
  assert.deepEqual(waits, [8, 16, 32, 64, 128, 256, 512, 512, 512]);
});

test('other rules, another partition or a step that gave something start afresh', () => {
  const backOff = new BackOff();
  backOff.idle(1, 'r', 1);
  assert.equal(backOff.skips(1, 'r', 2), true);
  assert.equal(backOff.skips(1, 'other', 2), false);
  assert.equal(backOff.skips(2, 'r', 2), false);
  backOff.idle(1, 'other', 2);
  assert.equal(backOff.skips(1, 'other', 9), true);
  assert.equal(backOff.skips(1, 'other', 10), false);
  backOff.forget(1);
  assert.equal(backOff.skips(1, 'other', 3), false);
  assert.equal(backOff.size, 0);
});

test('the memory is bounded', () => {
  const backOff = new BackOff();
  for (let id = 0; id < 100_500; id++) backOff.idle(id, 'r', 1);
  assert.equal(backOff.size, 100_000);
  assert.equal(backOff.skips(0, 'r', 2), false);
  assert.equal(backOff.skips(100_499, 'r', 2), true);
});
