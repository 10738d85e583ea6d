import { after, before, suite, test } from 'node:test';
import { Upstream } from '../kit/upstream.ts';
import { idleSource, LOSSES, lostSlot } from './lost_slot.ts';

for (const major of [17, 18] as const) {
  suite(`a slot on PostgreSQL ${major}`, () => {
    let server: Upstream;
    before(async () => {
      server = await Upstream.start({ major, settings: { wal_keep_size: '0' } });
    });
    after(() => server.remove());

    for (const loss of LOSSES.filter(({ since }) => since <= major)) {
      test(loss.name, (t) => lostSlot(t, server, loss));
    }
    if (major >= 18) test('that is read is not idle, whatever its tables are', (t) => idleSource(t, server));
  });
}
