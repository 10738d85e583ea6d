import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventLoopLag } from '../../src/observability/event_loop.ts';
import { createLog } from '../../src/observability/log.ts';
import { RateLog } from '../../src/observability/rates.ts';
import { Traffic } from '../../src/observability/traffic.ts';

function setup(t: { after(fn: () => void): void }, topQueues: number) {
  const lines: Record<string, unknown>[] = [];
  const write = (line: string) => void lines.push(JSON.parse(line));
  const log = createLog({ level: 'info', json: true, serverId: 's', write });
  const traffic = new Traffic();
  const lag = new EventLoopLag();
  t.after(() => lag.stop());
  return { lines, traffic, rates: new RateLog({ traffic, lag, log, everyMs: 0, topQueues }) };
}

test('silence while nothing moves, a line when something does, one more when it stops', (t) => {
  const { lines, traffic, rates } = setup(t, 1);
  rates.report();
  assert.equal(lines.length, 0);
  traffic.pushMessages += 30;
  traffic.pushed('busy', 25);
  traffic.pushed('calm', 5);
  traffic.popped('busy', 3);
  rates.report();
  assert.equal(lines.length, 1);
  assert.ok((lines[0]!.pushPerSecond as number) > 0);
  assert.equal(lines[0]!.queues, 'busy +25 -3');
  rates.report();
  assert.equal(lines.length, 2);
  assert.deepEqual([lines[1]!.pushPerSecond, lines[1]!.queues], [0, undefined]);
  rates.report();
  assert.equal(lines.length, 2);
});

test('queues are told apart up to a bound', () => {
  const traffic = new Traffic();
  for (let i = 0; i < 20_000; i++) traffic.pushed(`q${i}`, 1);
  assert.equal(traffic.takeQueues().size, 10_000);
  assert.equal(traffic.takeQueues().size, 0);
});
