/**
 * Tells the upstream how far we are: what arrived, and what is safe and may be forgotten. Sent regularly whatever else the
 * source does, since a server that hears nothing cuts the connection; and never more than what is committed.
 */
import type { Clock, Timer } from '../../../engine/clock.ts';
import type { ReplicationConnection } from '../replication/connection.ts';
import { every } from './time.ts';

/** After commits it is told at most this often. */
const TOLD_MS = 1_000;
/** A server that is about to end asks again as soon as it was answered. */
const ANSWER_MS = 20;

export class Confirmation {
  readonly #connection: Pick<ReplicationConnection, 'confirm'>;
  readonly #clock: Clock;
  readonly #regular: { cancel(): void };
  /** Read when it is told. */
  readonly #received: () => bigint;
  #safe: bigint;
  #toldMs = Number.NEGATIVE_INFINITY;
  #told: bigint | null = null;
  #timer: { readonly timer: Timer; readonly dueMs: number } | null = null;

  /** `everyMs`: the longest silence. */
  constructor(
    connection: Pick<ReplicationConnection, 'confirm'>,
    clock: Clock,
    options: { readonly safe: bigint; readonly received: () => bigint; readonly everyMs: number },
  ) {
    this.#connection = connection;
    this.#clock = clock;
    this.#safe = options.safe;
    this.#received = options.received;
    this.#regular = every(clock, options.everyMs, () => this.tell());
  }

  /** The pointer is committed at `lsn`. `soon`: somebody waits for it. */
  moved(lsn: bigint, soon = false): void {
    if (lsn > this.#safe) this.#safe = lsn;
    if (this.#told === this.#safe) return;
    if (soon) this.tell();
    else this.#within(TOLD_MS);
  }

  /** The server has asked. */
  asked(): void {
    this.#within(ANSWER_MS);
  }

  tell(): void {
    this.#timer?.timer.cancel();
    this.#timer = null;
    this.#toldMs = this.#clock.now();
    this.#told = this.#safe;
    this.#connection.confirm(this.#received(), this.#safe);
  }

  stop(): void {
    this.#regular.cancel();
    this.#timer?.timer.cancel();
  }

  /** Now, if it was told longer ago than this; else then, or earlier if it is to be told earlier anyway. */
  #within(ms: number): void {
    const dueMs = this.#toldMs + ms;
    const waitMs = dueMs - this.#clock.now();
    if (waitMs > 0 && this.#timer !== null && this.#timer.dueMs <= dueMs) return;
    this.#timer?.timer.cancel();
    if (waitMs <= 0) this.tell();
    else this.#timer = { timer: this.#clock.after(waitMs, () => this.tell()), dueMs };
  }
}
