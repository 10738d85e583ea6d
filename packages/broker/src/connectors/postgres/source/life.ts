/**
 * One life of an owner: from the first connection to the upstream to the end of its stream. Whatever goes wrong ends it,
 * and the next life begins from what is committed.
 */
import type { SourceDocument } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { instantNow } from '../instants.ts';
import type { ReplicationConnection } from '../replication/connection.ts';
import { formatLsn } from '../replication/lsn.ts';
import type { UnitContext } from '../unit.ts';
import { type BeginningOptions, settleSlot } from './beginning.ts';
import type { Bundle } from './bundler.ts';
import type { CatalogTable } from './catalog.ts';
import { Committer } from './commit.ts';
import { Heartbeat } from './heartbeat.ts';
import { Pipeline } from './pipeline.ts';
import type { Pointer } from './pointer.ts';
import { settlePublication } from './publication.ts';
import { Snapshot } from './snapshot/snapshot.ts';
import { SqlKeeper } from './sql_keeper.ts';
import { pointerKey, SourceState } from './state.ts';
import { SlotBusy } from './stream_fault.ts';
import { checkServer, checkSystem } from './system.ts';
import { readTables } from './tables.ts';
import { tearDown } from './teardown.ts';
import { pauseUntil, stopped } from './time.ts';
import { TypeBook } from './types.ts';
import { Watch } from './watch.ts';

interface LifeOptions {
  readonly context: UnitContext<SourceDocument>;
  /** For how long the lease has been held. */
  readonly heldMs: () => number;
}

/** Before a slot is looked at again that was taken between a look at it and the start of the stream. */
const BUSY_MS = 100;
const SILENCE_MS = 120_000;
const SLACK_MS = 5_000;
/** A bundle under way is waited for within these, when the source is stopped. */
const GRACE_MS = { least: 1_000, most: 60_000 };

export class Life {
  readonly #context: UnitContext<SourceDocument>;
  readonly #heldMs: () => number;
  readonly #state: SourceState;
  readonly #key: string;
  readonly #applicationName: string;
  readonly #types = new TypeBook();
  /** A session with the upstream stood. */
  connected = false;
  /** Since when its stream has been running; null: it never did. */
  streamingSinceMs: number | null = null;

  constructor({ context, heldMs }: LifeOptions) {
    this.#context = context;
    this.#heldMs = heldMs;
    this.#state = new SourceState(context.broker, context.tenant);
    this.#key = pointerKey(context.document.name);
    this.#applicationName = `${context.applicationName} ${context.document.name}`;
  }

