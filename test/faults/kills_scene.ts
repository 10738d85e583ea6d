/**
 * Brokers with a source between two PostgreSQL servers, the one that they keep their own in and the one that they read
 * from, all of which can be killed; and the way from there to a judgement.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { unpackSegment } from '../../packages/broker/src/log/segment.ts';
import { Database, statement } from '../../packages/broker/src/store/database.ts';
import { CLUSTER } from '../../packages/broker/src/store/embedded/cluster.ts';
import { processesIn } from '../../packages/broker/src/store/embedded/processes.ts';
import { Client } from '../broker/client.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { Upstream, type UpstreamDatabase } from '../kit/upstream.ts';
import { parsePlace, type StoredMessage } from './change_events.ts';
import { checkChanges, type SourceHistory } from './check_changes.ts';
import { OwnServer } from './outages.ts';
import type { Chance } from './seed.ts';
import { SupervisedBroker } from './supervisor.ts';
import { JOURNAL, judgeRow, type UpstreamLoad } from './upstream_load.ts';

export const LEASE_MS = 3_000;

export interface SceneOptions {
  brokers: number;
  major: 17 | 18;
  env?: Record<string, string>;
}

export interface SourceView {
  status: { phase: string; error: { code: string; message: string } | null };
  state: { pointer: Pointer | null; lease: { node: string } | null } | null;
}

interface Pointer {
  epoch: string;
  lsn: string;
  snapshot: object | null;
  inTxn: { done: number } | null;
}

const SEGMENTS = statement(
  'faults_segments',
  `SELECT q.name AS queue, p.name AS partition, s.base_offset AS base, s.end_offset AS "end", s.xmin::text AS stored, s.blob
     FROM queen.log_segments s JOIN queen.log_partitions p ON p.id = s.partition_id JOIN queen.queues q ON q.id = p.queue_id
    WHERE q.name = ANY ($1::text[]) ORDER BY q.name, p.name, s.base_offset`,
);
const ENDS = statement(
  'faults_ends',
  `SELECT coalesce(sum(p.last_offset + 1), 0)::int AS messages
     FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = ANY ($1::text[])`,
);

export class KillsScene {
  readonly store: OwnServer;
  readonly upstream: Upstream;
  readonly database: UpstreamDatabase;
  readonly brokers: SupervisedBroker[] = [];
  /** What the source was seen to do that it must never do. */
  readonly seen: string[] = [];
  /** From there on the snapshot was seen to be over. */
  copiedBy: bigint | null = null;
  readonly owners = new Set<string>();
  readonly #t: Cleanup & { diagnostic(text: string): void };
  #watching: Promise<void> = Promise.resolve();
  #watched = false;

  private constructor(
    t: Cleanup & { diagnostic(text: string): void },
    store: OwnServer,
    upstream: Upstream,
    database: UpstreamDatabase,
  ) {
    this.#t = t;
    this.store = store;
    this.upstream = upstream;
    this.database = database;
  }

  static async start(
    t: Cleanup & { diagnostic(text: string): void },
    options: SceneOptions,
  ): Promise<KillsScene> {
    const [store, upstream] = await Promise.all([
      OwnServer.start(t),
      Upstream.start({ major: options.major }, t),
    ]);
    const scene = new KillsScene(t, store, upstream, await upstream.database());
    const env = { QUEEN_PG_RELOAD_MS: '500', QUEEN_PG_LEASE_TTL_MS: String(LEASE_MS), DB_POOL_SIZE: '8' };
    for (let i = 0; i < options.brokers; i++) {
      const name = `broker-${i + 1}`;
      const own = { ...env, QUEEN_SERVER_ID: name, ...options.env };
      scene.brokers.push(await SupervisedBroker.start({ name, database: { url: store.url }, env: own }, t));
    }
    atEnd(t, () => {
      scene.#watched = false;
      return scene.#watching;
    });
    return scene;
  }

  async put(name: string, document: Record<string, unknown>, url = this.brokers[0]!.url): Promise<void> {
    const answer = await new Client(url).call('PUT', `/api/v1/connectors/${name}`, document);
    assert.equal(answer.status, 200, JSON.stringify(answer.body));
  }

  connection(database: UpstreamDatabase = this.database): Record<string, unknown> {
    const { host, port, user } = database.server;
    return { host, port, user, database: database.name, sslMode: 'disable', connectTimeoutMs: 5_000 };
  }

  /** What the first broker that answers says of a connector. */
  async look(name = 'source'): Promise<SourceView> {
    for (const { url } of this.brokers) {
      const answer = await ask(`${url}/api/v1/connectors/${name}`);
      if (answer !== null) return answer as SourceView;
    }
    throw new Error('no broker answers');
  }

  /** The broker that holds the lease. */
  async owner(name = 'source'): Promise<SupervisedBroker | null> {
    const node = (await this.look(name)).state?.lease?.node;
    return this.brokers.find((broker) => broker.name === node) ?? null;
  }

  /** From now on the slot is compared with the pointer, as often as it goes. */
  watch(slot: string, name = 'source'): void {
    this.#watched = true;
    this.#watching = this.#watch(slot, name);
  }

  /** Settles when the queues have everything that the upstream had when it was called, and the snapshot is over. */
  async settled(load: UpstreamLoad, withinMs: number, name = 'source'): Promise<void> {
    await Promise.all(this.brokers.map((broker) => broker.settled()));
    const end = parsePlace(await load.mark());
    const deadline = performance.now() + withinMs;
    for (;;) {
      const view = await this.look(name).catch(() => null);
      const pointer = view?.state?.pointer;
      const done = pointer && pointer.snapshot === null && pointer.inTxn === null;
      if (done && parsePlace(pointer.lsn) > end) {
        this.copiedBy ??= parsePlace(pointer.lsn);
        return;
      }
      if (performance.now() > deadline) {
        this.keepLogs();
        throw new Error(`not settled within ${withinMs} ms: ${JSON.stringify(view)}`);
      }
      await sleep(100);
    }
  }

  /** A way to the store past the brokers; the caller closes it. */
  openStore(): Promise<Database> {
    return Database.open(this.store.options);
  }

  /** All that these queues hold. */
  async messages(queues: readonly string[]): Promise<StoredMessage[]> {
    const db = await this.openStore();
    return readMessages(db, queues).finally(() => db.close());
  }

  /** Reads everything, judges it, and looks whether more comes for the life of a lease. */
  async judge(
    load: UpstreamLoad,
    asked: Pick<SourceHistory, 'bundleMessages'> & Partial<SourceHistory>,
  ): Promise<StoredMessage[]> {
    this.#watched = false;
    await this.#watching;
    const queues = [...new Set([...load.tables.map(({ queue }) => queue), 'journal'])];
    const db = await this.openStore();
    try {
      const messages = await readMessages(db, queues);
      const tables = [...(await load.read()), await load.readJournal()];
      const history = {
        messages,
        tables,
        copiedBy: this.copiedBy ?? 0n,
        journal: JOURNAL,
        judgeRow,
        ...asked,
      };
      const faults = [...checkChanges(history), ...this.seen];
      if (faults.length > 0) this.keepLogs(messages);
      assert.deepEqual(faults.slice(0, 20), [], `${faults.length} faults`);
      assert.ok(messages.length > 0);
      // Not a condition to wait for: that nothing comes.
      await sleep(LEASE_MS + 500);
      assert.equal(
        (await db.query<{ messages: number }>(ENDS, [names(queues)]))[0]!.messages,
        messages.length,
      );
      assert.deepEqual(
        this.brokers.flatMap(({ unexpected }) => unexpected),
        [],
      );
      return messages;
    } finally {
      await db.close();
    }
  }

  /** For whoever looks into a failure. */
  keepLogs(messages: readonly StoredMessage[] = []): void {
    const directory = mkdtempSync(join(tmpdir(), 'queen-fault-'));
    for (const broker of this.brokers) writeFileSync(join(directory, `${broker.name}.log`), broker.logs());
    const lines = messages.map((message) => `${JSON.stringify(message)}\n`);
    writeFileSync(join(directory, 'messages.jsonl'), lines.join(''));
    this.#t.diagnostic(`logs and messages are in ${directory}`);
  }

  async #watch(slot: string, name: string): Promise<void> {
    let last = 0n;
    while (this.#watched) {
      await sleep(100);
      // The slot first: the pointer may only be ahead of it.
      const rows = await this.database
        .sql('SELECT confirmed_flush_lsn::text AS lsn FROM pg_replication_slots WHERE slot_name = $1', [slot])
        .catch(() => []);
      const view = await this.look(name).catch(() => null);
      const pointer = view?.state?.pointer;
      if (!pointer) continue;
      const at = parsePlace(pointer.lsn);
      if (view?.state?.lease) this.owners.add(view.state.lease.node);
      if (at < last) this.seen.push(`the pointer went from ${last} back to ${at}`);
      last = at;
      const confirmed = rows[0]?.lsn;
      if (typeof confirmed === 'string' && parsePlace(confirmed) > at) {
        this.seen.push(`the slot was at ${confirmed} while the pointer was at ${pointer.lsn}`);
      }
      if (pointer.snapshot === null) this.copiedBy ??= at;
    }
  }
}

