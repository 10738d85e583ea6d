/** The judge judged: histories that are in order pass, and each kind of damage is found and named. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { checkHistory } from './checker.ts';
import { type Answer, type HistoryEvent, type Invocation, type Reading, readHistory } from './history.ts';

const LANE = { queue: 'q', partition: 'p' };
const MS = 1_000;

/** Writes histories by hand: one operation a line, times in ms. */
class Script {
  readonly events: HistoryEvent[] = [];
  #ops = 0;

  op(by: string, from: number, to: number | null, invocation: Invocation, answer?: Answer | string): this {
    const op = ++this.#ops;
    this.events.push({ at: from * MS, op, by, type: 'invoke', ...invocation });
    if (to === null) return this;
    if (answer === undefined)
      this.events.push({ at: to * MS, op, by, type: 'info', f: invocation.f, why: 'lost' });
    else if (typeof answer === 'string')
      this.events.push({ at: to * MS, op, by, type: 'fail', f: invocation.f, why: answer });
    else this.events.push({ at: to * MS, op, by, type: 'ok', ...answer });
    return this;
  }

  /** Pushes `t<n>` for each n; each answer is `queued` at that offset unless given. */
  push(from: number, to: number, numbers: number[], answers?: Partial<Record<number, object>>): this {
    const items = numbers.map((n) => ({ ...LANE, txn: `t${n}`, payload: `{"n":${n}}` }));
    const results = numbers.map((n) => ({
      status: 'queued',
      id: `id-${n}`,
      offset: n,
      error: null,
      ...answers?.[n],
    }));
    return this.op('p1', from, to, { f: 'push', items }, { f: 'push', results });
  }

  /** Pushes `t<n>` to a broker that keeps it on its disk, under the id `id-<n>` unless given. */
  pushBuffered(from: number, to: number, via: string, n: number, id: string = `id-${n}`): this {
    const items = [{ ...LANE, txn: `t${n}`, payload: `{"n":${n}}` }];
    const results = [{ status: 'buffered', id, offset: null, error: null }];
    return this.op('p1', from, to, { f: 'push', items, via }, { f: 'push', results });
  }

  pushLost(from: number, to: number | null, numbers: number[], fail?: string): this {
    const items = numbers.map((n) => ({ ...LANE, txn: `t${n}`, payload: `{"n":${n}}` }));
    return this.op('p1', from, to, { f: 'push', items }, fail);
  }

  pop(
    from: number,
    to: number,
    lease: string,
    numbers: number[],
    more: { attempt?: number; group?: string } = {},
  ): this {
    const { attempt = 1, group = 'g' } = more;
    const messages = numbers.map((n) => ({ ...stored(n), ...LANE, attempt }));
    const autoAck = lease === '';
    return this.op(
      'c1',
      from,
      to,
      { f: 'pop', group, leaseMs: 2_000, autoAck },
      { f: 'pop', lease, messages },
    );
  }

  ack(
    from: number,
    to: number | null,
    lease: string,
    numbers: number[],
    more: { status?: 'completed' | 'failed' | 'retry' | 'dlq'; verdict?: object; lost?: boolean } = {},
  ): this {
    const items = numbers.map((offset) => ({ ...LANE, offset, status: more.status ?? 'completed' }));
    const verdict = { success: true, noop: false, dlq: false, error: null, ...more.verdict };
    const answer =
      more.lost === true ? undefined : ({ f: 'ack', verdicts: items.map(() => verdict) } as Answer);
    return this.op('c1', from, to, { f: 'ack', group: 'g', lease, items }, answer);
  }

