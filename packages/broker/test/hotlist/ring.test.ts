import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Ring } from '../../src/engine/hotlist/ring.ts';

const settings = { windowBatch: 100 };

function draw(ring: Ring, k = 64, batch = 1_000_000): number[] {
  const out: number[] = [];
  ring.draw(k, batch, out);
  return out;
}

test('what is marked is drawn once, first in first out', () => {
  const ring = new Ring(settings);
  for (const id of [3, 1, 2]) assert.equal(ring.mark(id, 0, 0), true);
  assert.equal(ring.mark(1, 5, 0), false, 'ready already');
  assert.deepEqual(draw(ring, 2), [3, 1]);
  assert.deepEqual(draw(ring), [2]);
  assert.deepEqual(draw(ring), []);
  assert.equal(ring.inflight, 3);
});

test('a busy partition goes to the end each time it was served', () => {
  const ring = new Ring(settings);
  ring.seed(1, 1_000_000, -1, 0, -1, 0);
  ring.seed(2, 3, -1, 0, -1, 0);
  ring.seed(3, 3, -1, 0, -1, 0);
  const served: number[] = [];
  for (let i = 0; i < 4; i++) {
    const [id] = draw(ring, 1);
    served.push(id!);
    ring.took(id!, 3, id === 1 ? 1_000_000 : 3, null, 0);
  }
  assert.deepEqual(served, [1, 2, 3, 1]);
});

test('a draw stops when the known backlog covers the batch', () => {
  const ring = new Ring(settings);
  for (let id = 1; id <= 10; id++) ring.seed(id, 29, -1, 0, -1, 0);
  assert.equal(draw(ring, 64, 100).length, 4);
  assert.equal(ring.backlog(3, 1_000), 90);
  assert.equal(ring.backlog(100, 50), 50);
});

test('a push during a claim is never lost: the epoch has moved', () => {
  // The example of a partition at 20 that is drawn while 21 is pushed.
  const verdicts: [string, (ring: Ring) => void][] = [
    ['took', (ring) => ring.took(1, 20, 20, null, 0)],
    ['empty', (ring) => ring.empty(1, 20)],
  ];
  for (const [name, verdict] of verdicts) {
    const ring = new Ring(settings);
    ring.mark(1, 20, 0);
    assert.deepEqual(draw(ring), [1]);
    ring.mark(1, 21, 0);
    verdict(ring);
    assert.equal(ring.stateOf(1), 'ready', name);
    // Without the push, the same verdict puts it to rest.
    draw(ring);
    if (name === 'took') ring.took(1, 21, 21, null, 0);
    else ring.empty(1, 21);
    assert.equal(ring.stateOf(1), 'idle', name);
  }
});

test('verdicts park for as long as they say', () => {
  const at = (verdict: (ring: Ring) => void): number => {
    const ring = new Ring(settings);
    ring.mark(1, 20, 0);
    draw(ring);
    verdict(ring);
    assert.equal(ring.stateOf(1), 'parked');
    return ring.nextDue;
  };
  assert.equal(
    at((r) => r.leased(1, 200, 0)),
    500,
  );
  assert.equal(
    at((r) => r.leased(1, 60_000, 0)),
    1_000,
  );
  assert.equal(
    at((r) => r.skipped(1, 0)),
    250,
  );
  assert.equal(
    at((r) => r.deferred(1, 10, 0, 20, 0)),
    50,
  );
  assert.equal(
    at((r) => r.deferred(1, 400, 0, 20, 0)),
    400,
  );
  assert.equal(
    at((r) => r.deferred(1, 60_000, 0, 20, 0)),
    1_000,
  );
  assert.equal(
    at((r) => r.took(1, 20, 20, 60_000, 0)),
    60_300,
    'its own lease, nothing behind it',
  );
  assert.equal(
    at((r) => r.took(1, 10, 20, 60_000, 0)),
    1_000,
    'with a backlog the ack may come from elsewhere',
  );
});

test('a parked partition comes back when it is due, or when its lease is released', () => {
  const ring = new Ring(settings);
  for (let id = 1; id <= 3; id++) ring.mark(id, 0, 0);
  draw(ring);
  ring.leased(1, 500, 0);
  ring.skipped(2, 0);
  ring.took(3, 0, 0, 10_000, 0);
  assert.equal(ring.wake(249), 0);
  assert.equal(ring.wake(250), 1);
  assert.deepEqual(draw(ring), [2]);
  assert.equal(ring.release(1, null), true);
  assert.deepEqual(draw(ring), [1]);
  // A completed batch of a partition without more needs no look.
  assert.equal(ring.release(3, 0), false);
  assert.equal(ring.stateOf(3), 'idle');
  assert.equal(ring.parked, 0);
});

