/**
 * A running stream: from the socket to the queues, and back to the upstream what is safe.
 *
 * Reading, filling a bundle, and committing the one before go on side by side. Memory is bounded whatever the upstream
 * sends: a few bundles, one read of the socket, one chunk of a snapshot. When the line of bundles is full, the socket is
 * not read, and the server waits.
 */
import type { Clock } from '../../../engine/clock.ts';
import type { SourceSettings } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { pause } from '../pause.ts';
import type { ReplicationConnection, StreamHandler } from '../replication/connection.ts';
import { decodePgoutput } from '../replication/pgoutput.ts';
import type { SqlSession } from '../session/types.ts';
import { Backlog, type Held } from './backlog.ts';
import { type Bundle, Bundler } from './bundler.ts';
import type { CatalogTable } from './catalog.ts';
import type { Committer } from './commit.ts';
import { Confirmation } from './confirmation.ts';
import { readBack, type Wanted } from './read_back.ts';
import { ChangeReader } from './reader.ts';
import type { Snapshot } from './snapshot/snapshot.ts';
import { streamFault } from './stream_fault.ts';
import { every } from './time.ts';
import type { TypeBook } from './types.ts';
import { visible } from './visible.ts';
import { BundleWriter } from './writer.ts';

interface PipelineOptions {
  readonly connection: ReplicationConnection;
  readonly settings: SourceSettings;
  readonly tables: readonly CatalogTable[];
  readonly types: TypeBook;
  readonly committer: Committer;
  readonly snapshot: Snapshot | null;
  /** For what has to be read while the stream goes on. */
  readonly session: () => Promise<SqlSession>;
  /** A longer silence than this means that nobody is there; null: nothing need come. */
  readonly silenceMs: () => number | null;
  readonly clock: Clock;
  readonly committed: (bundle: Bundle) => void;
  /** How long a bundle under way may take when it is stopped. */
  readonly graceMs: number;
}

const ADVANCE_MS = 10_000;
/** A server that waits for its log to be confirmed is given it sooner. */
const HASTY_ADVANCE_MS = 1_000;
const CONFIRM_MS_MAX = 10_000;
const SNAPSHOT_MS = 1_000;
/** Rows that one query reads back: their large values are in memory at once. */
const READ_BACK_MAX = 64;
const FAILED_GRACE_MS = 5_000;
const STOP_MS = 5_000;

export class Pipeline implements StreamHandler {
  readonly reader: ChangeReader;
  readonly #options: PipelineOptions;
  readonly #bundler: Bundler;
  readonly #writer: BundleWriter;
  readonly #backlog = new Backlog();
  readonly #failure: Promise<never>;
  #fail!: (error: unknown) => void;
  #confirmation: Confirmation | null = null;
  /** Something is being read for the first message of the backlog. */
  #held = false;
  #paused = false;
  #ended = false;
  /** Also the time of what came: one look at the clock a message. */
  #heardMs: number;
  /** Who knows when an earlier stream did it: this one does it soon. */
  #advancedMs = Number.NEGATIVE_INFINITY;
  /** The server waits for a confirmation. */
  #asked = false;
  #pumping = false;

