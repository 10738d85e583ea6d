/** Bodies with lists of operations, as large as a body may be: nobody else waits for them, and nothing is read in vain. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EngineError } from '../../src/engine/errors.ts';
import { readKvBody } from '../../src/http/kv_body.ts';
import { readTimersBody } from '../../src/http/timers_body.ts';
import { readTransactionBody } from '../../src/http/transaction_body.ts';
import { TURN_BYTES } from '../../src/log/json/push_body.ts';
import { openWire } from './wire.ts';

const GET = '{"op":"get","ns":"n","key":"k"}';
const CANCEL = '{"op":"cancel","queue":"q","timerKey":"k"}';

function counter(): { turns: number; turn: () => Promise<void> } {
  const counted = {
    turns: 0,
    turn: () => {
      counted.turns++;
      return Promise.resolve();
    },
  };
  return counted;
}

function list(element: string, count: number): string {
  return `[${Array(count).fill(element).join(',')}`;
}

function reasonIs(reason: string) {
  return (error: unknown) => error instanceof EngineError && error.reason === reason;
}

test('what no call can have is not read to its end', async () => {
  const { turn } = counter();
  const unread = (element: string) => Buffer.from(`{"operations":${list(element, 4_097)}, this is no JSON`);
  await assert.rejects(readKvBody(unread(GET), turn), reasonIs('kv_too_many_ops'));
  await assert.rejects(readTimersBody(unread(CANCEL), turn), reasonIs('timers_too_many_ops'));
  const riders = Buffer.from(`{"operations":[],"kv":${list(GET, 4_097)}, this is no JSON`);
  await assert.rejects(readTransactionBody(riders, turn), reasonIs('kv_too_many_ops'));
  const whole = Buffer.from(`{"operations":${list(GET, 4_096)}]}`);
  assert.equal((await readKvBody(whole, turn)).length, 4_096);
});

test('a value that no setting allows, and an operation of nothing but length, become no objects', async () => {
  const { turn } = counter();
  const put = (value: string, more = '') =>
    Buffer.from(`{"operations":[{"op":"put","ns":"n","key":"k","forever":true,"value":${value}${more}}]}`);
  const large = put(`"${'x'.repeat(1024 * 1024)}"`);
  await assert.rejects(readKvBody(large, turn), reasonIs('kv_value_too_large'));
  const padded = put('1', ' '.repeat(8 * 1024 * 1024));
  await assert.rejects(readKvBody(padded, turn), reasonIs('kv_bad_body'));
  assert.equal((await readKvBody(put(`"${'x'.repeat(1024 * 1024 - 2)}"`), turn)).length, 1);
});

test('others get their turn while a large body is read', async () => {
  const megabytes = 6;
  const bytes = megabytes * TURN_BYTES;
  const item = `{"queue":"q","payload":"${'x'.repeat(1000)}"}`;
  const items = Math.ceil(bytes / item.length);
  for (const [name, body] of [
    ['items of one push', `{"operations":[{"type":"push","items":${list(item, items)}]}]}`],
    ['many pushes', `{"operations":${list(`{"type":"push",${item.slice(1)}`, items)}]}`],
  ] as const) {
    const counted = counter();
    assert.equal((await readTransactionBody(Buffer.from(body), counted.turn)).operations.length, items, name);
    assert.ok(counted.turns >= megabytes - 1, `${name}: ${counted.turns}`);
  }
  const value = `{"op":"put","ns":"n","key":"k","forever":true,"value":"${'x'.repeat(100_000)}"}`;
  const counted = counter();
  await readKvBody(Buffer.from(`{"operations":${list(value, 60)}]}`), counted.turn);
  assert.ok(counted.turns >= 5, String(counted.turns));
});

test('a body about one key, or a page of keys, has a small limit', async (t) => {
  const wire = await openWire(t);
  const padding = ' '.repeat(2 * 1024 * 1024);
  for (const [method, path] of [
    ['PUT', '/api/v1/kv/n/k'],
    ['DELETE', '/api/v1/kv/n/k'],
    ['POST', '/api/v1/resources/kv/list'],
  ] as const) {
    const response = await fetch(`${wire.url}${path}`, { method, body: `{"namespace":"n"${padding}}` });
    assert.equal(response.status, 413, `${method} ${path}`);
  }
});
