/**
 * A client that knows what it knows: each call ends in an answer, in the certainty that nothing was done (NotDone), or
 * in doubt (any other error). Addresses are asked for anew on each call, since brokers come and go.
 */
import { Agent, request } from 'node:http';
import type { AckedItem, AckOutcome, Delivered, PushedItem, PushOutcome } from './history.ts';
import { NotDone } from './history.ts';

export interface HttpAnswer {
  status: number;
  body: string;
}

export interface PopWish {
  queue: string;
  partition?: string;
  group: string;
  batch: number;
  partitions?: number;
  /** 0: do not wait. */
  waitMs: number;
  leaseMs: number;
  autoAck?: boolean;
}

/** What a client needs of a message beside what the history keeps, to ack it. */
export interface Held extends Delivered {
  partitionId: string;
}

const ANSWER_TIMEOUT_MS = 20_000;

export class FaultClient {
  readonly #address: () => string;
  readonly #timeoutMs: number;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 4 });

  /** @param address gives the base URL of the broker to ask. */
  constructor(address: () => string, timeoutMs: number = ANSWER_TIMEOUT_MS) {
    this.#address = address;
    this.#timeoutMs = timeoutMs;
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Every item's outcome. */
  async push(items: readonly PushedItem[], via: string = this.#address()): Promise<PushOutcome[]> {
    const list = items.map(
      ({ queue, partition, txn, payload }) =>
        `{"queue":${JSON.stringify(queue)},"partition":${JSON.stringify(partition)},"transactionId":${JSON.stringify(txn)},"payload":${payload}}`,
    );
    const answer = await this.#call('POST', '/api/v1/push', `{"items":[${list.join(',')}]}`, via);
    expect(answer, 201);
    const results = JSON.parse(answer.body) as WirePushed[];
    return results.map(({ status, message_id: id, offset, error }) => ({
      status,
      id,
      offset: offset ?? null,
      error: error ?? null,
    }));
  }

  async pop(wish: PopWish): Promise<{ lease: string; messages: Held[] }> {
    const { queue, partition, group, batch, partitions, waitMs, leaseMs, autoAck } = wish;
    const query = new URLSearchParams({
      consumerGroup: group,
      subscriptionMode: 'all',
      batch: String(batch),
      ...(partitions === undefined ? {} : { partitions: String(partitions) }),
      ...(waitMs > 0 ? { wait: 'true', timeout: String(waitMs) } : {}),
      ...(autoAck === true ? { autoAck: 'true' } : { leaseSeconds: String(leaseMs / 1000) }),
    });
    const pinned = partition === undefined ? '' : `/partition/${encodeURIComponent(partition)}`;
    const path = `/api/v1/pop/queue/${encodeURIComponent(queue)}${pinned}?${query}`;
    const answer = await this.#call('GET', path, null);
    if (answer.status === 204) return { lease: '', messages: [] };
    expect(answer, 200);
    const body = JSON.parse(answer.body) as { leaseId: string; messages: WireMessage[] };
    const messages = body.messages.map((m) => ({
      queue,
      partition: m.partition,
      partitionId: m.partitionId,
      offset: m.offset,
      id: m.id,
      txn: m.transactionId,
      payload: JSON.stringify(m.data),
      attempt: m.deliveryAttempt,
    }));
    return { lease: body.leaseId, messages };
  }

  async ack(
    group: string,
    lease: string,
    messages: readonly Held[],
    statuses: readonly AckedItem['status'][],
  ): Promise<AckOutcome[]> {
    const acknowledgments = messages.map(({ txn, partitionId }, i) => ({
      transactionId: txn,
      partitionId,
      leaseId: lease,
      status: statuses[i],
      error: null,
    }));
    const body = JSON.stringify({ acknowledgments, consumerGroup: group });
    const answer = await this.#call('POST', '/api/v1/ack/batch', body);
    expect(answer, 200);
    return (JSON.parse(answer.body) as AckOutcome[]).map(({ success, noop, dlq, error }) => ({
      success,
      noop,
      dlq,
      error,
    }));
  }

  async extend(lease: string, seconds: number): Promise<number> {
    const answer = await this.#call('POST', `/api/v1/lease/${lease}/extend`, JSON.stringify({ seconds }));
    expect(answer, 200);
    return (JSON.parse(answer.body) as { renewed: number }).renewed;
  }

  get(path: string): Promise<HttpAnswer> {
    return this.#call('GET', path, null);
  }

  #call(
    method: string,
    path: string,
    body: string | null,
    via: string = this.#address(),
  ): Promise<HttpAnswer> {
    return new Promise((resolve, reject) => {
      const url = new URL(path, via);
      const headers: Record<string, string | number> =
        body === null
          ? {}
          : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
      const sent = request(url, { method, agent: this.#agent, headers }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('close', () => {
          if (!response.complete) reject(new Error('the answer was cut off'));
          else resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString('utf8') });
        });
      });
      sent.setTimeout(this.#timeoutMs, () => sent.destroy(new Error('no answer in time')));
      sent.on('error', (error: NodeJS.ErrnoException) => {
        reject(error.code === 'ECONNREFUSED' ? new NotDone(error.message) : error);
      });
      sent.end(body);
    });
  }
}

interface WirePushed {
  status: string;
  message_id: string;
  offset?: number;
  error?: string;
}

interface WireMessage {
  id: string;
  transactionId: string;
  data: unknown;
  partition: string;
  partitionId: string;
  offset: number;
  deliveryAttempt: number;
}

/** Anything but `status` is an error: certain for a 4xx and for a 500 that says so, else in doubt. */
function expect({ status, body }: HttpAnswer, expected: number): void {
  if (status === expected) return;
  const text = `HTTP ${status}: ${body.slice(0, 300)}`;
  if (status >= 400 && status < 500) throw new NotDone(text);
  const code = codeOf(body);
  throw code === 'pool' || code === 'unavailable' ? new NotDone(text) : new Error(text);
}

function codeOf(body: string): string {
  try {
    return (JSON.parse(body) as { code?: string }).code ?? '';
  } catch {
    return '';
  }
}
