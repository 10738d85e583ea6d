/** A consumer of the bench: pops a batch and acks it whole. */
import type { HttpConnection } from './http.ts';

interface Popped {
  leaseId: string;
  messages: { transactionId: string; partitionId: string; data: unknown }[];
}

/** Null: nothing to deliver. */
export async function pop(connection: HttpConnection, queue: string, query: string): Promise<Popped | null> {
  const { status, body } = await connection.request('GET', `/api/v1/pop/queue/${queue}?${query}`);
  if (status === 204) return null;
  if (status !== 200) throw new Error(`pop answered ${status}: ${body}`);
  return JSON.parse(body.toString()) as Popped;
}

export async function ack(connection: HttpConnection, popped: Popped, consumerGroup: string): Promise<void> {
  const { leaseId } = popped;
  const acknowledgments = popped.messages.map(({ transactionId, partitionId }) => ({
    transactionId,
    partitionId,
    leaseId,
    status: 'completed',
  }));
  const request = Buffer.from(JSON.stringify({ consumerGroup, acknowledgments }));
  const { status, body } = await connection.request('POST', '/api/v1/ack/batch', request);
  if (status !== 200 || body.includes('"success":false')) throw new Error(`ack answered ${status}: ${body}`);
}
