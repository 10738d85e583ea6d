/** The judge of a source's events is judged: a sound history passes, and whatever is done to it is noticed. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import type { Row, StoredMessage } from './change_events.ts';
import { checkChanges, type SourceHistory, type TableState } from './check_changes.ts';

const EPOCH = '00c0ffee';
const TABLE = 'public.t';
const JOURNAL = 'public.journal';
const seal = (values: readonly (string | null | undefined)[]) =>
  createHash('md5').update(values.join('|')).digest('hex');

interface Values {
  id: number;
  v: number;
  n: string;
  big: string;
}

const columns = ['id', 'v', 'n', 'big', 'sum'];
const sealOf = ({ id, v, n, big }: Values) => seal([String(id), String(v), n, big]);

/** `leaving`: columns that did not come with it. */
function json(values: Values, leaving: readonly string[] = []): string {
  const members = [
    ['id', values.id],
    ['v', values.v],
    ['n', values.n],
    ['big', JSON.stringify(values.big)],
    ['sum', JSON.stringify(sealOf(values))],
  ] as const;
  return `{${members
    .filter(([name]) => !leaving.includes(name))
    .map(([name, value]) => `"${name}":${value}`)
    .join(',')}}`;
}

/** As a source would have written it: two rows copied, one of them filled, then transactions of all kinds. */
class Story {
  readonly messages: StoredMessage[] = [];
  readonly rows = new Map<number, Values>();
  readonly notes: { id: number; changes: number }[] = [];
  #lsn = 0x1000n;
  #xid = 700;
  #seq = 0;
  #stored = 1;

  copied(...rows: Values[]): void {
    this.#lsn += 0x38n;
    this.#stored++;
    rows.forEach((values, seq) => {
      this.rows.set(values.id, values);
      const text = `{"op":"r","table":"${TABLE}","key":{"id":${values.id}},"after":${json(values)},"before":null,${this.#tail(seq, false)}}`;
      this.#add('q', String(values.id), `pg:${EPOCH}:s:${this.#digits()}:${seq}`, text);
    });
  }

  transaction(...changes: (() => void)[]): void {
    // The first one's commit begins where the chunk's marker ends.
    if (this.notes.length > 0) this.#lsn += 0x138n;
    this.#stored++;
    this.#xid++;
    this.#seq = 0;
    for (const change of changes) {
      change();
      this.#seq++;
    }
    const note = { id: this.notes.length + 1, changes: changes.length };
    this.notes.push(note);
    const row = `{"id":${note.id},"changes":${note.changes}}`;
    const text = `{"op":"c","table":"${JOURNAL}","key":{"id":${note.id}},"after":${row},"before":null,${this.#tail(this.#seq)}}`;
    this.#add('journal', 'all', this.#id(), text);
  }

  insert = (values: Values) => () => {
    this.rows.set(values.id, values);
    this.#event('c', values.id, json(values), 'null');
  };

  update = (id: number, more: Partial<Values>) => () => {
    const before = this.rows.get(id)!;
    const values = { ...before, v: before.v + 1, ...more };
    this.rows.set(id, values);
    this.#event('u', id, json(values), 'null');
  };

  touch = (id: number) => () => {
    const before = this.rows.get(id)!;
    const values = { ...before, v: before.v + 1 };
    this.rows.set(id, values);
    this.#event('u', id, json(values, ['big']), 'null', ',"unchanged":["big"]');
  };

  move = (id: number, to: number) => () => {
    const before = this.rows.get(id)!;
    const values = { ...before, id: to, v: before.v + 1 };
    this.rows.delete(id);
    this.rows.set(to, values);
    this.#event('d', id, 'null', `{"id":${id}}`);
    this.#event('c', to, json(values), 'null', '', '.1');
  };

  remove = (id: number) => () => {
    this.rows.delete(id);
    this.#event('d', id, 'null', `{"id":${id}}`);
  };

