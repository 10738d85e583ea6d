/**
 * How far each partition is applied, in a table of the target database, and why that makes a sink's effects happen once.
 *
 * **Invariant.** For a sink and a partition the progress row holds the highest offset up to which every message is
 * either applied to the table or was taken out of the partition for good (dead-lettered, or deleted by retention). A message
 * is applied by a transaction that holds the row's lock, found the offset above the row's, and raises the row to it.
 *
 * **Argument.** Rows of the table and rows of the progress commit together or not at all, so whatever happens after the commit
 * (a lost acknowledgement, a lease that ran out, a kill) brings messages back that the row says are done: they are skipped. And
 * whatever happens before it leaves neither. Two workers that hold one partition, because its lease passed from one to the
 * other, meet at the lock: the second reads the row after the first has committed or rolled back. That needs a fresh look at
 * the row behind the lock, which READ COMMITTED gives and the stricter levels refuse, hence the level is named in BEGIN. A COMMIT without an answer
 * needs no guess: the same messages begin again and the row decides. Rows are locked in the order of their partition ids, so
 * that two batches never wait for each other in a circle.
 *
 * The lease of the queue and its cursor carry none of this. The lease keeps workers from doing the same work twice in vain, the
 * acknowledgement keeps done work from coming back.
 *
 * **A poison message** stops its partition: what lies behind it is not applied, and its own offset enters the row only with a
 * later message, after the hand-over to the dead letters has moved the queue's cursor past it. Were it to enter before, a crash
 * in between would lose the message: skipped here, and never filed there.
 *
 * **The other way round.** Offsets and ids of partitions come from the store. A store that was set back to an earlier moment
 * gives the same offsets out again, for other messages, which the rows would then skip. So a row above the end of its log, or
 * under another partition's name, stops the sink and says so. A store that was made anew has another id, which is part of the
 * sink's name here, so that it never meets rows of the former one.
 *
 * Rejected: marking each message as applied (a row a message, for ever, where one row a partition tells the same); a
 * prepared transaction across both databases (locks that outlive a crashed broker, for an atomicity that nobody needs).
 */
import type { BrokerFace, TenantId } from '../../../engine/types.ts';
import type { SinkSettings } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { qualified } from '../identifiers.ts';
import type { SqlResult } from '../session/types.ts';
import { all } from './all.ts';
import type { Prepared } from './prepared.ts';

/** A partition as it was popped. */
export interface Claimed {
  readonly partitionId: string;
  readonly partition: string;
  /** The end of its log at that moment. */
  readonly logEnd: number;
}

const TRIES_MAX = 20;

export class Progress {
  readonly #sink: string;
  readonly #texts: { begin: string; add: string; lock: string; advance: string };
  readonly #table: string;
  readonly #logEndOf: (partition: string) => Promise<number>;

  /**
   * @param sink names the sink in the table, for all stores, tenants and connectors that share it
   * @param logEndOf the last offset of a partition as the store knows it now
   */
  constructor(sink: string, settings: SinkSettings, logEndOf: (partition: string) => Promise<number>) {
    const { schema, table } = settings.progressTable;
    this.#sink = sink;
    this.#table = `${schema}.${table}`;
    this.#texts = textsFor(qualified(schema, table));
    this.#logEndOf = logEndOf;
  }

