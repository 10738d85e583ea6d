/**
 * Which node runs a source: an entry in KV that expires unless its owner renews it.
 *
 * Nothing depends on it for correctness. It keeps two nodes from fighting over a slot; should two believe that they hold it
 * (a frozen process that wakes, a store that was set back), the pointer lets one of them append and fences the other
 * one. So nobody looks at a clock to find out whether the lease is still his, and bundles do not carry it: one hot row less.
 */
import type { Clock, Timer } from '../../../engine/clock.ts';
import { pause } from '../pause.ts';
import type { Entry, SourceState, Written } from './state.ts';

interface LeaseOptions {
  readonly state: Pick<SourceState, 'read' | 'put' | 'remove'>;
  readonly key: string;
  readonly node: string;
  /** New for each start of a unit. */
  readonly incarnation: string;
  readonly ttlMs: number;
  readonly clock: Clock;
}

type Claim =
  | { readonly held: true }
  /** `retryMs`: when it is worth another try. */
  | { readonly held: false; readonly owner: string | null; readonly retryMs: number };

interface Holder {
  readonly node: string;
  readonly incarnation: string;
}

const RELEASE_TRIES_MS = [100, 300, 1_000, 1_000, 1_000];
const REFRESH_RETRY_MS = 1_000;

export class Lease {
  readonly #options: LeaseOptions;
  readonly #since = new Date().toISOString();
  /** Of the entry that is ours; null: none is. */
  #version: number | null = null;
  /** An entry of an earlier life of this node, and since when it was seen unchanged. */
  #former: { version: number; sinceMs: number } | null = null;

  constructor(options: LeaseOptions) {
    this.#options = options;
  }

  /** How often it is to be renewed. */
  get refreshMs(): number {
    return this.#options.ttlMs / 3;
  }

  /** Throws ConnectorFault `queen`, with nothing known. */
  async claim(): Promise<Claim> {
    const found = await this.#claimed(0);
    if (found === null) return { held: true };
    const holder = holderOf(found);
    const { node, clock, ttlMs } = this.#options;
    if (holder?.node !== node) {
      this.#former = null;
      return { held: false, owner: holder?.node ?? null, retryMs: ttlMs / 2 };
    }
    return this.#succeed(found, clock.now());
  }

  /** True: renewed. False: it is lost. Throws ConnectorFault `queen`, with nothing known: to be tried again. */
  async refresh(): Promise<boolean> {
    const version = this.#version;
    if (version === null) return false;
    return (await this.#claimed(version)) === null;
  }

  /** Gives it back, as far as possible within some seconds. Never rejects. */
  async release(): Promise<void> {
    const { state, key, incarnation, clock } = this.#options;
    this.#version = null;
    for (const waitMs of [...RELEASE_TRIES_MS, null]) {
      try {
        const found = await state.read(key);
        if (found === null || holderOf(found)?.incarnation !== incarnation) return;
        if ((await state.remove(key, found.version)).applied) return;
      } catch {
        // Without an answer it is tried again; in the end it expires.
      }
      if (waitMs !== null) await pause(clock, waitMs);
    }
  }

  /** Null: the entry is ours, at a version that is kept. Else what lives there instead. */
  async #claimed(expect: number): Promise<Entry | null> {
    const { state, key, node, incarnation, ttlMs } = this.#options;
    const value = JSON.stringify({ node, incarnation, since: this.#since });
    const lifeSeconds = Math.max(1, Math.floor(ttlMs / 1000));
    let found: Entry | null;
    try {
      const result: Written = await state.put(key, value, expect, lifeSeconds);
      if (result.applied) {
        this.#version = result.version;
        return null;
      }
      found = result.found;
    } catch (error) {
      // It may have been done, and then the version that we know would make us lose what we hold.
      found = await state.read(key);
      if (found === null || holderOf(found)?.incarnation !== incarnation) throw error;
      // Still ours, and not renewed.
      if (found.version === expect) throw error;
    }
    if (found !== null && holderOf(found)?.incarnation === incarnation) {
      this.#version = found.version;
      return null;
    }
    this.#version = null;
    return found ?? { value: 'null', version: 0 };
  }

  /**
   * An entry of this very node: most likely of a life that ended without giving it back. It is taken over if nobody renews it,
   * so that a restart need not wait; two processes that share a name do not steal from each other.
   */
  async #succeed(found: Entry, now: number): Promise<Claim> {
    const { node } = this.#options;
    if (this.#former?.version !== found.version) this.#former = { version: found.version, sinceMs: now };
    const leftMs = this.#former.sinceMs + this.refreshMs - now;
    if (leftMs > 0) return { held: false, owner: node, retryMs: leftMs };
    this.#former = null;
    const other = await this.#claimed(found.version);
    if (other === null) return { held: true };
    return { held: false, owner: holderOf(other)?.node ?? null, retryMs: this.refreshMs };
  }
}

/** Renews a lease until it is stopped, or lost. */
export class LeaseKeeper {
  readonly #lease: Lease;
  readonly #clock: Clock;
  readonly #lost: () => void;
  #timer: Timer | null = null;
  #stopped = false;

  /** `lost`: called once, when somebody else has it. */
  constructor(lease: Lease, clock: Clock, lost: () => void) {
    this.#lease = lease;
    this.#clock = clock;
    this.#lost = lost;
    this.#after(lease.refreshMs);
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  #after(ms: number): void {
    if (!this.#stopped) this.#timer = this.#clock.after(ms, () => void this.#tick());
  }

  async #tick(): Promise<void> {
    try {
      if (await this.#lease.refresh()) this.#after(this.#lease.refreshMs);
      else if (!this.#stopped) this.#lost();
    } catch {
      // Nobody can append either while the store is away.
      this.#after(REFRESH_RETRY_MS);
    }
  }
}

function holderOf({ value }: Entry): Holder | null {
  try {
    const { node, incarnation } = JSON.parse(value) as Partial<Holder>;
    return typeof node === 'string' && typeof incarnation === 'string' ? { node, incarnation } : null;
  } catch {
    return null;
  }
}
