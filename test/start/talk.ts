import assert from 'node:assert/strict';

/** A few words over HTTP with a broker, as a client with no library would. */
export interface Pushed {
  transaction_id: string;
  status: string;
}

/** Pushes payloads `{"n": from}` .. `{"n": from + count - 1}`, ids `t<n>`; every one must be stored. */
export async function push(url: string, queue: string, from: number, count: number): Promise<void> {
  const items = Array.from({ length: count }, (_, i) => ({
    queue,
    transactionId: `t${from + i}`,
    payload: { n: from + i },
  }));
  const response = await post(url, '/api/v1/push', { items });
  const text = await response.text();
  assert.equal(response.status, 201, text);
  for (const item of JSON.parse(text) as Pushed[]) {
    assert.ok(item.status === 'queued' || item.status === 'duplicate', text);
  }
}

/** Takes everything that a new group of that name has not seen; the numbers in order. */
export async function drain(url: string, queue: string, group: string): Promise<number[]> {
  const seen: number[] = [];
  for (;;) {
    const query = `consumerGroup=${group}&subscriptionMode=all&autoAck=true&batch=1000`;
    const response = await fetch(`${url}/api/v1/pop/queue/${queue}?${query}`);
    if (response.status === 204) return seen;
    const text = await response.text();
    assert.equal(response.status, 200, text);
    const { messages } = JSON.parse(text) as { messages: { data: { n: number } }[] };
    seen.push(...messages.map((message) => message.data.n));
  }
}

export function post(url: string, path: string, body: unknown): Promise<Response> {
  return fetch(`${url}${path}`, { method: 'POST', body: JSON.stringify(body) });
}

export function numbers(from: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => from + i);
}
