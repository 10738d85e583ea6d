/**
 * Tells the other brokers on the same database what this one has committed, and hears what they have: LISTEN and
 * NOTIFY on a connection of its own. Everything here is a hint. News are gathered on a tick and while a notification
 * is on its way, never sent inside a transaction that writes (NOTIFY takes a lock of the whole cluster at commit),
 * and never waited for.
 *
 * After a reconnect nobody knows what was missed: `onGap` tells the owner to distrust everything. Reconnecting is
 * tried for ever, with a growing pause.
 */

import type { Session } from '../../store/database.ts';
import { listen, notify } from '../../store/hotlist.ts';
import type { StoreLog } from '../../store/log.ts';
import type { Clock, Timer } from '../clock.ts';
import { queueKey } from '../hotlist/hotlist.ts';
import { decodeNews, encodeNews, isFrom, type News, type Outgoing, type ReleasedNews } from './payload.ts';

const TICK_MS = 5;
/** Partitions gathered beyond this are reduced to the names of their queues. */
const PARTITIONS_MAX = 200_000;
/** Partitions of one queue in one round; beyond, the receiver's shared statement finds them cheaper. */
const PAIRS_MAX = 2_000;
const RELEASED_MAX = 10_000;
const RECONNECT_MIN_MS = 100;
const RECONNECT_MAX_MS = 5_000;
const SEND_TIMEOUT_MS = 5_000;

export interface PeersDeps {
  /** Opens a connection outside the pool. */
  session: () => Promise<Session>;
  /** Tells this broker from the others; new at every start. */
  sender: string;
  clock: Clock;
  log: StoreLog;
  onNews: (news: News) => void;
  /** Listening has begun, the first time or again after a loss (`again`). */
  onGap: (again: boolean) => void;
}

interface Gathered {
  tenant: string;
  queue: string;
  /** Null: too many, only the name is sent. */
  partitions: Map<number, number> | null;
}

export class Peers {
  readonly #deps: PeersDeps;
  readonly #appended = new Map<string, Gathered>();
  #released: ReleasedNews[] = [];
  #deleted: { tenant: string; queue: string }[] = [];
  #repairs = false;
  #timers = false;
  #partitions = 0;
  #session: Session | null = null;
  #tick: Timer | null = null;
  #retry: Timer | null = null;
  #pauseMs = RECONNECT_MIN_MS;
  #sending = false;
  #started = false;
  #stopped = false;
  #heard = false;
  readonly counters: {
    sent: number;
    received: number;
    connects: number;
    losses: number;
    sendErrors: number;
  } = {
    sent: 0,
    received: 0,
    connects: 0,
    losses: 0,
    sendErrors: 0,
  };

  constructor(deps: PeersDeps) {
    this.#deps = deps;
  }

  get connected(): boolean {
    return this.#session !== null;
  }

  /** Begins to connect; resolves after the first try, whatever came of it. */
  async start(): Promise<void> {
    this.#started = true;
    await this.#connect();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#tick?.cancel();
    this.#retry?.cancel();
    const session = this.#session;
    this.#session = null;
    await session?.close();
  }

  appended(tenant: string, queue: string, partitionId: number, lastOffset: number): void {
    const key = queueKey(tenant, queue);
    let gathered = this.#appended.get(key);
    if (gathered === undefined) {
      gathered = { tenant, queue, partitions: new Map() };
      this.#appended.set(key, gathered);
    }
    const { partitions } = gathered;
    if (partitions !== null) {
      const before = partitions.get(partitionId);
      if (before === undefined) this.#partitions++;
      if (before === undefined || before < lastOffset) partitions.set(partitionId, lastOffset);
      if (partitions.size > PAIRS_MAX || this.#partitions > PARTITIONS_MAX) {
        this.#partitions -= partitions.size;
        gathered.partitions = null;
      }
    }
    this.#arm();
  }

  released(partitionId: number, group: string, committed: number | null): void {
    // Beyond the cap the receivers' own looks at parked partitions (once a second) do the work.
    if (this.#released.length < RELEASED_MAX) this.#released.push({ group, partitionId, committed });
    this.#arm();
  }

  queueDeleted(tenant: string, queue: string): void {
    this.#deleted.push({ tenant, queue });
    this.#arm();
  }

  repairsPublished(): void {
    this.#repairs = true;
    this.#arm();
  }

  timersScheduled(): void {
    this.#timers = true;
    this.#arm();
  }

  #arm(): void {
    if (!this.#started || this.#stopped || this.#sending) return;
    this.#tick ??= this.#deps.clock.after(TICK_MS, () => {
      this.#tick = null;
      void this.#send();
    });
  }

  async #send(): Promise<void> {
    const session = this.#session;
    const news = this.#take();
    // Nobody to tell it through: the peers will hear of the gap when they miss us, or look for themselves.
    if (session === null) return;
    const payloads = encodeNews(this.#deps.sender, news);
    if (payloads.length === 0) return;
    this.#sending = true;
    try {
      await notify(session, payloads, SEND_TIMEOUT_MS);
      this.counters.sent += payloads.length;
    } catch (error) {
      this.counters.sendErrors++;
      this.#deps.log.warn({ err: error }, 'a notification to the other brokers could not be sent');
    } finally {
      this.#sending = false;
    }
    const gathered = this.#appended.size + this.#released.length + this.#deleted.length;
    if (gathered > 0 || this.#repairs || this.#timers) this.#arm();
  }

  #take(): Outgoing {
    const news: Outgoing = {
      appended: [...this.#appended.values()].map(({ tenant, queue, partitions }) => ({
        tenant,
        queue,
        pairs: [...(partitions ?? [])].flat(),
      })),
      released: this.#released,
      deleted: this.#deleted,
      repairs: this.#repairs,
      timers: this.#timers,
    };
    this.#appended.clear();
    this.#partitions = 0;
    this.#released = [];
    this.#deleted = [];
    this.#repairs = false;
    this.#timers = false;
    return news;
  }

  async #connect(): Promise<void> {
    const { session: open, log } = this.#deps;
    let session: Session | null = null;
    try {
      session = await open();
      session.onNotification((_channel, payload) => this.#receive(payload));
      await listen(session);
      if (this.#stopped) {
        await session.close();
        return;
      }
    } catch (error) {
      void session?.close().catch(() => {});
      if (this.#stopped) return;
      const reason = error instanceof Error ? error.message : String(error);
      log.warn({ reason, retryMs: this.#pauseMs }, 'no connection for notifications, trying again');
      this.#retry = this.#deps.clock.after(this.#pauseMs, () => void this.#connect());
      this.#pauseMs = Math.min(this.#pauseMs * 2, RECONNECT_MAX_MS);
      return;
    }
    this.#session = session;
    this.#pauseMs = RECONNECT_MIN_MS;
    this.counters.connects++;
    session.onClose(() => this.#lost(session));
    const again = this.#heard;
    this.#heard = true;
    this.#deps.onGap(again);
  }

  #lost(session: Session): void {
    if (this.#session !== session) return;
    this.#session = null;
    if (this.#stopped) return;
    this.counters.losses++;
    this.#deps.log.warn({}, 'the connection for notifications was lost');
    this.#retry = this.#deps.clock.after(this.#pauseMs, () => void this.#connect());
  }

  #receive(payload: string): void {
    if (isFrom(this.#deps.sender, payload)) return;
    const news = decodeNews(payload);
    if (news === null) return;
    this.counters.received++;
    this.#deps.onNews(news);
  }
}
