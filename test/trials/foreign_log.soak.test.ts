import { test } from 'node:test';
import { foreignLog } from './foreign_log.ts';

test('others write 5 GB of log while the tables of a source are idle', (t) =>
  foreignLog(t, { megabytes: 5 * 1024, megabytesASecond: 40, heartbeatSeconds: 10 }));
