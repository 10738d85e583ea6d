/** How late timers fire, by tenant, as far as there is room for tenants. */
import { RecentQuantiles } from '../../observability/quantiles.ts';
import { DEFAULT_TENANT, type TenantId } from '../types.ts';

const TENANTS_MAX = 100;
/** Timers of a tenant that its quantiles cover. */
const RECENT = 512;
const RANKS = [0.5, 0.99] as const;

export class FireLag {
  readonly #tenants = new Map<TenantId, RecentQuantiles>();
  /** Timers whose tenant found no room. */
  dropped = 0;

  observe(tenant: TenantId, seconds: number): void {
    let recent = this.#tenants.get(tenant);
    if (recent === undefined) {
      if (this.#tenants.size >= TENANTS_MAX) {
        this.dropped++;
        return;
      }
      recent = new RecentQuantiles(RECENT);
      this.#tenants.set(tenant, recent);
    }
    recent.observe(seconds);
  }

  /** The default tenant is always there, at zero before its first timer. */
  read(): { tenant: TenantId; quantile: number; seconds: number }[] {
    const tenants = new Set([DEFAULT_TENANT, ...this.#tenants.keys()]);
    return [...tenants].flatMap((tenant) => {
      const values = this.#tenants.get(tenant)?.read(RANKS) ?? RANKS.map(() => 0);
      return RANKS.map((quantile, i) => ({ tenant, quantile, seconds: values[i]! }));
    });
  }
}