  read(numbers: number[], committed: number, change: (reading: Reading) => void = () => {}): HistoryEvent[] {
    const messages = numbers.map((n) => ({ ...stored(n), ...LANE }));
    const reading = { log: [{ ...LANE, messages }], cursors: [{ group: 'g', ...LANE, committed }] };
    change(reading);
    this.events.push({ at: 1e9, op: ++this.#ops, by: 'reading', type: 'ok', f: 'reading', ...reading });
    return this.events;
  }
}

function stored(n: number) {
  return { offset: n, id: `id-${n}`, txn: `t${n}`, payload: `{"n":${n}}` };
}

const CHECK = { groups: ['g'], slackMs: 0 };

function found(events: HistoryEvent[]): string {
  return checkHistory(events, CHECK).join('\n');
}

/** Three pushes, of which one is repeated; a consumer that dies with a batch, and one that takes it over. */
function sound(): Script {
  return new Script()
    .push(0, 5, [0, 1])
    .pushLost(10, 20, [2, 3])
    .push(30, 35, [2, 3], { 2: { status: 'duplicate' }, 3: { status: 'duplicate' } })
    .pushLost(40, 45, [9], 'refused')
    .push(50, 55, [4])
    .pop(60, 70, 'L1', [0, 1])
    .ack(80, 85, 'L1', [0, 1])
    .pop(90, 95, 'L2', [2, 3])
    .pop(2_100, 2_110, 'L3', [2, 3, 4], { attempt: 2 })
    .ack(2_120, 2_130, 'L2', [2, 3], { verdict: { success: false, error: 'invalid or expired lease' } })
    .ack(2_140, 2_150, 'L3', [2, 3, 4], { lost: true })
    .ack(2_160, 2_170, 'L3', [2, 3, 4], { verdict: { success: false, error: 'invalid or expired lease' } });
}

const ALL = [0, 1, 2, 3, 4];

test('a sound history passes', () => {
  assert.equal(found(sound().read(ALL, 4)), '');
});

test('what only looks wrong passes', () => {
  // The answer of a claim comes after another consumer has acked what it was about: a broker that stood still.
  const late = new Script()
    .push(0, 5, [0, 1])
    .pop(10, 5_000, 'L1', [0, 1])
    .pop(2_500, 2_510, 'L2', [0, 1], { attempt: 2 })
    .ack(2_520, 2_530, 'L2', [0, 1]);
  assert.equal(found(late.read([0, 1], 1)), '');
  // A push without an answer may be stored or not, and in any order with what ran beside it.
  const open = new Script()
    .pushLost(0, null, [1])
    .pushLost(0, null, [7])
    .push(5, 10, [0])
    .pop(20, 30, 'L1', [0, 1])
    .ack(40, 50, 'L1', [0, 1]);
  assert.equal(found(open.read([0, 1], 1)), '');
  // A batch that was given back comes again at once; what was completed below the failure does not.
  const back = new Script()
    .push(0, 5, [0, 1, 2])
    .pop(10, 20, 'L1', [0, 1, 2])
    .ack(30, 40, 'L1', [0])
    .ack(50, 60, 'L1', [1], { status: 'retry' })
    .pop(70, 80, 'L2', [1, 2], { attempt: 2 })
    .ack(90, 95, 'L2', [1, 2]);
  assert.equal(found(back.read([0, 1, 2], 2)), '');
  // A dead letter is passed.
  const dead = new Script()
    .push(0, 5, [0, 1])
    .pop(10, 20, 'L1', [0, 1])
    .ack(30, 40, 'L1', [0], { status: 'dlq', verdict: { dlq: true } })
    .pop(50, 60, 'L2', [1])
    .ack(70, 80, 'L2', [1]);
  assert.equal(found(dead.read([0, 1], 1)), '');
  // Another broker does not know what this one has on its disk: it may store later messages first, and the same one.
  const apart = new Script()
    .pushBuffered(0, 5, 'left', 1)
    .push(10, 15, [0])
    .pushBuffered(20, 25, 'left', 2, 'another id')
    .push(30, 35, [2])
    .pop(50, 60, 'L1', [0, 1, 2])
    .ack(70, 80, 'L1', [0, 1, 2]);
  assert.equal(found(apart.read([0, 1, 2], 2)), '');
  // Commits at delivery.
  const auto = new Script().push(0, 5, [0, 1]).pop(10, 20, '', [0]).pop(30, 40, '', [1]);
  assert.equal(found(auto.read([0, 1], 1)), '');
});

suite('damage to what was stored', () => {
  const damages: [string, () => HistoryEvent[], RegExp][] = [
    [
      'an acknowledged message is gone',
      () => sound().read([0, 1, 2, 3], 3),
      /q\/p#t4 is lost: push 5 answered queued/,
    ],
    [
      'a message is stored twice',
      () => sound().read(ALL, 5, ({ log }) => log[0]!.messages.push({ ...stored(5), ...LANE, txn: 't1' })),
      /t1 is stored twice, at offsets 1 and 5/,
    ],
    [
      'a hole in the offsets',
      () =>
        sound().read(ALL, 5, ({ log }) =>
          log[0]!.messages.splice(4, 1, { ...stored(4), ...LANE, offset: 5 }),
        ),
      /offset 5 where 4 should be/,
    ],
    ['a message that nobody pushed', () => sound().read([...ALL, 5], 5), /t5 at offset 5 was never pushed/],
    [
      'a message that was certainly refused',
      () => sound().read(ALL, 5, ({ log }) => log[0]!.messages.push({ ...stored(9), ...LANE, offset: 5 })),
      /t9 is stored although every answer said that nothing was written/,
    ],
    [
      'a message whose answer said that nothing was written',
      () =>
        new Script()
          .push(0, 5, [0], {
            0: { status: 'failed', error: 'unavailable: no database; nothing was written' },
          })
          .read([0], -1),
      /t0 is stored although every answer said that nothing was written/,
    ],
    [
      'an id that two messages bear',
      () =>
        sound().read(ALL, 4, ({ log }) => {
          log[0]!.messages[4]!.id = 'id-0';
        }),
      /message id id-0 is borne by q\/p#t0 and by q\/p#t4/,
    ],
    [
      'another payload',
      () =>
        sound().read(ALL, 4, ({ log }) => {
          log[0]!.messages[0]!.payload = '{"n":00}';
        }),
      /t0 is stored with a payload that nobody pushed/,
    ],
    [
      'half of a request',
      () => new Script().pushLost(0, 5, [0, 1]).read([0], -1),
      /of push 1 1 of 2 messages are stored/,
    ],
    [
      'a request out of its order',
      () =>
        new Script().pushLost(0, 5, [0, 1]).read([0, 1], -1, ({ log }) => {
          log[0]!.messages = [
            { ...stored(1), ...LANE, offset: 0 },
            { ...stored(0), ...LANE, offset: 1 },
          ];
        }),
      /push 1 is stored out of its order/,
    ],
    [
      'two requests out of their order',
      () => new Script().push(0, 5, [1]).push(10, 15, [0]).read([0, 1], -1),
      /t1 was answered before t0 was sent, but has offset 1 behind 0/,
    ],
    [
      'a message that overtook one on the disk of its broker',
      () => new Script().pushBuffered(0, 5, 'left', 1).pushBuffered(10, 15, 'left', 0).read([0, 1], -1),
      /t1 was answered before t0 was sent, but has offset 1 behind 0/,
    ],
    [
      'a message that was on a disk, and is gone',
      () => new Script().push(0, 5, [0]).pushBuffered(10, 15, 'left', 1).read([0], -1),
      /t1 is lost: push 2 answered buffered/,
    ],
    [
      'a message from a disk under an id that nobody was told',
      () => new Script().pushBuffered(0, 5, 'left', 0, 'another id').read([0], -1),
      /t0: push 1 answered buffered with id another id, stored is id-0/,
    ],
  ];
  for (const [name, events, pattern] of damages) test(name, () => assert.match(found(events()), pattern));
});

suite('damage to what was answered', () => {
  const damages: [string, () => HistoryEvent[], RegExp][] = [
    ['queued twice', () => sound().push(200, 210, [4]).read(ALL, 4), /t4 was answered queued by pushes 5,13/],
    [
      'a duplicate that names another message',
      () =>
        sound()
          .push(200, 210, [4], { 4: { status: 'duplicate', id: 'id-3' } })
          .read(ALL, 4),
      /t4: push 13 answered duplicate with id id-3, stored is id-4/,
    ],
    [
      'a duplicate that names another offset',
      () =>
        sound()
          .push(200, 210, [4], { 4: { status: 'duplicate', offset: 3 } })
          .read(ALL, 4),
      /t4: push 13 answered duplicate at 3, stored at 4/,
    ],
    [
      'a duplicate of nothing',
      () => new Script().push(0, 5, [0], { 0: { status: 'duplicate' } }).read([0], -1),
      /t0: push 1 answered duplicate, but nothing can have stored it before/,
    ],
    [
      'a duplicate of what was refused',
      () =>
        new Script()
          .pushLost(0, 5, [0], 'refused')
          .push(10, 15, [0], { 0: { status: 'duplicate' } })
          .read([0], -1),
      /t0: push 2 answered duplicate, but nothing can have stored it before/,
    ],
  ];
  for (const [name, events, pattern] of damages) test(name, () => assert.match(found(events()), pattern));
});

suite('damage to deliveries', () => {
  const start = () => new Script().push(0, 5, [0, 1, 2, 3]);
  const damages: [string, () => HistoryEvent[], RegExp][] = [
    [
      'a message that was acked before',
      () =>
        start()
          .pop(10, 20, 'L1', [0, 1])
          .ack(30, 40, 'L1', [0, 1])
          .pop(5_000, 5_010, 'L2', [1, 2])
          .read([0, 1, 2, 3], 3),
      /pop 4 delivered offset 1, and 1 was acked before/,
    ],
    [
      'a message that was passed over',
      () =>
        start()
          .pop(10, 20, 'L1', [0, 1])
          .ack(30, 40, 'L1', [0, 1])
          .pop(50, 60, 'L2', [3])
          .read([0, 1, 2, 3], 3),
      /pop 4 starts at offset 3, and nothing above 1 was acked/,
    ],
    [
      'a batch ahead of one that is not acked',
      () => start().pop(10, 20, 'L1', [0, 1]).pop(50, 60, 'L2', [2, 3]).read([0, 1, 2, 3], 3),
      /pop 3 starts at offset 2, and nothing above -1 was acked/,
    ],
    [
      'a hole within a batch',
      () => start().pop(10, 20, 'L1', [0, 2]).read([0, 1, 2, 3], 3),
      /pop 2 delivered offset 2 behind 0/,
    ],
    [
      'a batch backwards',
      () => start().pop(10, 20, 'L1', [1, 0]).read([0, 1, 2, 3], 3),
      /pop 2 delivered offset 0 behind 1/,
    ],
    [
      'two consumers at once',
      () => start().pop(10, 20, 'L1', [0, 1]).pop(30, 40, 'L2', [0, 1], { attempt: 2 }).read([0, 1, 2, 3], 3),
      /pops 2 and 3 both delivered offset 0 while a lease on it was live/,
    ],
    [
      'two consumers in the same instant',
      () => start().pop(10, 40, 'L1', [0, 1]).pop(20, 30, 'L2', [0, 1], { attempt: 2 }).read([0, 1, 2, 3], 3),
      /both delivered offset 0 while a lease on it was live/,
    ],
    [
      'a renewed lease that was taken away',
      () =>
        start()
          .pop(10, 20, 'L1', [0, 1])
          .op('c1', 1_000, 1_010, { f: 'extend', lease: 'L1', seconds: 30 }, { f: 'extend', renewed: 1 })
          .pop(5_000, 5_010, 'L2', [0, 1], { attempt: 2 })
          .read([0, 1, 2, 3], 3),
      /pops 2 and 4 both delivered offset 0 while a lease on it was live/,
    ],
    [
      'a second delivery that claims to be the first',
      () => start().pop(10, 20, 'L1', [0, 1]).pop(5_000, 5_010, 'L2', [0, 1]).read([0, 1, 2, 3], 3),
      /the attempt went from 1 to 1/,
    ],
    [
      'a commit at delivery that comes again',
      () => start().pop(10, 20, '', [0, 1]).pop(15, 40, '', [1, 2]).read([0, 1, 2, 3], 3),
      /pops 2 and 3 both delivered offset 1, though one of them committed it/,
    ],
    [
      'a completion that counts twice',
      () =>
        start()
          .pop(10, 20, 'L1', [0, 1])
          .ack(30, 40, 'L1', [0, 1])
          .ack(35, 45, 'L1', [0, 1])
          .read([0, 1, 2, 3], 3),
      /offset 0 was completed by acks 3 and 4/,
    ],
    [
      'an ack that came too late',
      () => start().pop(10, 20, 'L1', [0, 1]).ack(2_100, 2_110, 'L1', [0, 1]).read([0, 1, 2, 3], 3),
      /ack 3 was accepted 80 ms after its lease had run out/,
    ],
    [
      'a failure that came too late',
      () =>
        start()
          .pop(10, 20, 'L1', [0, 1])
          .ack(2_100, 2_110, 'L1', [0], { status: 'failed' })
          .read([0, 1, 2, 3], 3),
      /ack 3 was accepted 80 ms after its lease had run out/,
    ],
    [
      'another message than the one that is stored',
      () =>
        start()
          .pop(10, 20, 'L1', [0, 1])
          .read([0, 1, 2, 3], 3, ({ log }) => {
            log[0]!.messages[1]!.txn = 't7';
          }),
      /pop 2 delivered t1 at offset 1, stored is t7/,
    ],
    [
      'a lease id for two pops',
      () =>
        start().pop(10, 20, 'L1', [0]).ack(30, 40, 'L1', [0]).pop(50, 60, 'L1', [1]).read([0, 1, 2, 3], 3),
      /pops 2 and 4 bear one lease id/,
    ],
    [
      'a message that was never delivered, under a cursor that says it was',
      () => start().pop(10, 20, 'L1', [0, 1]).ack(30, 40, 'L1', [0, 1]).read([0, 1, 2, 3], 3),
      /g on q\/p: 2 messages were never delivered, the first at offset 2[\s\S]*acked up to 1, stored up to 3/,
    ],
    [
      'a group that has not drained',
      () =>
        start()
          .pop(10, 20, 'L1', [0, 1, 2, 3])
          .ack(30, 40, 'L1', [0, 1, 2, 3], { lost: true })
          .read([0, 1, 2, 3], 2),
      /g on q\/p: the cursor is at 2, the log ends at 3/,
    ],
    ['no reading', () => start().events, /no final reading/],
  ];
  for (const [name, events, pattern] of damages) test(name, () => assert.match(found(events()), pattern));
});

test('a history survives its file', (t) => {
  const directory = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
  t.after(() => rmSync(directory, { recursive: true }));
  const events = sound().read(ALL, 4);
  const file = join(directory, 'history.jsonl');
  writeFileSync(file, events.map((event) => `${JSON.stringify(event)}\n`).join(''));
  assert.deepEqual(readHistory(file), events);
});