  constructor(options: PipelineOptions) {
    this.#options = options;
    const { settings, committer, clock, snapshot, tables, types } = options;
    const start = committer.pointer;
    this.#heardMs = clock.now();
    this.#failure = new Promise<never>((_, reject) => {
      this.#fail = reject;
    });
    this.#failure.catch(() => {});
    const limits = { messagesMax: settings.maxBundleMessages, bytesMax: settings.maxBundleBytes };
    // Tables that the document names no more are not left to be copied.
    const place = { ...start, snapshot: snapshot?.state ?? null };
    this.#bundler = new Bundler(limits, place, (bundle) => this.#writer.add(bundle));
    this.#writer = new BundleWriter({
      bundler: this.#bundler,
      lingerMs: settings.lingerMs,
      clock,
      commit: (bundle) => committer.commit(bundle),
      prepare: (bundle) => committer.prepare(bundle),
      committed: (bundle) => this.#committed(bundle),
      failed: (error) => this.#fail(error),
    });
    this.reader = new ChangeReader({
      epoch: start.epoch,
      start,
      tables,
      types,
      emitTruncates: settings.onTruncate === 'emit',
      bundler: this.#bundler,
      snapshot,
      nowMs: () => this.#heardMs,
    });
  }

  /** Ends it with an error, from outside. */
  fail(error: unknown): void {
    this.#fail(error);
  }

  /** Resolves when the signal has stopped it in order. `started`: the server has agreed. Throws ConnectorFault. */
  async run(signal: AbortSignal, started: () => void): Promise<void> {
    const { connection, committer, settings, clock, snapshot } = this.#options;
    const { slot, publication } = settings;
    const from = committer.pointer.lsn;
    const abort = new Promise<'stopped'>((resolve) => {
      if (signal.aborted) resolve('stopped');
      else signal.addEventListener('abort', () => resolve('stopped'), { once: true });
    });
    let failed = true;
    const timers: { cancel(): void }[] = [];
    try {
      await connection.start({ slot, publication, from }, this);
      const { senderTimeoutMs } = connection;
      const thirdMs = senderTimeoutMs === 0 ? CONFIRM_MS_MAX : senderTimeoutMs / 3;
      this.#confirmation = new Confirmation(connection, clock, {
        safe: from,
        received: () => this.reader.received,
        everyMs: Math.min(CONFIRM_MS_MAX, thirdMs),
      });
      this.#confirmation.tell();
      started();
      timers.push(every(clock, 1_000, () => this.#second()));
      if (snapshot !== null) timers.push(every(clock, SNAPSHOT_MS, () => this.#pump()));
      this.#pump();
      const ended = connection.ended().then(() => {
        throw new ConnectorFault('io', 'the server has ended the stream');
      });
      ended.catch(() => {});
      await Promise.race([abort, this.#failure, ended]);
      failed = false;
    } catch (error) {
      throw streamFault(error, settings);
    } finally {
      for (const timer of timers) timer.cancel();
      await this.#end(failed);
    }
  }

  data(bytes: Buffer, from: number, to: number): void {
    this.#heardMs = this.#options.clock.now();
    if (this.#ended) return;
    if (this.#blocked || !this.#backlog.empty) {
      this.#backlog.add(bytes, from, to);
      this.#pause();
      return;
    }
    const message = decodePgoutput(bytes, from, to);
    if (this.reader.need(message) !== null) {
      this.#backlog.add(bytes, from, to);
      this.#hold();
      return;
    }
    this.reader.take(message, null);
    this.#writer.gathered();
    if (this.#blocked) this.#pause();
  }

  keepalive(walEnd: bigint, reply: boolean): void {
    this.#heardMs = this.#options.clock.now();
    if (this.#ended) return;
    if (this.#backlog.empty && !this.#held) this.reader.keepalive(walEnd);
    if (!reply) return;
    this.#asked = true;
    this.#confirmation?.asked();
    this.#advance(HASTY_ADVANCE_MS);
  }

  get #blocked(): boolean {
    return this.#held || this.#writer.full;
  }

  #pause(): void {
    if (this.#paused) return;
    this.#paused = true;
    this.#options.connection.pause();
  }

  /** Goes on with what was held up, as far as it goes. */
  #resume(): void {
    if (this.#ended || this.#held) return;
    try {
      for (let held = this.#backlog.first; held !== undefined; held = this.#backlog.first) {
        if (this.#blocked) return;
        if (held.read === undefined && this.reader.need(held.message) !== null) {
          this.#hold();
          return;
        }
        this.#backlog.shift();
        this.reader.take(held.message, held.read ?? null);
      }
    } catch (error) {
      this.#fail(error);
      return;
    }
    this.#writer.gathered();
    if (!this.#paused || this.#blocked) return;
    this.#paused = false;
    this.#heardMs = this.#options.clock.now();
    this.#options.connection.resume();
  }

  /** The first message of the backlog needs something that has to be asked for. */
  #hold(): void {
    this.#held = true;
    this.#pause();
    this.#provide()
      .then(() => {
        this.#held = false;
        this.#resume();
      })
      .catch((error: unknown) => this.#fail(error));
  }

  async #provide(): Promise<void> {
    // What this read of the socket has brought comes along, and may be asked for in one go.
    await new Promise<void>((resolve) => setImmediate(resolve));
    const first = this.#backlog.first;
    const need = first === undefined ? null : this.reader.need(first.message);
    if (first === undefined || need === null) return;
    const session = await this.#options.session();
    const wait = (ms: number) => pause(this.#options.clock, ms);
    if (need.kind === 'types') {
      // One that is not found is taken for one that is gone: it must not be too young.
      if (this.reader.xid !== null) await visible(session, new Set([this.reader.xid]), wait);
      await this.#options.types.learn(session, need.oids);
      return;
    }
    const wanted = this.#wanted();
    await readBack(
      session,
      wanted.map(([, one]) => one),
      wait,
    );
    for (const [held, { found }] of wanted) held.read = found;
  }

  /** Rows to be read back, as far as the shape of their relations is known now. */
  #wanted(): [Held, Wanted][] {
    const wanted: [Held, Wanted][] = [];
    let xid = this.reader.xid;
    for (const held of this.#backlog.ahead()) {
      if (held.message.kind === 'relation' || wanted.length === READ_BACK_MAX) break;
      if (held.message.kind === 'begin') xid = held.message.xid;
      const need = this.reader.need(held.message);
      if (need?.kind !== 'row' || xid === null) continue;
      const { key, columns } = need.missing;
      wanted.push([held, { mapped: need.mapped, xid, key, columns, found: null }]);
    }
    return wanted;
  }

  #committed(bundle: Bundle): void {
    const { lsn } = this.#options.committer.pointer;
    const waits = this.#asked && bundle.messages.length === 0;
    if (waits) this.#asked = false;
    this.#confirmation?.moved(lsn, waits);
    this.#advancedMs = this.#options.clock.now();
    this.#options.committed(bundle);
    this.#resume();
    if (this.#writer.waiting === 0) this.#pump();
  }

  #second(): void {
    const { clock } = this.#options;
    this.#advance(ADVANCE_MS);
    const silenceMs = this.#options.silenceMs();
    if (silenceMs !== null && !this.#paused && clock.now() - this.#heardMs > silenceMs) {
      this.#fail(new ConnectorFault('io', `nothing has come from the server for ${silenceMs / 1_000} s`));
    }
  }

  /** Moves the pointer although there is nothing to write, unless it was moved a moment ago. */
  #advance(everyMs: number): void {
    const { clock } = this.#options;
    const resting = this.#bundler.idle && this.#writer.idle && this.#backlog.empty && !this.#held;
    if (!resting || !this.#bundler.moved || clock.now() - this.#advancedMs < everyMs) return;
    this.#advancedMs = clock.now();
    this.#bundler.flush(true);
  }

  /** Lets the snapshot begin its next chunk, or go on with one. */
  #pump(): void {
    const { snapshot } = this.#options;
    if (snapshot === null || snapshot.done || this.#pumping || this.#ended) return;
    this.#pumping = true;
    snapshot
      .pump()
      .catch((error: unknown) => this.#fail(error))
      .finally(() => {
        this.#pumping = false;
      });
  }

  async #end(failed: boolean): Promise<void> {
    this.#ended = true;
    const { graceMs, connection, clock, committer } = this.#options;
    await this.#writer.stop(failed ? Math.min(graceMs, FAILED_GRACE_MS) : graceMs);
    committer.forget();
    this.#confirmation?.stop();
    if (!failed) {
      this.#confirmation?.tell();
      // The slot is free when the server has said so.
      let timer: { cancel(): void } | undefined;
      const late = new Promise<void>((resolve) => {
        timer = clock.after(STOP_MS, resolve);
      });
      await Promise.race([connection.stop().catch(() => {}), late]);
      timer?.cancel();
    }
    await Promise.all([connection.close(), this.#options.snapshot?.close()]);
  }
}