  /** `torn_down`: nothing is left to do. Throws ConnectorFault; `stopped` when the signal was why. */
  async run(signal: AbortSignal): Promise<'stopped' | 'torn_down'> {
    const { document, dialler, status } = this.#context;
    status.enter('connecting');
    status.show({ slot: document.source.slot, publication: document.source.publication });
    const keeper = new SqlKeeper(() => dialler.sql(this.#applicationName, 'source', signal));
    try {
      // First of all: while the store is away, nobody is bothered.
      const found = await this.#state.read(this.#key);
      const session = await keeper.session();
      this.connected = true;
      if (document.deleting !== null) {
        const pause = pauseUntil(this.#context.clock, signal);
        await tearDown(document, session, { state: this.#state, key: this.#key, found, pause });
        return 'torn_down';
      }
      await checkServer(session);
      const wanted = await readTables(session, document.source.tables, this.#types);
      const tables = await settlePublication(session, document.source, wanted);
      await this.#stream(keeper, tables, signal);
      return 'stopped';
    } catch (error) {
      if (signal.aborted) throw stopped();
      throw privileged(error);
    } finally {
      await keeper.close();
    }
  }

  async #stream(keeper: SqlKeeper, tables: CatalogTable[], signal: AbortSignal): Promise<void> {
    const { dialler, clock, status, broker, tenant, document } = this.#context;
    const pause = pauseUntil(clock, signal);
    for (;;) {
      const replication = await dialler.replication(this.#applicationName, signal);
      const abort = (): void => void replication.close();
      // Making a slot may take minutes, and nothing else ends it.
      signal.addEventListener('abort', abort, { once: true });
      try {
        const system = await replication.identify();
        const beginning: BeginningOptions = {
          document,
          state: this.#state,
          key: this.#key,
          session: await keeper.session(),
          replication,
          system,
          applicationName: this.#applicationName,
          status,
          pause,
          heldMs: this.#heldMs,
          leaseTtlMs: this.#context.leaseTtlMs,
        };
        const { pointer, version } = await settleSlot(beginning);
        // Asked again: the log has grown since, and the pointer perhaps with it.
        await checkSystem(replication, await replication.identify(), pointer);
        signal.removeEventListener('abort', abort);
        const committer = new Committer(
          {
            broker,
            state: this.#state,
            tenant,
            key: this.#key,
            clock,
            pause,
            system: { systemId: system.systemId, timeline: system.timeline },
          },
          pointer,
          version,
        );
        await this.#run(keeper, tables, committer, replication, signal);
        return;
      } catch (error) {
        await replication.close();
        if (!(error instanceof SlotBusy)) throw error;
        // Somebody was faster; who, is in the slot's row by then.
        await pause(BUSY_MS);
      } finally {
        signal.removeEventListener('abort', abort);
      }
    }
  }

  async #run(
    keeper: SqlKeeper,
    tables: readonly CatalogTable[],
    committer: Committer,
    connection: ReplicationConnection,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock, document, shutdownGraceMs, status, log } = this.#context;
    const { source } = document;
    const { senderTimeoutMs } = connection;
    const snapshot = this.#snapshot(keeper, tables, committer.pointer, signal);
    const session = () => keeper.session();
    const heartbeatMs = source.heartbeatSeconds * 1_000;
    const pipeline: Pipeline = new Pipeline({
      connection,
      settings: source,
      tables,
      types: this.#types,
      committer,
      snapshot,
      session,
      silenceMs: () =>
        heartbeat.allowed ? Math.max(senderTimeoutMs * 2 || SILENCE_MS, heartbeatMs * 2 + SLACK_MS) : null,
      clock,
      committed: (bundle) => this.#committed(bundle, committer.pointer, pipeline),
      graceMs: Math.min(GRACE_MS.most, Math.max(GRACE_MS.least, shutdownGraceMs)),
    });
    const { slot, publication } = source;
    const heartbeat = new Heartbeat({
      session,
      epoch: committer.pointer.epoch,
      everyMs: heartbeatMs,
      ownMs: () => pipeline.reader.ownMs,
      clock,
      log,
    });
    const fail = (error: unknown): void => pipeline.fail(error);
    let watch: Watch | null = null;
    try {
      await pipeline.run(signal, () => {
        this.streamingSinceMs = clock.now();
        this.#show(committer.pointer, pipeline);
        watch = new Watch({ session, slot, publication, tables, status, clock, fail });
      });
    } finally {
      heartbeat.stop();
      (watch as Watch | null)?.stop();
      status.gauge('slotLagBytes', null);
    }
  }

  #snapshot(
    keeper: SqlKeeper,
    tables: readonly CatalogTable[],
    { snapshot, epoch }: Pointer,
    signal: AbortSignal,
  ): Snapshot | null {
    if (snapshot === null) return null;
    const { clock, log, document, dialler, status } = this.#context;
    return new Snapshot({
      state: snapshot,
      tables,
      settings: document.source,
      epoch,
      session: () => dialler.sql(this.#applicationName, 'source', signal),
      clock,
      log,
      reread: async ({ source }) => {
        try {
          const found = await readTables(await keeper.session(), [source], this.#types);
          return found[0] ?? null;
        } catch (error) {
          if (error instanceof ConnectorFault && error.code === 'table_missing') return null;
          throw error;
        }
      },
      detail: (text) => status.show({ detail: text ?? undefined }),
    });
  }

  #committed(bundle: Bundle, pointer: Pointer, pipeline: Pipeline): void {
    const { status } = this.#context;
    const { messages, transactions, snapshotRows } = bundle;
    if (messages.length > 0) {
      status.count('bundles', 1);
      status.count('messages', messages.length);
      if (transactions > 0) status.count('transactions', transactions);
      if (snapshotRows > 0) status.count('snapshotRows', snapshotRows);
      status.show({ lastCommitAt: instantNow() });
    }
    this.#show(pointer, pipeline);
  }

  #show({ lsn, epoch, systemId, snapshot, resyncedAt }: Pointer, { reader }: Pipeline): void {
    const { status, document } = this.#context;
    const total = document.source.tables.length;
    status.show({
      systemId,
      epoch,
      pointerLsn: formatLsn(lsn),
      resyncedAt: resyncedAt ?? undefined,
      truncatesSkipped: reader.truncatesSkipped,
      snapshot:
        snapshot === null
          ? null
          : {
              tables: total,
              done: Math.max(0, total - snapshot.tables.length),
              table: snapshot.table,
              rows: snapshot.rows,
            },
    });
    status.gauge('pointerLsn', lsn);
    const phase = snapshot === null ? 'streaming' : 'snapshot';
    if (status.phase !== phase) status.enter(phase);
  }
}

/** A right that is missing for what has no code of its own. */
function privileged(error: unknown): unknown {
  if (!(error instanceof ConnectorFault) || error.code !== 'postgres' || error.sqlState !== '42501') {
    return error;
  }
  return new ConnectorFault(
    'privilege',
    `${error.message}: the role needs SELECT on the tables, without a row-level policy in the way, and REPLICATION`,
    { sqlState: error.sqlState, cause: error },
  );
}
