import type { CallOptions, Request, Transport } from '../wire/transport.ts';
import type { KvEntry } from './kv_operations.ts';
import { listQueues, type QueueSummary } from './queues.ts';

export interface Maintenance {
  /** Pushes wait on disk. */
  readonly maintenanceMode: boolean;
  readonly popMaintenanceMode?: boolean;
  readonly bufferedMessages: number;
  readonly bufferHealthy: boolean;
}

export interface Switches {
  readonly kvEnabled: boolean;
  readonly timersScheduleEnabled: boolean;
  readonly timersFireEnabled: boolean;
}

export interface Health {
  readonly healthy: boolean;
  readonly status: string;
  readonly database: string;
  readonly version: string;
}

export interface Grouping {
  readonly queues: number;
  readonly partitions: number;
  readonly messages: { readonly total: number; readonly pending: number };
}

export interface StatusFilter extends CallOptions {
  queue?: string | undefined;
  namespace?: string | undefined;
  task?: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
}

/** What operators ask and switch. Answers of broad shape are given as they come. */
export class Admin {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  queues(options: CallOptions = {}): Promise<QueueSummary[]> {
    return listQueues(this.#transport, options);
  }

  /** Counts, lags and messages a second, in one page. */
  overview(options: CallOptions = {}): Promise<Record<string, unknown>> {
    return this.#get('/api/v1/resources/overview', options);
  }

  async namespaces(options: CallOptions = {}): Promise<(Grouping & { readonly namespace: string })[]> {
    const path = '/api/v1/resources/namespaces';
    const { namespaces } = await this.#get<{ namespaces: (Grouping & { namespace: string })[] }>(
      path,
      options,
    );
    return namespaces;
  }

  async tasks(options: CallOptions = {}): Promise<(Grouping & { readonly task: string })[]> {
    return (await this.#get<{ tasks: (Grouping & { task: string })[] }>('/api/v1/resources/tasks', options))
      .tasks;
  }

  /** The installation over time, with its brokers. */
  status({ signal, ...query }: StatusFilter = {}): Promise<Record<string, unknown>> {
    return this.#get('/api/v1/status', { signal }, { ...query });
  }

  /** Whether a broker reaches its database; does not throw for one that does not. */
  async health(options: CallOptions = {}): Promise<Health> {
    const { body, status } = await this.#transport.call<Health>({
      method: 'GET',
      path: '/health',
      repeatable: true,
      accepts: (code, answer) => code === 503 && typeof answer === 'object' && answer !== null,
      signal: options.signal,
    });
    return { ...body, healthy: status === 200 };
  }

  maintenance(options: CallOptions = {}): Promise<Maintenance> {
    return this.#get('/api/v1/system/maintenance', options);
  }

  /** Lets pushes wait on the brokers' disks, or flow again. For all brokers, and for good. */
  setMaintenance(enabled: boolean, options: CallOptions = {}): Promise<Maintenance> {
    return this.#post('/api/v1/system/maintenance', { enabled }, options);
  }

  /** Lets every pop get nothing, or something again. */
  setPopMaintenance(enabled: boolean, options: CallOptions = {}): Promise<{ popMaintenanceMode: boolean }> {
    return this.#post('/api/v1/system/maintenance/pop', { enabled }, options);
  }

  switches(options: CallOptions = {}): Promise<Switches> {
    return this.#get('/api/v1/system/kv-timers', options);
  }

  setSwitches(
    switches: { kv?: boolean; timersSchedule?: boolean; timersFire?: boolean },
    options: CallOptions = {},
  ): Promise<Switches> {
    return this.#post('/api/v1/system/kv-timers', switches, options);
  }

  /** Namespaces of keys, with how many keys each has. */
  async kvNamespaces(options: CallOptions = {}): Promise<{ namespace: string; keys: number }[]> {
    const path = '/api/v1/resources/kv/namespaces';
    return (await this.#get<{ namespaces: { namespace: string; keys: number }[] }>(path, options)).namespaces;
  }

  /** All keys of a namespace, in order, page by page; without their values with `keysOnly`. */
  async *kvKeys(
    namespace: string,
    options: CallOptions & { prefix?: string | undefined; keysOnly?: boolean } = {},
  ): AsyncGenerator<Omit<KvEntry, 'value'> & { readonly value?: unknown }, void, undefined> {
    const { prefix, keysOnly, signal } = options;
    for (let after: string | undefined; ; ) {
      const page = await this.#transport.ask<{
        rows: KvEntry[];
        truncated: boolean;
        nextAfter: string | null;
      }>({
        method: 'POST',
        path: '/api/v1/resources/kv/list',
        body: { namespace, prefix, keysOnly, after, limit: 1_000 },
        repeatable: true,
        reads: true,
        signal,
      });
      yield* page.rows;
      if (!page.truncated || page.nextAfter === null) return;
      after = page.nextAfter;
    }
  }

  /** What waits on the disk of the broker that answers. */
  buffers(options: CallOptions = {}): Promise<{ pending: number; failed: number; dbHealthy: boolean }> {
    return this.#get('/api/v1/status/buffers', options);
  }

  /** Counts what stands where now, instead of within seconds. */
  async refreshStatistics(options: CallOptions = {}): Promise<void> {
    await this.#post('/api/v1/stats/refresh', undefined, options);
  }

  #get<T>(path: string, { signal }: CallOptions, query?: Request['query']): Promise<T> {
    return this.#transport.ask({ method: 'GET', path, repeatable: true, signal, ...(query && { query }) });
  }

  #post<T>(path: string, body: unknown, { signal }: CallOptions): Promise<T> {
    return this.#transport.ask({ method: 'POST', path, body, repeatable: true, signal });
  }
}