  history(): SourceHistory {
    const row = (values: Values): Row =>
      new Map([
        ['id', String(values.id)],
        ['v', String(values.v)],
        ['n', values.n],
        ['big', values.big],
        ['sum', sealOf(values)],
      ]);
    const tables: TableState[] = [
      {
        queue: 'q',
        table: TABLE,
        key: ['id'],
        partitionBy: 'key',
        columns,
        rows: [...this.rows.values()].map(row),
      },
      {
        queue: 'journal',
        table: JOURNAL,
        key: ['id'],
        partitionBy: 'single',
        columns: ['id', 'changes'],
        rows: this.notes.map(
          ({ id, changes }) =>
            new Map([
              ['id', String(id)],
              ['changes', String(changes)],
            ]),
        ),
      },
    ];
    return {
      messages: this.messages,
      tables,
      copiedBy: 0x1037n,
      bundleMessages: 100,
      journal: { table: JOURNAL, column: 'changes' },
      judgeRow(table, found, former) {
        if (table !== TABLE) return null;
        const of = (name: string) => found.get(name);
        if (of('sum') !== seal([of('id'), of('v'), of('n'), of('big')])) return 'its seal is broken';
        const grows = former === null || Number(of('v')) === Number(former.get('v')) + 1;
        return grows ? null : `version ${of('v')} after ${former.get('v')}`;
      },
    };
  }

  #event(op: string, id: number, after: string, before: string, unchanged = '', suffix = ''): void {
    const text = `{"op":"${op}","table":"${TABLE}","key":{"id":${id}},"after":${after},"before":${before}${unchanged},${this.#tail(this.#seq)}}`;
    this.#add('q', String(id), this.#id() + suffix, text);
  }

  #add(queue: string, partition: string, id: string, text: string): void {
    const offset = this.messages.filter((m) => m.queue === queue && m.partition === partition).length;
    this.messages.push({ queue, partition, offset, id, text, stored: String(this.#stored) });
  }

  #digits(): string {
    return this.#lsn.toString(16).toUpperCase().padStart(16, '0');
  }

  #id(): string {
    return `pg:${EPOCH}:${this.#digits()}:${this.#seq}`;
  }

  #tail(seq: number, streamed = true): string {
    const xid = streamed ? `"xid":${this.#xid},` : '';
    return `"lsn":"0/${this.#lsn.toString(16).toUpperCase()}",${xid}"ts":"2026-01-01T00:00:00.${this.#lsn.toString().padStart(6, '0')}Z","seq":${seq}`;
  }
}

function story(): SourceHistory {
  const it = new Story();
  it.copied(
    { id: 1, v: 1, n: '10.50', big: 'x"|}{' },
    { id: 2, v: 4, n: '99999999999999999999.01', big: 'y,y' },
  );
  // The second row of the chunk and the first change have the same position, and numbers the other way round.
  it.transaction(
    it.update(2, { n: '0.01' }),
    it.insert({ id: 3, v: 1, n: '-0.10', big: 'zz' }),
    it.update(1, { n: '11.50' }),
  );
  it.transaction(it.touch(1), it.touch(2), it.update(3, { big: 'ü\\' }));
  it.transaction(it.update(1, { n: '12.50' }));
  it.transaction(it.move(3, 7), it.touch(1), it.touch(7));
  it.transaction(it.remove(2), it.insert({ id: 2, v: 1, n: '0', big: '' }));
  it.transaction(it.update(7, { n: '5' }));
  it.transaction(it.remove(1));
  return it.history();
}

/** Offsets without a gap again, so that nothing but the content tells. */
function renumbered(messages: readonly StoredMessage[]): StoredMessage[] {
  const next = new Map<string, number>();
  return messages.map((message) => {
    const place = `${message.queue}/${message.partition}`;
    const offset = next.get(place) ?? 0;
    next.set(place, offset + 1);
    return { ...message, offset };
  });
}

function objects(history: SourceHistory, messages: readonly StoredMessage[], what: string): void {
  assert.notDeepEqual(checkChanges({ ...history, messages }), [], what);
}

test('a sound history passes', () => {
  assert.deepEqual(checkChanges(story()), []);
});

