/**
 * Receives request bodies. Four things bound the memory that clients can make us hold:
 *
 * - one body: the cap of the route; beyond it 413, with the rest thrown away unseen;
 * - all bodies together: a budget that counts what has arrived, not what was announced, so that a client that
 *   promises 64 MiB and sends nothing costs nothing;
 * - a body that stops arriving: 408 after a while;
 * - a body that trickles: the server's request timeout.
 *
 * When the budget is spent a reader stops reading (the client feels it as a full socket) and goes on as room comes
 * free. A push is refused if that takes too long; an ack, which frees memory elsewhere, waits longer.
 */
import type { IncomingMessage } from 'node:http';
import { Fault } from './errors.ts';

export interface BodyLimits {
  /** Bytes of one body, unless the route asks for less. */
  bodyBytesMax: number;
  /** Bytes of all bodies that have not been answered. A body that is alone always passes. */
  allBytesMax: number;
  /** Longest silence in the middle of a body, ms. */
  silenceMs: number;
  /** How long a push may wait for room, ms. */
  pushPatienceMs: number;
  /** How long any other request may wait for room, ms. */
  patienceMs: number;
}

/** A received body. `release` gives its bytes back to the budget; to be called once the request is answered. */
export interface Body {
  bytes: Buffer;
  release(): void;
}

const EMPTY: Body = { bytes: Buffer.alloc(0), release() {} };
const SWEEP_MS = 500;
/** During shutdown a body that is not coming is not waited for. */
const HURRIED_SILENCE_MS = 1_000;

export class BodyReceiver {
  readonly limits: BodyLimits;
  readonly #reading = new Set<Reading>();
  #held = 0;
  #silenceMs: number;
  #sweeper: NodeJS.Timeout | undefined;

  constructor(limits: BodyLimits) {
    this.limits = limits;
    this.#silenceMs = limits.silenceMs;
  }

  /** From now on a body that falls silent is given up soon. */
  hurry(): void {
    this.#silenceMs = Math.min(this.#silenceMs, HURRIED_SILENCE_MS);
  }

  get heldBytes(): number {
    return this.#held;
  }

  /**
   * The whole body; empty when there is none. Throws a Fault for one that is too large, compressed, too slow, or has
   * no room; throws `ClientGone` when the client went away in the middle.
   */
  receive(request: IncomingMessage, options: { lane: 'push' | 'other'; bytesMax?: number }): Promise<Body> {
    const encoding = request.headers['content-encoding'];
    if (encoding !== undefined && encoding !== '' && encoding.toLowerCase() !== 'identity') {
      return Promise.reject(new Fault('unsupported_encoding'));
    }
    const max = Math.min(options.bytesMax ?? this.limits.bodyBytesMax, this.limits.bodyBytesMax);
    const announced = request.headers['content-length'];
    if (announced === undefined && request.headers['transfer-encoding'] === undefined)
      return Promise.resolve(EMPTY);
    if (announced !== undefined && Number(announced) > max) return Promise.reject(tooLarge(max));
    return new Promise((resolve, reject) => {
      const patience = options.lane === 'push' ? this.limits.pushPatienceMs : this.limits.patienceMs;
      const reading = new Reading(request, max, options.lane, patience, this, (outcome) => {
        this.#reading.delete(reading);
        if (outcome instanceof Error) reject(outcome);
        else resolve(outcome);
      });
      this.#reading.add(reading);
      reading.start();
      this.#sweep();
    });
  }

  /** Counts arrived bytes. False: they are more than there is room for. */
  take(bytes: number, mine: number): boolean {
    this.#held += bytes;
    return this.#held <= this.limits.allBytesMax || this.#held === mine;
  }

