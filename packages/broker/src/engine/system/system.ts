import type { Quotas } from '../kv/quotas.ts';
import type { TenantId } from '../types.ts';
import type { Wake } from '../wake/wake.ts';
import type { PeerState, SpoolState, SystemFace } from './face.ts';
import type { Switches, SwitchStates } from './switches.ts';

export interface SystemDeps {
  switches: Switches;
  spool: { state(): SpoolState } | null;
  wake: Pick<Wake, 'peers' | 'noticed'>;
  quotas: Pick<Quotas, 'stats'>;
}

/** Of a broker that has none. */
export const NO_SPOOL: SpoolState = {
  directory: null,
  lasting: false,
  pending: 0,
  bytes: 0,
  failed: 0,
  failedFiles: { count: 0, bytes: 0 },
  failovers: 0,
  healthy: true,
};

export class System implements SystemFace {
  readonly #deps: SystemDeps;

  constructor(deps: SystemDeps) {
    this.#deps = deps;
  }

  switches(): Promise<SwitchStates> {
    return this.#deps.switches.all();
  }

  knownSwitches(): SwitchStates {
    return this.#deps.switches.known();
  }

  setSwitches(changes: Partial<SwitchStates>): Promise<void> {
    return this.#deps.switches.set(changes);
  }

  async setSwitchesAnyhow(changes: Partial<SwitchStates>): Promise<boolean> {
    const { switches } = this.#deps;
    try {
      await switches.set(changes);
      return true;
    } catch {
      switches.override(changes);
      return false;
    }
  }

  spool(): SpoolState {
    return this.#deps.spool?.state() ?? NO_SPOOL;
  }

  peers(): PeerState | null {
    const { peers } = this.#deps.wake;
    if (peers === null) return null;
    const { sent, received, connects, sendErrors } = peers.counters;
    // The first connection is none.
    const reconnects = Math.max(0, connects - 1);
    return { connected: peers.connected, sent, received, dropped: sendErrors, reconnects };
  }

  quotas(): { tenants: number; ageMs: number | null; hot: number } {
    return this.#deps.quotas.stats();
  }

  noticed(tenant: TenantId, queue: string): void {
    this.#deps.wake.noticed(tenant, queue);
  }
}