test('a failed batch is ready at once although nothing new was pushed', () => {
  const ring = new Ring(settings);
  ring.mark(1, 5, 0);
  draw(ring);
  ring.took(1, 5, 5, 60_000, 0);
  assert.equal(ring.release(1, null), true);
  assert.deepEqual(draw(ring), [1]);
});

test('a release during the claim is not lost either', () => {
  const ring = new Ring(settings);
  ring.mark(1, 5, 0);
  draw(ring);
  ring.release(1, null);
  ring.leased(1, 10_000, 0);
  assert.equal(ring.stateOf(1), 'ready');
});

test('undrawn partitions are where they were', () => {
  const ring = new Ring(settings);
  for (let id = 1; id <= 5; id++) ring.mark(id, 0, 0);
  const drawn = draw(ring, 3);
  ring.undraw(drawn.slice(1));
  ring.took(1, 0, 0, null, 0);
  assert.deepEqual(draw(ring), [2, 3, 4, 5]);
  ring.undraw([2, 3, 4, 5]);
  assert.deepEqual(draw(ring), [2, 3, 4, 5]);
});

test('a full batch opens a windowed partition, once', () => {
  const ring = new Ring({ windowBatch: 10 });
  ring.mark(1, 0, 0);
  draw(ring);
  ring.deferred(1, 60_000, -1, 0, 0);
  for (let last = 1; last < 9; last++) assert.equal(ring.mark(1, last, 0), false);
  assert.equal(ring.mark(1, 9, 0), true);
  draw(ring);
  ring.deferred(1, 60_000, -1, 9, 0);
  assert.equal(ring.mark(1, 10, 0), false);
});

test('marks that say nothing new are ignored, reseeds are not', () => {
  const ring = new Ring(settings);
  ring.mark(1, 5, 0);
  draw(ring);
  ring.took(1, 5, 5, null, 0);
  assert.equal(ring.mark(1, 5, 0), false);
  assert.equal(ring.mark(1, 3, 0), false);
  assert.equal(ring.seed(1, 5, 2, 0, -1, 0), true);
});

test('the sweep drops what rests, at the second look, and nothing else', () => {
  const ring = new Ring(settings);
  for (let id = 1; id <= 4; id++) ring.mark(id, 0, 0);
  draw(ring, 3);
  ring.empty(1, 0);
  ring.leased(2, 1_000, 0);
  ring.sweep();
  assert.equal(ring.stateOf(1), 'idle');
  ring.sweep();
  assert.deepEqual(
    [1, 2, 3, 4].map((id) => ring.stateOf(id)),
    [null, 'parked', 'inflight', 'ready'],
  );
  ring.mark(9, 0, 0);
  assert.equal(ring.size, 4);
});

test('a million partitions stay compact', () => {
  const ring = new Ring(settings);
  for (let id = 1; id <= 1_000_000; id++) ring.mark(id * 7, id, 0);
  const each = ring.bytes / ring.size;
  assert.ok(each < 70, `${each} bytes an entry`);
  const drawn = draw(ring, 500_000);
  for (const id of drawn) ring.leased(id, 500, 0);
  assert.equal(ring.parked, 500_000);
  assert.ok(ring.bytes / ring.size < 75, `${ring.bytes / ring.size} bytes an entry`);
});

test('a partition that was passed by turns out to be leased: it is parked once', () => {
  const ring = new Ring(settings);
  for (const id of [1, 2]) ring.mark(id, 5, 0);
  draw(ring);
  for (const id of [1, 2]) ring.skipped(id, 0);
  assert.equal(ring.seed(1, 5, -1, 10_000, 5, 0), false);
  assert.equal(ring.parked, 2);
  assert.equal(ring.release(1, null), true);
  assert.equal(ring.wake(60_000), 1);
  assert.deepEqual(draw(ring), [1, 2]);
  assert.deepEqual(draw(ring), []);
  assert.equal(ring.parked, 0);
});

/** The ring, as simple as can be: lists and maps. */
class Model {
  states = new Map<
    number,
    { state: string; last: number; given: number; due: number; moved: boolean; freed: boolean }
  >();
  queue: number[] = [];

  ready(id: number) {
    this.#of(id).state = 'ready';
    this.queue.push(id);
  }

