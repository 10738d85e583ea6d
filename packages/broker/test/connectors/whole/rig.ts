/** A broker with a source, an upstream, and a consumer that keeps what it popped, byte for byte. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { type BrokerProcess, startBroker } from '../../../../../test/kit/broker.ts';
import type { Cleanup } from '../../../../../test/kit/cleanup.ts';
import { freshDatabase } from '../../../../../test/kit/postgres.ts';
import { Upstream, type UpstreamDatabase } from '../../../../../test/kit/upstream.ts';
import { skipValue } from '../../../src/log/json/grammar.ts';

export interface Popped {
  readonly partition: string;
  readonly transactionId: string;
  /** The payload as it was delivered. */
  readonly text: string;
}

export interface ChangeEvent {
  op: 'c' | 'u' | 'd' | 'r' | 't';
  table: string;
  key: Record<string, unknown>;
  after: Record<string, unknown> | null;
  before: Record<string, unknown> | null;
  unchanged?: string[];
  lsn: string;
  xid?: number;
  ts: string;
  seq: number;
}

export type Status = Record<string, unknown> & {
  phase: string;
  error: { code: string; message: string } | null;
};

const WITHIN_MS = 30_000;

export class SourceRig {
  readonly upstream: Upstream;
  readonly broker: BrokerProcess;

  readonly #ends: readonly (() => unknown)[];

  private constructor(upstream: Upstream, broker: BrokerProcess, ends: readonly (() => unknown)[]) {
    this.upstream = upstream;
    this.broker = broker;
    this.#ends = ends;
  }

  static async start(major: 17 | 18): Promise<SourceRig> {
    const ends: (() => unknown)[] = [];
    const t: Cleanup = { after: (work: () => unknown) => void ends.push(work) } as Cleanup;
    const upstream = await Upstream.start({ major }, t);
    const database = await freshDatabase(t);
    const env = { QUEEN_ENCRYPTION_KEY: randomBytes(32).toString('hex'), QUEEN_PG_RELOAD_MS: '500' };
    // Sources meet each other's lease in a second broker; what is tested here is what they write.
    const broker = await startBroker({ database, env, alone: 'a test reads the status of its node' }, t);
    return new SourceRig(upstream, broker, ends);
  }