  give(bytes: number): void {
    this.#held -= bytes;
    if (bytes > 0) for (const reading of this.#reading) reading.retry();
  }

  hasRoom(mine: number): boolean {
    return this.#held <= this.limits.allBytesMax || this.#held === mine;
  }

  /** One timer for all bodies, running only while there are any. */
  #sweep(): void {
    if (this.#sweeper !== undefined) return;
    this.#sweeper = setInterval(() => {
      const now = performance.now();
      for (const reading of this.#reading) reading.check(now, this.#silenceMs);
      if (this.#reading.size === 0) {
        clearInterval(this.#sweeper);
        this.#sweeper = undefined;
      }
    }, SWEEP_MS);
    this.#sweeper.unref();
  }
}

/** The client went away before its request was complete: there is nobody to answer. */
export class ClientGone extends Error {}

class Reading {
  readonly #request: IncomingMessage;
  readonly #max: number;
  readonly #lane: 'push' | 'other';
  readonly #patienceMs: number;
  readonly #receiver: BodyReceiver;
  readonly #settle: (outcome: Body | Error) => void;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #lastAt = performance.now();
  #waitingSince: number | null = null;
  #done = false;

  constructor(
    request: IncomingMessage,
    max: number,
    lane: 'push' | 'other',
    patienceMs: number,
    receiver: BodyReceiver,
    settle: (outcome: Body | Error) => void,
  ) {
    this.#request = request;
    this.#max = max;
    this.#lane = lane;
    this.#patienceMs = patienceMs;
    this.#receiver = receiver;
    this.#settle = settle;
  }

  start(): void {
    const request = this.#request;
    request.on('data', this.#data);
    request.on('end', this.#end);
    request.on('error', this.#gone);
    request.on('close', this.#gone);
  }

  /** Room may have come free. */
  retry(): void {
    if (this.#waitingSince === null || !this.#receiver.hasRoom(this.#bytes)) return;
    this.#waitingSince = null;
    this.#lastAt = performance.now();
    this.#request.resume();
  }

  check(now: number, silenceMs: number): void {
    if (this.#waitingSince !== null) {
      if (now - this.#waitingSince > this.#patienceMs) this.#fail(this.#noRoom());
    } else if (now - this.#lastAt > silenceMs) this.#fail(new Fault('request_timeout'));
  }

  #data = (chunk: Buffer): void => {
    this.#bytes += chunk.length;
    this.#lastAt = performance.now();
    if (this.#bytes > this.#max) {
      this.#bytes -= chunk.length;
      this.#fail(tooLarge(this.#max));
      return;
    }
    this.#chunks.push(chunk);
    if (this.#receiver.take(chunk.length, this.#bytes)) return;
    this.#waitingSince = this.#lastAt;
    this.#request.pause();
  };

  #end = (): void => {
    if (!this.#request.complete) {
      this.#gone();
      return;
    }
    const chunks = this.#chunks;
    const bytes = this.#bytes;
    if (!this.#finish()) return;
    let released = false;
    this.#settle({
      bytes: chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, bytes),
      release: () => {
        if (released) return;
        released = true;
        this.#receiver.give(bytes);
      },
    });
  };

  #gone = (): void => this.#fail(new ClientGone());

  #noRoom(): Fault {
    if (this.#lane === 'push') return new Fault('overloaded', { retryAfterSeconds: 1 });
    return new Fault('pool', { code: 'overloaded' });
  }

  #fail(error: Error): void {
    const bytes = this.#bytes;
    if (!this.#finish()) return;
    this.#receiver.give(bytes);
    this.#settle(error);
  }

  /** False: it was finished before. */
  #finish(): boolean {
    if (this.#done) return false;
    this.#done = true;
    const request = this.#request;
    request.off('data', this.#data);
    request.off('end', this.#end);
    request.off('close', this.#gone);
    // The error listener stays: a connection that breaks later must not become an unhandled event.
    this.#chunks = [];
    return true;
  }
}

function tooLarge(max: number): Fault {
  return new Fault('body_too_large', { message: `the request body is larger than ${max} bytes` });
}
