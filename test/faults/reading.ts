/** The end of a fault test: wait until everything has drained, then read all there is through the front door. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Database, statement } from '../../packages/broker/src/store/database.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { FaultClient } from './client.ts';
import type { Reading } from './history.ts';

const LANES = statement(
  'faults_lanes',
  `SELECT q.name AS queue, p.name AS partition, p.id, p.last_offset AS "lastOffset"
     FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id
    WHERE q.name = ANY ($1::text[]) ORDER BY q.name, p.id`,
);
const CURSORS = statement(
  'faults_cursors',
  `SELECT q.name AS queue, p.name AS partition, c.consumer_group AS "group", c.committed
     FROM queen.log_consumers c
     JOIN queen.log_partitions p ON p.id = c.partition_id JOIN queen.queues q ON q.id = p.queue_id
    WHERE q.name = ANY ($1::text[])`,
);

interface Lane {
  queue: string;
  partition: string;
  id: number;
  lastOffset: number;
}

/** Nobody consumes as this group before the end. */
const AUDIT = 'audit';
const AUDIT_BATCH = 500;

/** Settles when every group's cursor is at the end of every log; rejects with who is behind after `withinMs`. */
export async function drained(
  db: Database,
  queues: readonly string[],
  groups: readonly string[],
  withinMs: number,
): Promise<void> {
  const deadline = performance.now() + withinMs;
  for (;;) {
    const behind = await laggards(db, queues, groups);
    if (behind.length === 0) return;
    if (performance.now() > deadline) {
      throw new Error(`not drained within ${withinMs} ms: ${behind.slice(0, 10).join('; ')}`);
    }
    await sleep(100);
  }
}

/** Settles when no broker has anything on its disk any more: from then on the log holds everything. */
export async function spoolsEmpty(urls: readonly string[], withinMs: number): Promise<void> {
  const deadline = performance.now() + withinMs;
  for (const url of urls) {
    for (;;) {
      const answer = await fetch(`${url}/api/v1/status/buffers`).catch(() => null);
      const state =
        answer?.ok === true ? ((await answer.json()) as { pending: number; failed: number }) : null;
      if (state !== null && state.failed > 0) throw new Error(`${url} put ${state.failed} messages aside`);
      if (state?.pending === 0) break;
      if (performance.now() > deadline) {
        throw new Error(`${url} still has ${state?.pending ?? 'nobody knows how many'} messages on disk`);
      }
      await sleep(50);
    }
  }
}

async function laggards(
  db: Database,
  queues: readonly string[],
  groups: readonly string[],
): Promise<string[]> {
  const names = [`{${queues.map((queue) => JSON.stringify(queue)).join(',')}}`];
  const lanes = await db.query<Lane>(LANES, names);
  const cursors = await db.query<Reading['cursors'][number]>(CURSORS, names);
  const committed = new Map(cursors.map((c) => [`${c.group}/${c.queue}/${c.partition}`, c.committed]));
  return lanes.flatMap(({ queue, partition, lastOffset }) =>
    groups
      .filter((group) => (committed.get(`${group}/${queue}/${partition}`) ?? -1) < lastOffset)
      .map(
        (group) =>
          `${group} on ${queue}/${partition} is at ${committed.get(`${group}/${queue}/${partition}`) ?? 'no offset'} of ${lastOffset}`,
      ),
  );
}

/**
 * Every message, as a consumer gets it, and every cursor. Also checks the tables themselves, and that both agree.
 * Rejects when a message cannot be read.
 */
export async function readEverything(url: string, db: Database, queues: readonly string[]): Promise<Reading> {
  const names = [`{${queues.map((queue) => JSON.stringify(queue)).join(',')}}`];
  const report = await assertLogInvariants(db, { windowsNeverRaised: true });
  const lanes = await db.query<Lane>(LANES, names);
  const client = new FaultClient(() => url);
  try {
    const log: Reading['log'] = [];
    for (const { queue, partition, id, lastOffset } of lanes) {
      const messages = await readLane(client, queue, partition, lastOffset);
      const tables = report.messages.get(id) ?? [];
      const differs = messages.findIndex((m, i) => m.id !== tables[i]?.id || m.offset !== tables[i]?.offset);
      if (messages.length !== tables.length || differs >= 0) {
        throw new Error(
          `${queue}/${partition}: ${messages.length} messages came out, ${tables.length} are stored`,
        );
      }
      log.push({ queue, partition, messages });
    }
    return { log, cursors: await db.query<Reading['cursors'][number]>(CURSORS, names) };
  } finally {
    client.close();
  }
}

async function readLane(
  client: FaultClient,
  queue: string,
  partition: string,
  lastOffset: number,
): Promise<Reading['log'][number]['messages']> {
  const out: Reading['log'][number]['messages'] = [];
  const wish = { queue, partition, group: AUDIT, batch: AUDIT_BATCH, waitMs: 0, leaseMs: 0, autoAck: true };
  while ((out.at(-1)?.offset ?? -1) < lastOffset) {
    const { messages } = await client.pop(wish);
    if (messages.length === 0) {
      throw new Error(`${queue}/${partition}: nothing behind ${out.at(-1)?.offset ?? -1} of ${lastOffset}`);
    }
    out.push(...messages.map(({ attempt: _a, partitionId: _p, ...message }) => message));
  }
  return out;
}