  #of(id: number) {
    let entry = this.states.get(id);
    if (entry === undefined) {
      entry = { state: 'idle', last: -1, given: -1, due: 0, moved: false, freed: false };
      this.states.set(id, entry);
    }
    return entry;
  }

  mark(id: number, last: number, now: number) {
    const known = this.states.get(id);
    if (known === undefined) {
      Object.assign(this.#of(id), { last, given: last - 1 });
      return this.ready(id);
    }
    if (last <= known.last) return;
    const before = known.last;
    known.last = last;
    if (known.state === 'idle') this.ready(id);
    else if (known.state === 'inflight') known.moved = true;
    else if (known.state === 'leased') known.due = Math.min(known.due, now + 1000);
    else if (known.state === 'deferred' && last - known.given >= 100 && before - known.given < 100)
      this.ready(id);
  }

  /** Entries that came due in the same millisecond may be drawn in either order; the model follows. */
  drawn(ids: readonly number[], k: number) {
    assert.equal(ids.length, Math.min(k, this.queue.length));
    for (const id of ids) assert.ok(this.queue.includes(id), `${id} is not ready`);
    this.queue = this.queue.filter((id) => !ids.includes(id));
    for (const id of ids) Object.assign(this.#of(id), { state: 'inflight', moved: false, freed: false });
  }

  undraw(ids: number[]) {
    const back = ids.filter((id) => this.states.get(id)?.state === 'inflight');
    for (const id of back) this.#of(id).state = 'ready';
    this.queue.unshift(...back);
  }

  settle(id: number, verdict: string, last: number, to: number, ms: number, now: number) {
    const e = this.states.get(id);
    if (e === undefined || e.state !== 'inflight') return;
    const lease = () => {
      const late = ms + 300;
      Object.assign(e, { state: 'leased', due: now + (e.last > e.given ? Math.min(late, 1000) : late) });
    };
    if (verdict === 'took' || verdict === 'committed') {
      e.last = Math.max(e.last, last);
      e.given = to;
      if (verdict === 'took' && !e.freed) lease();
      else if (e.last > to || e.freed) this.ready(id);
      else e.state = 'idle';
    } else if (verdict === 'empty') {
      if (e.moved || e.freed) return this.ready(id);
      e.last = Math.max(e.last, last);
      e.given = e.last;
      e.state = 'idle';
    } else if (verdict === 'leased') {
      if (e.freed) this.ready(id);
      else lease();
    } else if (verdict === 'skipped') {
      if (e.freed) this.ready(id);
      else Object.assign(e, { state: 'skipped', due: now + 250 });
    } else if (verdict === 'deferred') {
      e.given = to;
      e.last = Math.max(e.last, last);
      Object.assign(e, { state: 'deferred', due: now + Math.min(Math.max(ms, 50), 1000) });
    } else this.states.delete(id);
  }

  release(id: number, committed: number | null) {
    const e = this.states.get(id);
    if (e === undefined) return;
    if (e.state === 'inflight') e.freed = true;
    else if (e.state === 'idle' || e.state === 'leased' || e.state === 'skipped') {
      if (committed !== null && committed >= e.last) e.state = 'idle';
      else {
        if (committed !== null) e.given = committed;
        this.ready(id);
      }
    }
  }

  seed(id: number, last: number, position: number, leasedMs: number, to: number, now: number) {
    const known = this.states.get(id);
    if (known?.state === 'inflight') return;
    const e = this.#of(id);
    e.last = known === undefined ? last : Math.max(e.last, last);
    if (leasedMs > 0) {
      if (e.state === 'ready' || e.state === 'deferred' || e.state === 'leased') return;
      e.given = Math.max(position, to);
      const late = leasedMs + 300;
      Object.assign(e, { state: 'leased', due: now + (e.last > e.given ? Math.min(late, 1000) : late) });
      return;
    }
    e.given = position;
    if (e.state === 'idle' || e.state === 'leased') this.ready(id);
  }

  requeue(id: number) {
    const e = this.states.get(id);
    if (e !== undefined && e.state !== 'ready') this.ready(id);
  }

  revive(id: number) {
    const known = this.states.get(id);
    if (known === undefined) {
      Object.assign(this.#of(id), { last: 0, given: -1 });
      return this.ready(id);
    }
    known.given = -1;
    if (known.state === 'inflight') known.freed = true;
    else this.requeue(id);
  }

  drawnParked(ids: readonly number[], k: number) {
    const parked = ['leased', 'skipped', 'deferred'];
    assert.equal(
      ids.length,
      Math.min(k, [...this.states.values()].filter((e) => parked.includes(e.state)).length),
    );
    for (const id of ids) {
      assert.ok(parked.includes(this.#of(id).state), `${id} is not parked`);
      Object.assign(this.#of(id), { state: 'inflight', moved: false, freed: false });
    }
  }

  wake(now: number) {
    const due = [...this.states].filter(
      ([, e]) => ['leased', 'skipped', 'deferred'].includes(e.state) && e.due <= now,
    );
    for (const [id] of due.sort((a, b) => a[1].due - b[1].due)) this.ready(id);
  }

  get parked() {
    return [...this.states.keys()].filter((id) => this.stateOf(id) === 'parked').length;
  }

  stateOf(id: number) {
    const state = this.states.get(id)?.state ?? null;
    return state === 'leased' || state === 'skipped' || state === 'deferred' ? 'parked' : state;
  }
}

test('the ring does what a naive model does', () => {
  const id = fc.integer({ min: 1, max: 12 });
  const off = fc.integer({ min: 0, max: 300 });
  const op = fc.oneof(
    fc.record({ op: fc.constant('mark' as const), id, last: off }),
    fc.record({ op: fc.constant('draw' as const), k: fc.integer({ min: 1, max: 6 }) }),
    fc.record({ op: fc.constant('undraw' as const), n: fc.integer({ min: 1, max: 4 }) }),
    fc.record({
      op: fc.constant('settle' as const),
      pick: fc.nat(20),
      verdict: fc.constantFrom('took', 'committed', 'empty', 'leased', 'skipped', 'deferred', 'missing'),
      last: off,
      short: fc.nat(50),
      ms: fc.integer({ min: 0, max: 3_000 }),
    }),
    fc.record({ op: fc.constant('release' as const), id, committed: fc.option(off) }),
    fc.record({ op: fc.constant('pass' as const), ms: fc.integer({ min: 1, max: 700 }) }),
    fc.record({
      op: fc.constant('seed' as const),
      id,
      last: off,
      short: fc.nat(50),
      leasedMs: fc.oneof(fc.constant(0), fc.nat(3_000)),
    }),
    fc.record({ op: fc.constantFrom('requeue' as const, 'revive' as const), id }),
    fc.record({ op: fc.constant('draw parked' as const), k: fc.integer({ min: 1, max: 6 }) }),
  );
  fc.assert(
    fc.property(fc.array(op, { maxLength: 120, size: 'max' }), (ops) => {
      const ring = new Ring(settings);
      const model = new Model();
      let flying: number[] = [];
      let now = 0;
      for (const step of ops) {
        if (step.op === 'mark') {
          ring.mark(step.id, step.last, now);
          model.mark(step.id, step.last, now);
        } else if (step.op === 'draw') {
          const drawn = draw(ring, step.k);
          model.drawn(drawn, step.k);
          flying.push(...drawn);
        } else if (step.op === 'undraw') {
          const back = flying.splice(0, step.n);
          ring.undraw(back);
          model.undraw(back);
        } else if (step.op === 'settle' && flying.length > 0) {
          const [one] = flying.splice(step.pick % flying.length, 1) as [number];
          const to = Math.max(0, step.last - step.short);
          model.settle(one, step.verdict, step.last, to, step.ms, now);
          if (step.verdict === 'took') ring.took(one, to, step.last, step.ms, now);
          else if (step.verdict === 'committed') ring.took(one, to, step.last, null, now);
          else if (step.verdict === 'empty') ring.empty(one, step.last);
          else if (step.verdict === 'leased') ring.leased(one, step.ms, now);
          else if (step.verdict === 'skipped') ring.skipped(one, now);
          else if (step.verdict === 'deferred') ring.deferred(one, step.ms, to, step.last, now);
          else ring.forget(one);
        } else if (step.op === 'release') {
          ring.release(step.id, step.committed);
          model.release(step.id, step.committed);
        } else if (step.op === 'seed') {
          const position = Math.max(-1, step.last - step.short);
          ring.seed(step.id, step.last, position, step.leasedMs, step.last, now);
          model.seed(step.id, step.last, position, step.leasedMs, step.last, now);
        } else if (step.op === 'requeue') {
          ring.requeue(step.id);
          model.requeue(step.id);
        } else if (step.op === 'revive') {
          ring.revive(step.id);
          model.revive(step.id);
        } else if (step.op === 'draw parked') {
          const drawn: number[] = [];
          ring.drawParked(step.k, drawn);
          model.drawnParked(drawn, step.k);
          flying.push(...drawn);
        } else if (step.op === 'pass') {
          // Small steps, so that what is due at different times comes back in that order.
          for (let left = step.ms; left > 0; left--) {
            now++;
            ring.wake(now);
            model.wake(now);
          }
        }
        flying = flying.filter((f) => model.stateOf(f) === 'inflight');
        for (let n = 1; n <= 12; n++) assert.equal(ring.stateOf(n), model.stateOf(n), `partition ${n}`);
        assert.equal(ring.ready, model.queue.length);
        assert.equal(ring.inflight, [...model.states.values()].filter((e) => e.state === 'inflight').length);
        assert.equal(ring.size, model.states.size);
        assert.equal(ring.parked, model.parked);
      }
    }),
    { numRuns: 300 },
  );
});