  /**
   * Opens the transaction and locks the rows of these partitions; answers the last applied offset of each, by its id. Throws
   * ConnectorFault; then the transaction may be open.
   */
  async begin(session: Prepared, claimed: readonly Claimed[]): Promise<Map<string, number>> {
    const ids = `{${claimed.map(({ partitionId }) => partitionId).join(',')}}`;
    const names = JSON.stringify(
      claimed.map(({ partitionId, partition }) => ({ i: partitionId, p: partition })),
    );
    const look = () => [
      session.run(this.#texts.add, [this.#sink, names], { joined: true }),
      session.run(this.#texts.lock, [this.#sink, ids]),
    ];
    const begun = [session.session.query(this.#texts.begin, [], { joined: true }), session.assertKept()];
    let answers = (await all([...begun, ...look()])).slice(begun.length);
    // Somebody who deletes rows may do so between the two.
    for (let tries = 1; answers[1]!.rows.length < claimed.length; tries++) {
      if (tries === TRIES_MAX) throw this.#hidden();
      answers = await all(look());
    }
    return this.#checked(claimed, answers[1]!);
  }

  /** Raises the rows, by partition id. Goes out without being waited for; the commit follows it. */
  advance(session: Prepared, claimed: readonly { partitionId: string; partition: string; offset: number }[]) {
    const rows = claimed.map(({ partitionId, partition, offset }) => ({
      i: partitionId,
      p: partition,
      o: offset,
    }));
    return session.run(this.#texts.advance, [this.#sink, JSON.stringify(rows)]);
  }

  async #checked(claimed: readonly Claimed[], { rows }: SqlResult): Promise<Map<string, number>> {
    const byId = new Map(
      rows.map(([id, last, partition]) => [id!, { last: Number(last), partition: partition! }]),
    );
    const done = new Map<string, number>();
    for (const { partitionId, partition, logEnd } of claimed) {
      const row = byId.get(partitionId)!;
      if (row.last >= 0 && row.partition !== partition) {
        throw this.#ahead(
          `it knows partition ${partitionId} as "${row.partition}", the queue as "${partition}"`,
        );
      }
      // Above what was popped it may well be: others have been at work since. The store tells.
      if (row.last > logEnd && row.last > (await this.#logEndOf(partition))) {
        throw this.#ahead(`it has applied offset ${row.last} of partition "${partition}", which ends before`);
      }
      done.set(partitionId, row.last);
    }
    return done;
  }

  #hidden(): ConnectorFault {
    return new ConnectorFault(
      'progress_table',
      `${this.#table} does not show the rows that were just inserted: no policy may hide them, no trigger suppress them`,
    );
  }

  #ahead(what: string): ConnectorFault {
    return new ConnectorFault(
      'progress_ahead',
      `${this.#table} is ahead of the store: ${what}. The store lost messages that were already applied; delete the rows ` +
        `of sink '${this.#sink}' there to apply what the queue holds from now on`,
    );
  }
}

function textsFor(table: string) {
  const rows = (columns: string) =>
    `pg_catalog.json_to_recordset($2::pg_catalog.text::pg_catalog.json) AS x(${columns})`;
  return {
    begin: 'BEGIN ISOLATION LEVEL READ COMMITTED',
    add:
      `INSERT INTO ${table} (sink, partition_id, partition, last_offset, updated_at) ` +
      `SELECT $1, x.i, x.p, -1, pg_catalog.now() FROM ${rows('i pg_catalog.int8, p pg_catalog.text')} ORDER BY x.i ` +
      'ON CONFLICT (sink, partition_id) DO NOTHING',
    lock:
      `SELECT partition_id, last_offset, partition FROM ${table} ` +
      'WHERE sink = $1 AND partition_id = ANY ($2::pg_catalog.int8[]) ORDER BY partition_id FOR UPDATE',
    advance:
      `UPDATE ${table} AS p SET last_offset = x.o, partition = x.p, updated_at = pg_catalog.now() ` +
      `FROM ${rows('i pg_catalog.int8, p pg_catalog.text, o pg_catalog.int8')} ` +
      'WHERE p.sink = $1 AND p.partition_id = x.i AND p.last_offset < x.o',
  };
}

/** The name under which a sink's rows stand in a progress table that others may share. */
export function sinkName(storeId: string, tenant: TenantId, connector: string): string {
  return `${storeId}/${tenant}/${connector}`;
}

/** The last offset of a partition of `queue`, asked of the store. */
export function logEnds(
  broker: Pick<BrokerFace, 'records'>,
  tenant: TenantId,
  queue: string,
): (partition: string) => Promise<number> {
  return async (partition) => {
    const [found] = await broker.records.offsets({
      tenant,
      entries: [{ queue, partition, atMicros: 0 }],
    });
    return (found?.highWatermark ?? 0) - 1;
  };
}
