/** A hand-written broker face for the wire's tests: it records what it was asked and answers what it is told to. */
import type { DeadLettersFace } from '../../src/engine/dlq/face.ts';
import type { GroupsFace } from '../../src/engine/groups/face.ts';
import type { KvAnswer, KvListing, KvListRequest, KvRequest } from '../../src/engine/kv/operations.ts';
import type { MessagesFace, RecordsFace } from '../../src/engine/reads/face.ts';
import type { StatisticsFace } from '../../src/engine/statistics/face.ts';
import type { SystemFace } from '../../src/engine/system/face.ts';
import { SWITCHES } from '../../src/engine/system/switches.ts';
import { NO_SPOOL } from '../../src/engine/system/system.ts';
import type { TimersFace } from '../../src/engine/timers/face.ts';
import type { TracesFace } from '../../src/engine/traces/face.ts';
import type { TransactionAnswer, TransactionRequest } from '../../src/engine/transaction/types.ts';
import {
  type AckRequest,
  type AckVerdict,
  type BrokerFace,
  type ConfigureRequest,
  type ConfigureResult,
  type ExtendResult,
  type PopAnswer,
  type PopRequest,
  type PushRequest,
  type PushResult,
  type QueueDepth,
  type QueueDetail,
  type QueueOptions,
  ZERO_UUID,
} from '../../src/engine/types.ts';

export const EMPTY_POP: PopAnswer = {
  leaseId: '',
  claims: [],
  conflation: false,
  conflationConflict: false,
  autopilot: null,
  paused: false,
};

export const OPTIONS: QueueOptions = {
  namespace: '',
  task: '',
  priority: 0,
  leaseTime: 300,
  retryLimit: 3,
  retryDelay: 1000,
  maxSize: 0,
  ttl: 3600,
  deadLetterQueue: true,
  dlqAfterMaxRetries: true,
  delayedProcessing: 0,
  windowBuffer: 0,
  retentionEnabled: false,
  retentionSeconds: 0,
  completedRetentionSeconds: 0,
  maxWaitTimeSeconds: 0,
  minPopWaitTime: 0,
  encryptionEnabled: false,
  dedupWindowSeconds: 3600,
  retentionSinkHold: '',
  retentionSinkHoldMaxSeconds: 604800,
};

export class FakeBroker implements BrokerFace {
  pushes: PushRequest[] = [];
  pops: PopRequest[] = [];
  acks: AckRequest[] = [];
  configures: ConfigureRequest[] = [];
  extensions: [string, string, number][] = [];
  deleted: string[] = [];
  depthGroups: (string | null)[] = [];

  onPush: (request: PushRequest) => Promise<PushResult[]> = async (request) =>
    request.items.map((item, i) => ({
      status: 'queued',
      messageId: ZERO_UUID,
      transactionId: item.transactionId ?? ZERO_UUID,
      partitionId: '1',
      offset: i,
      error: null,
    }));
  onPop: (request: PopRequest) => Promise<PopAnswer> = async () => EMPTY_POP;
  onAck: (request: AckRequest) => Promise<AckVerdict[]> = async (request) =>
    request.items.map(() => ({ success: true, error: null, leaseReleased: true, dlq: false, noop: false }));
  onExtend: () => Promise<ExtendResult> = async () => ({ renewed: 0, expiresAtMicros: null });
  onHealthy: () => Promise<boolean> = async () => true;
  onConfigure: (request: ConfigureRequest) => Promise<ConfigureResult> = async (request) => ({
    queueId: '7',
    queue: request.queue,
    options: { ...OPTIONS, ...(request.options as Partial<QueueOptions>) },
    ignored: [],
  });
  detail: QueueDetail | null = null;
  depth: QueueDepth | null = null;

  push(request: PushRequest): Promise<PushResult[]> {
    this.pushes.push(request);
    return this.onPush(request);
  }
  pop(request: PopRequest): Promise<PopAnswer> {
    this.pops.push(request);
    return this.onPop(request);
  }
  ack(request: AckRequest): Promise<AckVerdict[]> {
    this.acks.push(request);
    return this.onAck(request);
  }
  extend(tenant: string, leaseId: string, seconds: number): Promise<ExtendResult> {
    this.extensions.push([tenant, leaseId, seconds]);
    return this.onExtend();
  }
  configure(request: ConfigureRequest): Promise<ConfigureResult> {
    this.configures.push(request);
    return this.onConfigure(request);
  }
  async listQueues() {
    return [
      {
        id: '7',
        name: 'orders',
        namespace: 'n',
        task: 't',
        createdAtMicros: 1_785_409_364_512_873,
        partitions: 2,
        retainedBytes: 10,
        segments: { segments: 1, messages: 3 },
        messages: { total: 3, pending: 2, processing: 1 },
      },
    ];
  }
  async inspectQueue() {
    return this.detail;
  }
  async queueDepth(_tenant: string, _queue: string, group: string | null) {
    this.depthGroups.push(group);
    return this.depth;
  }
  async namespaces() {
    return [{ name: 'n', queues: 1, partitions: 2, messages: { total: 3, pending: 2 } }];
  }
  async tasks() {
    return [{ name: 't', queues: 1, partitions: 2, messages: { total: 3, pending: 2 } }];
  }
  async deleteQueue(_tenant: string, queue: string) {
    this.deleted.push(queue);
    return queue === 'orders';
  }
  transactions: TransactionRequest[] = [];
  onTransaction: (request: TransactionRequest) => Promise<TransactionAnswer> = async () => ({
    transactionId: ZERO_UUID,
    success: true,
    results: [],
    kv: [],
    timers: [],
  });
  transaction(request: TransactionRequest): Promise<TransactionAnswer> {
    this.transactions.push(request);
    return this.onTransaction(request);
  }
  kvs: KvRequest[] = [];
  onKv: (request: KvRequest) => Promise<KvAnswer> = async () => ({ ok: true, results: [] });
  kv(request: KvRequest): Promise<KvAnswer> {
    this.kvs.push(request);
    return this.onKv(request);
  }
  async kvNamespaces() {
    return [{ namespace: 'orders', keys: 12 }];
  }
  listing: KvListing = { rows: [], truncated: false, nextAfter: null, bytes: 0 };
  lists: KvListRequest[] = [];
  async kvList(request: KvListRequest) {
    this.lists.push(request);
    return this.listing;
  }
  deadLetters: DeadLettersFace = without('deadLetters');
  groups: GroupsFace = without('groups');
  messages: MessagesFace = without('messages');
  records: RecordsFace = without('records');
  traces: TracesFace = without('traces');
  statistics: StatisticsFace = {
    ...without<StatisticsFace>('statistics'),
    beside: async () => ({ kvRows: 1, kvBytes: 2, timerBytes: 3 }),
  };
  system: SystemFace = {
    ...without<SystemFace>('system'),
    knownSwitches: () => ({ ...SWITCHES }),
    spool: () => NO_SPOOL,
  };
  timers: TimersFace = without('timers');
  healthy(): Promise<boolean> {
    return this.onHealthy();
  }
}

/** Parts of the face that a test sets itself when it needs them. */
function without<T extends object>(part: string): T {
  return new Proxy({} as T, {
    get: (_target, name) => () => Promise.reject(new Error(`${part}.${String(name)} is not faked`)),
  });
}
