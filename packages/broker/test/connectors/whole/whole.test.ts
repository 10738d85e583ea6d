/** A source from end to end: an upstream, a broker in a process of its own, and a consumer over HTTP. */
import { after, before, suite } from 'node:test';
import { copying } from './copying.ts';
import { odd } from './odd.ts';
import { SourceRig } from './rig.ts';
import { shapes } from './shapes.ts';
import { zoo } from './zoo.ts';

for (const major of [17, 18] as const) {
  let rig: SourceRig;
  suite(`a source of PostgreSQL ${major}`, () => {
    before(async () => {
      rig = await SourceRig.start(major);
    });
    after(() => rig.close());

    suite('every shape of event', () => shapes(() => rig, major));
    suite('every type', () => zoo(() => rig, major));
    suite('upstreams that cannot be read', () => odd(() => rig, major));
    suite('a table that changes while it is copied', () => copying(() => rig, major === 18 ? 20_000 : 4_000));
  });
}
