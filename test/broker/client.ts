/** What a consumer and a producer say to a broker, in the shapes that the client libraries use. */
import assert from 'node:assert/strict';

export interface Message {
  id: string;
  transactionId: string;
  data: unknown;
  partition: string;
  partitionId: string;
  leaseId: string;
  consumerGroup: string;
  deliveryAttempt: number;
  createdAt: string;
  queue?: string;
}

export interface Verdict {
  index: number;
  transactionId: string;
  success: boolean;
  error: string | null;
  leaseReleased: boolean;
  dlq: boolean;
  noop: boolean;
}

export interface Pushed {
  index: number;
  message_id: string;
  transaction_id: string;
  queueName: string;
  status: string;
  error?: string;
}

export interface Answer<T> {
  status: number;
  body: T;
}

type Parameters = Record<string, string | number | boolean>;

export class Client {
  readonly url: string;

  constructor(url: string) {
    this.url = url;
  }

  /** Any request; the body of the answer parsed, null for none. */
  async call<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<Answer<T>> {
    const response = await fetch(this.url + path, {
      method,
      headers: { 'Content-Type': 'application/json' },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: (text === '' ? null : JSON.parse(text)) as T };
  }

  async push(items: { queue: string; partition?: string; payload: unknown; transactionId?: string }[]) {
    const { status, body } = await this.call<Pushed[]>('POST', '/api/v1/push', { items });
    assert.equal(status, 201, JSON.stringify(body));
    return body;
  }

  /** Messages of one pop; none for a 204. */
  async pop(queue: string, parameters: Parameters = {}, partition?: string): Promise<Message[]> {
    const pinned = partition === undefined ? '' : `/partition/${encodeURIComponent(partition)}`;
    return this.popAt(`/api/v1/pop/queue/${encodeURIComponent(queue)}${pinned}`, parameters);
  }

  async popAt(path: string, parameters: Parameters = {}): Promise<Message[]> {
    const query = Object.entries(parameters).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
    const at = query.length === 0 ? path : `${path}?${query.join('&')}`;
    const { status, body } = await this.call<{ messages: Message[] } | null>('GET', at);
    if (status === 204) return [];
    assert.equal(status, 200, JSON.stringify(body));
    return body!.messages;
  }

  async ack(message: Message, status?: string, more: Record<string, unknown> = {}): Promise<Verdict> {
    const { transactionId, partitionId, leaseId, consumerGroup } = message;
    const body = { transactionId, partitionId, leaseId, consumerGroup, status: status ?? null, ...more };
    const answer = await this.call<Verdict[]>('POST', '/api/v1/ack', body);
    assert.equal(answer.status, 200, JSON.stringify(answer.body));
    assert.equal(answer.body.length, 1);
    return answer.body[0]!;
  }

  /** One status for all, or one for each. */
  async ackBatch(messages: Message[], status: string | string[] = 'completed'): Promise<Verdict[]> {
    const acknowledgments = messages.map(({ transactionId, partitionId, leaseId }, i) => ({
      transactionId,
      partitionId,
      leaseId,
      status: Array.isArray(status) ? status[i] : status,
      error: null,
    }));
    const consumerGroup = messages[0]?.consumerGroup ?? null;
    const answer = await this.call<Verdict[]>('POST', '/api/v1/ack/batch', {
      acknowledgments,
      consumerGroup,
    });
    assert.equal(answer.status, 200, JSON.stringify(answer.body));
    assert.equal(answer.body.length, messages.length);
    return answer.body;
  }

  async configure(queue: string, options: Record<string, unknown> = {}) {
    const { status, body } = await this.call('POST', '/api/v1/configure', {
      queue,
      namespace: null,
      task: null,
      options,
    });
    assert.equal(status, 200, JSON.stringify(body));
    assert.ok(body.configured);
    return body;
  }
}