  async close(): Promise<void> {
    for (const end of this.#ends.toReversed()) await end();
  }

  async request(method: string, path: string, body?: unknown): Promise<{ status: number; text: string }> {
    const response = await fetch(this.broker.url + path, {
      method,
      headers: { 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, text: await response.text() };
  }

  /** Puts a source and returns at once. */
  async put(
    name: string,
    database: UpstreamDatabase,
    source: Record<string, unknown>,
    connection: Record<string, unknown> = {},
  ): Promise<void> {
    const { host, port, user } = this.upstream;
    const { status, text } = await this.request('PUT', `/api/v1/connectors/${name}`, {
      kind: 'source',
      connection: { host, port, user, database: database.name, sslMode: 'disable', ...connection },
      source: { lingerMs: 5, ...source },
    });
    assert.equal(status, 200, text);
  }

  async status(name: string): Promise<Status> {
    const { status, text } = await this.request('GET', `/api/v1/connectors/${name}`);
    assert.equal(status, 200, text);
    return JSON.parse(text).status as Status;
  }

  /** Waits until its status is as asked. An error that nobody asked for ends the waiting. */
  async reached(name: string, good: (status: Status) => boolean): Promise<Status> {
    const end = performance.now() + WITHIN_MS;
    for (;;) {
      const status = await this.status(name);
      if (good(status)) return status;
      const late = performance.now() > end;
      if (late || (status.phase === 'error' && !PASSING.has(status.error?.code ?? ''))) {
        assert.fail(`${name}: ${JSON.stringify(status)}\n${this.broker.logs().slice(-3_000)}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  streaming(name: string): Promise<Status> {
    return this.reached(name, ({ phase }) => phase === 'streaming');
  }

  async remove(name: string): Promise<void> {
    const { status, text } = await this.request('DELETE', `/api/v1/connectors/${name}`);
    assert.ok(status < 300, text);
    const end = performance.now() + WITHIN_MS;
    for (;;) {
      const found = await this.request('GET', `/api/v1/connectors/${name}`);
      if (found.status === 404) return;
      assert.ok(performance.now() < end, found.text);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

const PASSING = new Set(['io', 'queen']);

/** Takes the messages of a queue as one consumer group does. */
export class Consumer {
  readonly #rig: SourceRig;
  readonly #queue: string;
  readonly messages: Popped[] = [];

  constructor(rig: SourceRig, queue: string) {
    this.#rig = rig;
    this.#queue = queue;
  }

  get events(): ChangeEvent[] {
    return this.messages.map(({ text }) => JSON.parse(text) as ChangeEvent);
  }

  /** Pops until there are so many, and returns those since the last call, in the order of their ids. */
  async take(count: number): Promise<Popped[]> {
    const begun = this.messages.length;
    await this.until(() => this.messages.length - begun >= count, `${count} messages`);
    const taken = this.messages.slice(begun);
    assert.equal(taken.length, count, taken.map(({ text }) => text).join('\n'));
    return taken.sort((a, b) => (a.transactionId < b.transactionId ? -1 : 1));
  }

  async until(done: () => boolean, what: string): Promise<void> {
    const end = performance.now() + WITHIN_MS;
    while (!done()) {
      assert.ok(
        performance.now() < end,
        `not in time: ${what}; there are ${this.messages.length}\n${this.#rig.broker.logs().slice(-3_000)}`,
      );
      await this.#pop();
    }
  }

  async #pop(): Promise<void> {
    const { status, text } = await this.#rig.request(
      'GET',
      `/api/v1/pop/queue/${encodeURIComponent(this.#queue)}?batch=2000&partitions=0&consumerGroup=t&subscriptionMode=all&autoAck=true&wait=true&timeout=500`,
    );
    if (status === 204) return;
    assert.equal(status, 200, text);
    for (const message of messagesOf(text)) this.messages.push(message);
  }
}

/** The messages of a pop's answer, with their payloads as they stand there. */
function messagesOf(answer: string): Popped[] {
  const parsed = JSON.parse(answer) as { messages: { partition: string; transactionId: string }[] };
  const bytes = Buffer.from(answer);
  let at = 0;
  return parsed.messages.map(({ partition, transactionId }) => {
    const start = bytes.indexOf('"data":{"op":', at) + '"data":'.length;
    at = skipValue(bytes, start, 0);
    return { partition, transactionId, text: bytes.toString('utf8', start, at) };
  });
}

/** What a consumer's table holds that applies the events, by key; and whether they came in order. */
export function fold(messages: readonly Popped[]): Map<string, Record<string, unknown>> {
  const rows = new Map<string, Record<string, unknown>>();
  const ids = new Set<string>();
  const last = new Map<string, [lsn: bigint, seq: number]>();
  for (const { partition, transactionId, text } of messages) {
    assert.ok(!ids.has(transactionId), `${transactionId} came twice`);
    ids.add(transactionId);
    const event = JSON.parse(text) as ChangeEvent;
    const place = lsnOf(event.lsn);
    const before = last.get(partition);
    if (before !== undefined) {
      assert.ok(place >= before[0], `${partition}: ${event.lsn} after ${before[0]}`);
    }
    last.set(partition, [place, event.seq]);
    const key = JSON.stringify(Object.values(event.key));
    if (event.op === 'd') rows.delete(key);
    else {
      const old =
        event.before === null
          ? undefined
          : JSON.stringify(Object.keys(event.key).map((c) => event.before![c]));
      const known = rows.get(old ?? key) ?? {};
      if (old !== undefined && old !== key) rows.delete(old);
      rows.set(key, event.op === 'u' ? { ...known, ...event.after } : { ...event.after });
    }
  }
  return rows;
}

export function lsnOf(text: string): bigint {
  const [high, low] = text.split('/');
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`);
}
