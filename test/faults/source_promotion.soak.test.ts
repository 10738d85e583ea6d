import { suite, test } from 'node:test';
import { promoted, promotedBehind } from './source_promotion.ts';

suite('a source whose server is lost', () => {
  test('goes on at the standby that has its slot', promoted);
  test('does not read from a standby that is behind what the queues have', promotedBehind);
});
