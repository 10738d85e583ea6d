/** What the tour is played on: a PostgreSQL with logical decoding, a broker, and a terminal that shows what one would type. */

import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import pg from 'pg';
import { type BrokerProcess, startBroker } from '../kit/broker.ts';
import { Upstream } from '../kit/upstream.ts';

export interface StageOptions {
  major: 17 | 18;
  print: (line: string) => void;
}

const PASSWORD = 'secret';
const DATABASE = 'shop';
const WITHIN_MS = 30_000;
const LOOK_EVERY_MS = 100;

export type Row = Record<string, unknown>;

export class Stage {
  readonly #print: (line: string) => void;
  readonly #directory: string;
  readonly #upstream: Upstream;
  readonly #client: pg.Client;
  readonly #broker: BrokerProcess;

  static async open({ major, print }: StageOptions): Promise<Stage> {
    const directory = mkdtempSync(join(tmpdir(), `queen-tour-${process.pid}-`));
    let upstream: Upstream | null = null;
    let broker: BrokerProcess | null = null;
    try {
      // Both at once: each of them makes a database first.
      const [one, other] = await Promise.allSettled([
        Upstream.start({ major }),
        startBroker({
          dataDir: join(directory, 'queen-data'),
          env: { QUEEN_ENCRYPTION_KEY: randomBytes(32).toString('hex'), QUEEN_PG_RELOAD_MS: '500' },
        }),
      ]);
      if (one.status === 'fulfilled') upstream = one.value;
      if (other.status === 'fulfilled') broker = other.value;
      if (one.status === 'rejected') throw one.reason;
      if (other.status === 'rejected') throw other.reason;
      await one.value.administer(`ALTER ROLE postgres PASSWORD '${PASSWORD}'`);
      await one.value.administer(`CREATE DATABASE ${DATABASE}`);
      const { host, port, user } = one.value;
      const client = new pg.Client({ host, port, user, database: DATABASE });
      await client.connect();
      return new Stage(print, directory, one.value, client, other.value);
    } catch (error) {
      await broker?.stop();
      await upstream?.remove();
      rmSync(directory, { recursive: true, force: true });
      throw error;
    }
  }

  private constructor(
    print: (line: string) => void,
    directory: string,
    upstream: Upstream,
    client: pg.Client,
    broker: BrokerProcess,
  ) {
    this.#print = print;
    this.#directory = directory;
    this.#upstream = upstream;
    this.#client = client;
    this.#broker = broker;
  }

  /** The `connection` of a connector that reaches the database. */
  get connection(): Row {
    const { host, port, user } = this.#upstream;
    return { host, port, database: DATABASE, user, password: PASSWORD, sslMode: 'disable' };
  }

  get brokerUrl(): string {
    return this.#broker.url;
  }

  get postgres(): string {
    return `${this.#upstream.host}:${this.#upstream.port}`;
  }

  title(text: string): void {
    this.#print('');
    this.#print(`── ${text} ${'─'.repeat(Math.max(0, 96 - text.length))}`);
  }

  say(text: string): void {
    this.#print(text);
  }

  /** Runs statements, and shows what the last one returned, if anything. */
  async psql(sql: string): Promise<Row[]> {
    this.#type(sql.includes('\n') ? `psql <<'SQL'\n${sql}\nSQL` : `psql -c "${sql}"`);
    const rows = await this.#query(sql);
    if (rows.length > 0) this.#show(asTable(rows));
    return rows;
  }

  /** Asks until the answer is this one, and shows it. */
  async psqlUntil(sql: string, expected: readonly Row[]): Promise<void> {
    this.#type(`psql -c "${sql}"`);
    const rows = await this.until(
      () => this.#query(sql),
      (found) => isDeepStrictEqual(found, expected),
      `the answer is ${JSON.stringify(expected)}`,
    );
    this.#show(asTable(rows));
  }

  async put(name: string, document: Row): Promise<void> {
    const path = `/api/v1/connectors/${name}`;
    const body = JSON.stringify(document, null, 2);
    this.#type(`curl -s -X PUT ${this.#broker.url}${path} -H 'content-type: application/json' -d '${body}'`);
    await this.ask(path, { method: 'PUT', body });
  }

