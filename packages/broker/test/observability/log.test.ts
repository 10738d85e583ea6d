import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLog } from '../../src/observability/log.ts';
import { StoreError } from '../../src/store/errors.ts';

function logOf(json: boolean, level = 'info') {
  const lines: string[] = [];
  const log = createLog({ level, json, serverId: 'queen-1', write: (line) => void lines.push(line) });
  return { log, lines };
}

test('readable lines: time, level, text, facts; one event a line', () => {
  const { log, lines } = logOf(false);
  log.info({ port: 6632, url: 'http://x:1', name: 'a b\n"c"' }, 'listening');
  assert.equal(lines.length, 1);
  assert.match(
    lines[0]!,
    /^\d\d:\d\d:\d\d\.\d{3} info {2}listening port=6632 url=http:\/\/x:1 name="a b\\n\\"c\\""\n$/,
  );
});

test('an error shows its message and its stack', () => {
  const { log, lines } = logOf(false);
  log.error({ err: new TypeError('odd') }, 'failed');
  assert.match(lines[0]!, /error failed error=odd\n {4}TypeError: odd\n {4} {4}at /);
});

test('a cause is told once, whether its error quotes it or not', () => {
  const { log, lines } = logOf(false);
  const cause = new RangeError('too far');
  log.error({ err: new Error('step 2: too far', { cause: new Error('deeper', { cause }) }) }, 'failed');
  assert.match(lines[0]!, /error failed error="step 2: too far: deeper"\n/);
  assert.match(lines[0]!, /caused by: RangeError: too far\n/);
  log.error({ err: 'no error at all' }, 'odd');
  assert.match(lines[1]!, /error odd/);
});

test('a database that is away is told in one line', () => {
  const { log, lines } = logOf(false);
  log.warn({ err: new StoreError('unavailable', 'pool', 'no connection') }, 'not now');
  assert.match(lines.join(''), /^\S+ warn {2}not now error="no connection"\n$/);
});

test('JSON lines: level by name, ISO time, the server', () => {
  const { log, lines } = logOf(true);
  log.warn({ n: 1 }, 'careful');
  const { time, ...event } = JSON.parse(lines[0]!);
  assert.deepEqual(event, { level: 'warn', server: 'queen-1', n: 1, msg: 'careful' });
  assert.ok(Date.parse(time) > 0 && String(time).endsWith('Z'));
});

test('the level is kept', () => {
  const { log, lines } = logOf(false, 'warn');
  log.info('no');
  log.debug('no');
  log.warn('yes');
  assert.equal(lines.length, 1);
});
