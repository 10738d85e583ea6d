/** What a source keeps in KV, in the namespace that only connectors write. */
import { EngineError } from '../../../engine/errors.ts';
import type { KvResult } from '../../../engine/kv/operations.ts';
import type { BrokerFace, TenantId } from '../../../engine/types.ts';
import { ConnectorFault } from '../fault.ts';

export const NAMESPACE = 'queen-pg';

export function leaseKey(name: string): string {
  return `src:${name}:lease`;
}

export function pointerKey(name: string): string {
  return `src:${name}:pointer`;
}

export interface Entry {
  /** JSON text. */
  readonly value: string;
  readonly version: number;
}

export type Written =
  | { readonly applied: true; readonly version: number }
  /** `found`: what stands in the way; null: nothing lives there. */
  | { readonly applied: false; readonly found: Entry | null };

/**
 * One tenant's entries. Every failure is the ConnectorFault `queen`; after a failed write nobody knows whether it was done:
 * the caller reads.
 */
export class SourceState {
  readonly #kv: BrokerFace['kv'];
  readonly #tenant: TenantId;

  constructor(broker: Pick<BrokerFace, 'kv'>, tenant: TenantId) {
    this.#kv = (request) => broker.kv(request);
    this.#tenant = tenant;
  }

  async read(key: string): Promise<Entry | null> {
    const result = await this.#one({ op: 'get', ns: NAMESPACE, key });
    if (result.op !== 'get' || result.entry === null) return null;
    return { value: result.entry.value ?? 'null', version: result.entry.version };
  }

  /** `expect`: the version that lives there; 0: nothing does. `lifeSeconds` null: for ever. */
  async put(key: string, value: string, expect: number, lifeSeconds: number | null): Promise<Written> {
    const life = lifeSeconds;
    return written(await this.#one({ op: 'put', ns: NAMESPACE, key, value, life, expect, required: false }));
  }

  async remove(key: string, expect: number | null): Promise<Written> {
    return written(await this.#one({ op: 'delete', ns: NAMESPACE, key, expect, required: false }));
  }

  async #one(operation: Parameters<BrokerFace['kv']>[0]['operations'][number]): Promise<KvResult> {
    try {
      const answer = await this.#kv({ tenant: this.#tenant, origin: 'connector', operations: [operation] });
      if (answer.ok) return answer.results[0]!;
      throw new ConnectorFault('queen', 'KV refused a condition that was not required');
    } catch (error) {
      throw queenFault(error);
    }
  }
}

function written(result: KvResult): Written {
  if (!('applied' in result)) throw new ConnectorFault('queen', 'KV answered another operation');
  if (result.applied) return { applied: true, version: result.version };
  const { value, version } = result;
  return { applied: false, found: value === null || version === 0 ? null : { value, version } };
}

/** What the engine threw, as the connector says it. */
export function queenFault(error: unknown): ConnectorFault {
  if (error instanceof ConnectorFault) return error;
  if (error instanceof EngineError) {
    return new ConnectorFault('queen', `the broker's store: ${error.message}`, { cause: error });
  }
  throw error;
}
