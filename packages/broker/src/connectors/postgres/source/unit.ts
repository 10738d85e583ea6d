/**
 * A source on one node: waits for its lease, works as its owner, and gives it back.
 *
 * An owner keeps the lease through errors, so that nodes do not take turns in failing. It gives it back when it was
 * fenced, when it cannot reach the upstream (another node perhaps can), when it is stopped, and when only a change
 * of the document helps.
 */
import { randomBytes } from 'node:crypto';
import { delayMs, OUTAGE } from '../back_off.ts';
import type { SourceDocument } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import type { Unit, UnitContext } from '../unit.ts';
import { Lease, LeaseKeeper } from './lease.ts';
import { Life } from './life.ts';
import { leaseKey, SourceState } from './state.ts';
import { StartAgain } from './stream_fault.ts';
import { type Pause, pauseUntil } from './time.ts';

type Ending =
  /** The lease was lost, or given back: compete for it again after so long. */
  { readonly kind: 'again'; readonly afterMs: number } | { readonly kind: 'done' };

const FENCED_MS = 1_000;
/** A stream that went well for so long has no history of failures. */
const HEALTHY_MS = 60_000;
/** Connections that fail in a row: another node may have more luck. */
const UNREACHED_MAX = 3;
const STORE_AWAY_MS = 1_000;

export class SourceUnit implements Unit {
  readonly #context: UnitContext<SourceDocument>;
  readonly #state: SourceState;
  #attempts = 0;
  #unreached = 0;

  constructor(context: UnitContext<SourceDocument>) {
    this.#context = context;
    this.#state = new SourceState(context.broker, context.tenant);
  }

  async run(signal: AbortSignal): Promise<void> {
    const pause = pauseUntil(this.#context.clock, signal);
    try {
      for (let again = true; again; ) {
        const lease = await this.#claim(pause);
        const ending = await this.#own(lease, signal);
        again = ending.kind === 'again';
        if (ending.kind === 'again') await pause(ending.afterMs);
      }
    } catch (error) {
      if (!signal.aborted || !isStopped(error)) throw error;
    }
  }

  /** Resolves when this node owns the source. */
  async #claim(pause: Pause): Promise<Lease> {
    const { document, status, clock, node, leaseTtlMs } = this.#context;
    const lease = new Lease({
      state: this.#state,
      key: leaseKey(document.name),
      node,
      incarnation: randomBytes(16).toString('hex'),
      ttlMs: leaseTtlMs,
      clock,
    });
    for (;;) {
      try {
        const claim = await lease.claim();
        if (claim.held) {
          status.show({ owner: undefined });
          return lease;
        }
        if (status.phase !== 'standby') status.enter('standby');
        status.show({ owner: claim.owner ?? undefined });
        await pause(claim.retryMs);
      } catch (error) {
        if (!(error instanceof ConnectorFault) || error.code !== 'queen') throw error;
        status.fail(error, STORE_AWAY_MS);
        await pause(STORE_AWAY_MS);
      }
    }
  }

  /** Works as the owner for as long as the lease is held. */
  async #own(lease: Lease, signal: AbortSignal): Promise<Ending> {
    const { status, clock, document, log } = this.#context;
    const sinceMs = clock.now();
    const lost = new AbortController();
    const keeper = new LeaseKeeper(lease, clock, () => {
      log.warn({ connector: document.name }, 'the lease of a source is lost');
      lost.abort();
    });
    this.#unreached = 0;
    try {
      for (;;) {
        status.owner(true);
        const ending = await this.#live(AbortSignal.any([signal, lost.signal]), () => clock.now() - sinceMs);
        if (ending !== null) return ending;
        if (lost.signal.aborted) return { kind: 'again', afterMs: 0 };
      }
    } catch (error) {
      if (lost.signal.aborted && !signal.aborted && isStopped(error)) return { kind: 'again', afterMs: 0 };
      throw error;
    } finally {
      keeper.stop();
      status.owner(false);
      status.gauge('pointerLsn', null);
      if (!lost.signal.aborted) await lease.release();
    }
  }

  /** One life, and the rest after it. Null: another one under the same lease. Throws ConnectorFault. */
  async #live(signal: AbortSignal, heldMs: () => number): Promise<Ending | null> {
    const { clock, status } = this.#context;
    const life = new Life({ context: this.#context, heldMs });
    try {
      if ((await life.run(signal)) === 'torn_down') return await this.#tornDown();
      return { kind: 'again', afterMs: 0 };
    } catch (error) {
      // Nothing is wrong: the catalog is to be read again.
      if (error instanceof StartAgain) return null;
      if (!(error instanceof ConnectorFault) || error.retry === 'never' || error.retry === 'document')
        throw error;
      const sinceMs = life.streamingSinceMs;
      if (sinceMs !== null && clock.now() - sinceMs >= HEALTHY_MS) this.#attempts = 0;
      if (life.connected) this.#unreached = 0;
      else if (error.code !== 'queen') this.#unreached++;
      const waitMs = this.#waitMs(error);
      status.fail(error, waitMs);
      if (error.code === 'fenced') return { kind: 'again', afterMs: FENCED_MS };
      if (this.#unreached >= UNREACHED_MAX) {
        return { kind: 'again', afterMs: Math.max(waitMs, this.#context.leaseTtlMs) };
      }
      await pauseUntil(clock, signal)(waitMs);
      return null;
    } finally {
      status.show({ detail: undefined });
    }
  }

  async #tornDown(): Promise<Ending> {
    const { status, removeDocument } = this.#context;
    status.show({ tornDown: true });
    status.enter('torn_down');
    await removeDocument.call(this.#context);
    return { kind: 'done' };
  }

  #waitMs({ code, retry }: ConnectorFault): number {
    if (code === 'fenced') return FENCED_MS;
    return retry === 'later' ? OUTAGE.toMs : delayMs(OUTAGE, ++this.#attempts);
  }
}

function isStopped(error: unknown): boolean {
  return error instanceof ConnectorFault && error.code === 'stopped';
}
