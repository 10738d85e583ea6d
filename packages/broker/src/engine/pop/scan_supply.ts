/** First contact for pops without the hot list: whenever a pop prepares, its registration is made sure of. */
import type { Start } from '../../store/pop.ts';
import { queueKey } from '../hotlist/hotlist.ts';
import type { Contact } from './contact.ts';
import type { ScannedQueue, ScanSupply } from './scan_source.ts';
import type { Scope } from './scopes.ts';

export class QueueScanSupply implements ScanSupply {
  readonly keys: readonly string[];
  readonly group: string;
  readonly #contact: Contact;
  readonly #pop: { tenant: string; queue: string; group: string; start: Start; conflate: boolean };

  constructor(
    contact: Contact,
    pop: { tenant: string; queue: string; group: string; start: Start; conflate: boolean },
  ) {
    this.#contact = contact;
    this.#pop = pop;
    this.group = pop.group;
    this.keys = [queueKey(pop.tenant, pop.queue)];
  }

  async prepare(): Promise<{ queues: ScannedQueue[]; conflation: boolean }> {
    const { tenant, queue, group, start, conflate } = this.#pop;
    const found = await this.#contact.register(tenant, queue, group, start, conflate);
    return {
      queues: [{ queueId: found.queueId, minPopWaitMs: found.minPopWaitMs }],
      conflation: found.conflation,
    };
  }

  outdated(): void {}
}

export class ScopeScanSupply implements ScanSupply {
  readonly keys: readonly string[];
  readonly group: string;
  readonly #scope: Scope;
  readonly #pop: { group: string; start: Start; conflate: boolean };

  constructor(scope: Scope, pop: { group: string; start: Start; conflate: boolean }) {
    this.#scope = scope;
    this.#pop = pop;
    this.group = pop.group;
    this.keys = [scope.key];
  }

  async prepare(): Promise<{ queues: ScannedQueue[]; conflation: boolean }> {
    const { group, start, conflate } = this.#pop;
    const conflation = await this.#scope.register(group, start, conflate);
    return { queues: [...(await this.#scope.queues())], conflation };
  }

  outdated(why: 'foreign' | 'unregistered'): void {
    if (why === 'unregistered') this.#scope.forgetGroup(this.group);
    else this.#scope.outdate();
  }
}