  async post(path: string, document: Row): Promise<void> {
    const body = JSON.stringify(document);
    this.#type(
      `curl -s -X POST ${this.#broker.url}${path} -H 'content-type: application/json' -d '${body.replaceAll("'", "'\\''")}'`,
    );
    await this.ask(path, { method: 'POST', body });
  }

  /** Asks for a connector until its status is as it is waited for, and shows these fields of it. */
  async statusUntil(name: string, fields: readonly string[], good: (status: Row) => boolean): Promise<void> {
    const path = `/api/v1/connectors/${name}`;
    this.#type(`curl -s ${this.#broker.url}${path} \\\n  | jq -c '.status | {${fields.join(', ')}}'`);
    const status = await this.until(
      async () => (JSON.parse(await this.ask(path)) as { status: Row }).status,
      good,
      `the status of ${name} is as it should be`,
    );
    this.#show(JSON.stringify(Object.fromEntries(fields.map((field) => [field, status[field]]))));
  }

  /** Pops until so many messages have come, and shows them with these fields, by partition. */
  async pop(path: string, count: number, fields: readonly string[]): Promise<Row[]> {
    this.#type(`curl -s '${this.#broker.url}${path}' \\\n  | jq -c '.messages[] | {${fields.join(', ')}}'`);
    const texts: string[] = [];
    await this.until(
      async () => {
        const text = await this.ask(path);
        if (text !== '') texts.push(text);
        return texts.reduce((sum, one) => sum + messagesOf(one).length, 0);
      },
      (found) => found >= count,
      `${count} messages have come`,
    );
    // A second time with numbers as they were written: 42.00 is more than 42.
    for (const message of byPartition(texts.flatMap((text) => messagesOf(text, asWritten)))) {
      this.#show(JSON.stringify(Object.fromEntries(fields.map((field) => [field, message[field]]))));
    }
    return byPartition(texts.flatMap((text) => messagesOf(text)));
  }

  async ask(path: string, init?: RequestInit): Promise<string> {
    const response = await fetch(this.#broker.url + path, {
      ...init,
      headers: { 'content-type': 'application/json' },
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${path} answered ${response.status}: ${text}`);
    return text;
  }

  async until<Value>(
    look: () => Promise<Value>,
    good: (value: Value) => boolean,
    what: string,
  ): Promise<Value> {
    const end = performance.now() + WITHIN_MS;
    for (;;) {
      const value = await look();
      if (good(value)) return value;
      if (performance.now() > end) {
        throw new Error(`not within ${WITHIN_MS / 1000} s: ${what}; it is ${JSON.stringify(value)}`);
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    }
  }

  /** What the broker said; for a tour that went wrong. */
  logs(): string {
    return this.#broker.logs();
  }

  async close(): Promise<void> {
    await this.#broker.stop();
    await this.#client.end();
    await this.#upstream.remove();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  /** One statement after the other, as psql sends them: together they would be one transaction. */
  async #query(sql: string): Promise<Row[]> {
    let rows: Row[] = [];
    for (const text of sql.split(/;\s*(?:\n|$)/)) {
      if (text.trim() !== '') ({ rows } = await this.#client.query<Row>({ text, types: AS_PRINTED }));
    }
    return rows;
  }

  #type(command: string): void {
    this.#print('');
    for (const [i, line] of command.split('\n').entries()) this.#print(`${i === 0 ? '$ ' : '  '}${line}`);
  }

  #show(text: string): void {
    for (const line of text.split('\n')) this.#print(`  ${line}`);
  }
}

type Reviver = (name: string, value: unknown, context?: { source?: string }) => unknown;

function messagesOf(answer: string, reviver?: Reviver): Row[] {
  return (JSON.parse(answer, reviver) as { messages: Row[] }).messages;
}

/** As jq does. */
const asWritten: Reviver = (_, value, context) => {
  const { rawJSON } = JSON as unknown as { rawJSON(text: string): unknown };
  return typeof value === 'number' && context?.source !== undefined ? rawJSON(context.source) : value;
};

/** A pop takes partitions in no order. */
function byPartition(messages: Row[]): Row[] {
  return messages.sort((a, b) => (String(a.partition) < String(b.partition) ? -1 : 1));
}

/** Of every type the text that the server sent. */
const AS_PRINTED = { getTypeParser: () => (text: string) => text } as unknown as pg.CustomTypesConfig;

/** As psql draws it. */
function asTable(rows: readonly Row[]): string {
  const names = Object.keys(rows[0]!);
  const cells = rows.map((row) => names.map((name) => String(row[name] ?? '')));
  const widths = names.map((name, i) => Math.max(name.length, ...cells.map((row) => row[i]!.length)));
  const line = (row: string[]) => row.map((cell, i) => ` ${cell.padEnd(widths[i]!)} `).join('|');
  return [
    line(names),
    widths.map((width) => '-'.repeat(width + 2)).join('+'),
    ...cells.map(line),
    `(${rows.length} row${rows.length === 1 ? '' : 's'})`,
  ].join('\n');
}
