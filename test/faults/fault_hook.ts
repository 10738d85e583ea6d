/**
 * Loaded into a broker before its own modules (`node --import`): does something at a fault point. Says what it does
 * on standard error, so that a test can wait for it.
 *
 *   QUEEN_TEST_FAULT=push.stored:kill      kill -9 at the first time that the point is reached
 *   QUEEN_TEST_FAULT=push.stored:stop:3    stand still at the third time, until SIGCONT
 */
import { writeSync } from 'node:fs';
import type { FaultHook } from '../../packages/broker/src/observability/buggify.ts';

const [point, deed, nth = '1'] = (process.env.QUEEN_TEST_FAULT ?? '').split(':');
// The broker warns of QUEEN_ variables that it does not know.
delete process.env.QUEEN_TEST_FAULT;
let left = Number(nth);

const hook: FaultHook = (reached) => {
  if (reached !== point || --left !== 0) return;
  writeSync(2, `fault: ${deed} at ${point}\n`);
  process.kill(process.pid, deed === 'stop' ? 'SIGSTOP' : 'SIGKILL');
};
// No import of the module itself: it looks for the hook when it is loaded.
(globalThis as Record<symbol, unknown>)[Symbol.for('queen.fault-hook')] = hook;