export async function readMessages(db: Database, queues: readonly string[]): Promise<StoredMessage[]> {
  const messages: StoredMessage[] = [];
  const rows = await db.query<{
    queue: string;
    partition: string;
    base: number;
    end: number;
    stored: string;
    blob: Buffer;
  }>(SEGMENTS, [names(queues)]);
  for (const { queue, partition, base, end, stored, blob } of rows) {
    const frames = await unpackSegment(blob, end - base + 1);
    frames.forEach(({ transactionId, payload }, i) => {
      messages.push({
        queue,
        partition,
        offset: base + i,
        id: transactionId,
        text: payload.toString('utf8'),
        stored,
      });
    });
  }
  return messages;
}

function names(queues: readonly string[]): string {
  return `{${queues.map((queue) => JSON.stringify(queue)).join(',')}}`;
}

async function ask(url: string): Promise<unknown> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(3_000) });
    const body: unknown = await response.json();
    return response.ok ? body : null;
  } catch {
    return null;
  }
}

/** Kills the first process of a server, whose children see it and go, or all of them at once. */
export function killServer(cluster: string, chance: Chance): void {
  const found = processesIn(cluster);
  const pids = new Set(found.map(({ pid }) => pid));
  const main = found.filter(({ parent }) => !pids.has(parent));
  for (const { pid } of chance.chance(0.5) ? main : [...main, ...found]) signal(pid, 'SIGKILL');
}

export function clusterOf(server: OwnServer): string {
  return join(server.directory, CLUSTER);
}

export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