test('one event is missing', () => {
  const history = story();
  history.messages.forEach((message, i) => {
    objects(history, renumbered(history.messages.toSpliced(i, 1)), message.id);
  });
});

test('one event is there twice, under its id or under another one', () => {
  const history = story();
  history.messages.forEach((message, i) => {
    objects(history, renumbered(history.messages.toSpliced(i, 0, message)), message.id);
    const other = { ...message, id: message.id.includes('.') ? `${message.id}2` : `${message.id}.2` };
    objects(history, renumbered(history.messages.toSpliced(i + 1, 0, other)), other.id);
  });
});

test('two events of a partition have changed places', () => {
  const history = story();
  let swaps = 0;
  for (const one of history.messages) {
    for (const other of history.messages) {
      const same = one.queue === other.queue && one.partition === other.partition;
      if (!same || one.offset >= other.offset) continue;
      swaps++;
      const messages = history.messages.map((message) => {
        if (message === one) return { ...one, offset: other.offset };
        return message === other ? { ...other, offset: one.offset } : message;
      });
      objects(history, messages, `${one.id} and ${other.id}`);
    }
  }
  assert.ok(swaps > 20);
});

test('one digit is another one, anywhere in an event or in its id', () => {
  const history = story();
  history.messages.forEach((message, i) => {
    for (const field of ['text', 'id', 'partition'] as const) {
      for (const { index } of message[field].matchAll(/\d/g)) {
        const digit = (Number(message[field][index]) + 1) % 10;
        const text = `${message[field].slice(0, index)}${digit}${message[field].slice(index + 1)}`;
        objects(history, renumbered(history.messages.with(i, { ...message, [field]: text })), text);
      }
    }
  });
});

test('a row of the table is another one, missing, or one too many', () => {
  const history = story();
  const withRows = (rows: readonly Row[]) => ({
    ...history,
    tables: [{ ...history.tables[0]!, rows }, history.tables[1]!],
  });
  const { rows } = history.tables[0]!;
  rows.forEach((row, i) => {
    objects(withRows(rows.toSpliced(i, 1)), history.messages, 'one less');
    objects(
      withRows(rows.with(i, new Map([...row, ['n', `${row.get('n')}0`]]))),
      history.messages,
      'a digit more',
    );
    objects(withRows([...rows, new Map([...row, ['id', '77']])]), history.messages, 'one more');
  });
});

test('one event of a transaction was stored apart from the others', () => {
  const history = story();
  history.messages.forEach((message, i) => {
    if (message.id.includes(':s:')) return;
    objects(history, history.messages.with(i, { ...message, stored: 'elsewhere' }), message.id);
  });
});

test('an old version is copied after a newer one', () => {
  const it = new Story();
  it.copied({ id: 1, v: 1, n: '1', big: '' });
  it.transaction(it.update(1, { n: '2' }));
  const newer = it.rows.get(1)!;
  it.copied({ id: 1, v: 1, n: '1', big: '' });
  it.rows.set(1, newer);
  it.transaction(it.update(1, { n: '3' }));
  assert.notDeepEqual(checkChanges(it.history()), []);
});

test('a row that changed its key may have newer large values, until an event brings some', () => {
  const it = new Story();
  it.copied({ id: 1, v: 1, n: '1', big: 'old' });
  it.transaction(it.touch(1), it.move(1, 2));
  it.transaction(it.touch(2));
  it.transaction(it.update(2, { big: 'new' }), it.touch(2));
  const ahead: [string, boolean][] = [];
  const judgeRow: SourceHistory['judgeRow'] = (table, row, _former, may) => {
    if (table === TABLE) ahead.push([`${row.get('id')} in version ${row.get('v')}`, may]);
    return null;
  };
  assert.deepEqual(checkChanges({ ...it.history(), judgeRow }), []);
  assert.deepEqual(ahead, [
    ['1 in version 1', false],
    ['1 in version 2', false],
    ['2 in version 3', true],
    ['2 in version 4', true],
    ['2 in version 5', false],
    ['2 in version 6', false],
  ]);
});
