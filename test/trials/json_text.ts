/**
 * What `json` takes and `jsonb` does not, `\u0000` and halves of surrogate pairs: from a table, through a queue, to a
 * copy of either type, and from a producer as well.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Upstream } from '../kit/upstream.ts';
import { Connected, type Trial } from './connected.ts';

export interface JsonPlan {
  /** Half of them are there before the source is. */
  rows: number;
  /** One of so many is odd. */
  oddEvery: number;
  withinMs: number;
}

/** `#` stands for the number of the row. */
const ODD = [
  '{"i":#,"v":"\\u0000"}',
  '{"i":#,"\\ud800":1}',
  '"# \\udc00\\ud800"',
  '{ "i":#, "deep" : [[{"v":"a\\u0000b"}]] }',
  '"\\u0000 #"',
  '["\\uDFFF",  #]',
];
const PLAIN = [
  '{"i":#,"v":"\\ud83d\\ude00 \\u00e9"}',
  '"# \\\\u0000 \\\\ud800"',
  '{ "i":# , "n":1e400}',
  '[#,null]',
];
const REFUSED = /^(22P05|22P02): |^payload: /;

export async function oddJson(t: Trial, plan: JsonPlan): Promise<void> {
  const server = await Upstream.start({ major: 17 }, t);
  const scene = await Connected.open(t, server);
  const { upstream } = scene;
  await upstream.sql(`CREATE TABLE t (id int PRIMARY KEY, doc json NOT NULL);
    CREATE SCHEMA text; CREATE TABLE text.t (id int PRIMARY KEY, doc json NOT NULL);
    CREATE SCHEMA parsed; CREATE TABLE parsed.t (id int PRIMARY KEY, doc jsonb NOT NULL);
    CREATE TABLE parsed.pushed (id int, doc jsonb)`);
  const odd = (id: number) => id % plan.oddEvery === 0;
  const docOf = (id: number) => {
    const list = odd(id) ? ODD : PLAIN;
    return list[Math.floor(id / plan.oddEvery) % list.length]!.replace('#', String(id));
  };
  const ids = Array.from({ length: plan.rows }, (_, i) => i + 1);
  const insert = async (part: number[]) => {
    const rows = JSON.stringify(part.map((id) => [id, docOf(id)]));
    await upstream.sql(
      'INSERT INTO t SELECT (r->>0)::int, (r->>1)::json FROM json_array_elements($1::json) r',
      [rows],
    );
  };
  await insert(ids.slice(0, plan.rows / 2));
  const broker = await scene.broker();
  await scene.source(broker, { tables: [{ table: 't', queue: 'q', partitionBy: 'single' }] });
  const sink = (name: string, block: Record<string, unknown>) =>
    scene.put(broker, name, { kind: 'sink', connection: scene.connection(), sink: block });
  await sink('text', { queue: 'q', table: 'text.t', mode: 'cdc' });
  await sink('parsed', { queue: 'q', table: 'parsed.t', mode: 'cdc' });
  await sink('pushed', { queue: 'p', table: 'parsed.pushed', mode: 'append' });
  await scene.reaches(broker, 'streaming');
  await insert(ids.slice(plan.rows / 2));
  await push(
    broker.url,
    ids.map((id) => [id, docOf(id)] as const),
  );

  await scene.arrived(broker, 2 * plan.rows, plan.withinMs);
  // What a consumer is given is what was pushed and what was in the table, to the character.
  for (const queue of ['q', 'p']) {
    const answers = await popAll(broker.url, queue, plan.rows);
    for (const id of ids)
      assert.ok(answers.includes(`"id":${id},"doc":${docOf(id)}}`), `${queue}: ${docOf(id)}`);
  }
  const count = async (table: string) =>
    Number((await upstream.sql(`SELECT count(*) AS n FROM ${table}`))[0]!.n);
  const good = ids.filter((id) => !odd(id));
  const letters = 2 * (ids.length - good.length);
  const deadline = performance.now() + plan.withinMs;
  const state = async () => ({
    text: await count('text.t'),
    parsed: await count('parsed.t'),
    pushed: await count('parsed.pushed'),
    letters: (await scene.letters()).length,
  });
  const wanted = { text: plan.rows, parsed: good.length, pushed: good.length, letters };
  for (let now = await state(); JSON.stringify(now) !== JSON.stringify(wanted); now = await state()) {
    assert.ok(performance.now() < deadline, `${JSON.stringify(now)}, not ${JSON.stringify(wanted)}`);
    await sleep(100);
  }
  assert.deepEqual(
    await upstream.sql('SELECT id, doc::text FROM text.t ORDER BY id'),
    ids.map((id) => ({ id, doc: docOf(id) })),
  );
  for (const table of ['parsed.t', 'parsed.pushed']) {
    const rows = await upstream.sql(
      `SELECT id, doc = $1::jsonb->((id - 1)::int) AS same FROM ${table} ORDER BY id`,
      [`[${ids.map((id) => (odd(id) ? 'null' : docOf(id))).join()}]`],
    );
    assert.deepEqual(
      rows,
      good.map((id) => ({ id, same: true })),
      table,
    );
  }
  const filed = await scene.letters();
  assert.ok(filed.every(({ group }) => group === 'pg-parsed' || group === 'pg-pushed'));
  for (const { error } of filed) assert.match(error, REFUSED);
  t.diagnostic(
    `${plan.rows} rows, ${ids.length - good.length} of them odd: ${[...new Set(filed.map(({ error }) => error.slice(0, 60)))].join('; ')}`,
  );
  assert.equal(await scene.errors(broker), 0);
  assert.equal((await broker.stop()).code, 0);
}

/** With the texts as they are: no value of this language is the same as some of them. */
async function push(url: string, docs: readonly (readonly [id: number, doc: string])[]): Promise<void> {
  for (let at = 0; at < docs.length; at += 500) {
    const items = docs
      .slice(at, at + 500)
      .map(([id, doc]) => `{"queue":"p","payload":{"id":${id},"doc":${doc}}}`);
    const response = await fetch(`${url}/api/v1/push`, { method: 'POST', body: `{"items":[${items}]}` });
    assert.equal(response.status, 201, await response.text());
  }
}

/** The texts of the answers that hold so many messages. */
async function popAll(url: string, queue: string, messages: number): Promise<string> {
  const texts: string[] = [];
  const query = 'batch=1000&consumerGroup=reader&subscriptionMode=all&autoAck=true';
  for (let seen = 0; seen < messages; ) {
    const response = await fetch(`${url}/api/v1/pop/queue/${queue}?${query}`);
    const text = await response.text();
    assert.equal(response.status, 200, `${response.status} after ${seen} of ${messages} messages: ${text}`);
    seen += (JSON.parse(text) as { messages: unknown[] }).messages.length;
    texts.push(text);
  }
  return texts.join('\n');
}
