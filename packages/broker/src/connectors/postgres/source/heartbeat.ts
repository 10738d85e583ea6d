/**
 * A word of our own in the upstream's log, when its tables are idle and the rest of it may not be. It comes back through
 * the stream, and the slot moves on although nothing was for us.
 */
import type { Clock } from '../../../engine/clock.ts';
import type { StoreLog } from '../../../store/log.ts';
import { ConnectorFault } from '../fault.ts';
import type { SqlSession } from '../session/types.ts';
import { every } from './time.ts';

interface HeartbeatOptions {
  readonly session: () => Promise<SqlSession>;
  readonly epoch: string;
  readonly everyMs: number;
  /** When something of ours came through the stream. */
  readonly ownMs: () => number;
  readonly clock: Clock;
  readonly log: StoreLog;
}

const LOOKS = 4;
const LOOK_MS_MAX = 1_000;

export class Heartbeat {
  readonly #options: HeartbeatOptions;
  readonly #timer: { cancel(): void };
  #sentMs = Number.NEGATIVE_INFINITY;
  #allowed = true;
  #sending = false;

  constructor(options: HeartbeatOptions) {
    this.#options = options;
    const { clock, everyMs } = options;
    this.#timer = every(clock, Math.min(LOOK_MS_MAX, everyMs / LOOKS), () => void this.#look());
  }

  /** False: the role may not write any, and nothing comes when all is idle. */
  get allowed(): boolean {
    return this.#allowed;
  }

  stop(): void {
    this.#timer.cancel();
  }

  async #look(): Promise<void> {
    const { clock, everyMs, ownMs, session, epoch, log } = this.#options;
    const now = clock.now();
    if (!this.#allowed || this.#sending || now - Math.max(ownMs(), this.#sentMs) < everyMs) return;
    this.#sending = true;
    this.#sentMs = now;
    try {
      const open = await session();
      await open.query("SELECT pg_catalog.pg_logical_emit_message(false, $1::text, 'hb', true)", [
        `queen:${epoch}`,
      ]);
    } catch (error) {
      // Others pass by themselves, with the session that is opened anew.
      if (!(error instanceof ConnectorFault) || error.sqlState !== '42501') return;
      this.#allowed = false;
      log.warn({}, 'the role may not write heartbeats: the slot moves with the keepalives alone');
    } finally {
      this.#sending = false;
    }
  }
}
