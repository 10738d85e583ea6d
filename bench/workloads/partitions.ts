/**
 * What a message costs when there are a million partitions and when there are a hundred. Requests have the same shape for
 * both: a hundred messages, each to another partition. Where all clients push, a few partitions collect what they send into common segments, and many do
 * not; the last line has one client, and a segment a message, for both.
 */
import { ack, pop } from '../consume.ts';
import type { HttpConnection } from '../http.ts';
import { assertStored, PushBody } from '../messages.ts';
import type { Rig } from '../rig.ts';
import type { Result, Row, Workload } from '../workload.ts';

const FEW = 100;
const MANY = 1_000_000;
const MANY_QUICK = 2_000;
const BATCH = 100;
const CLIENTS = 16;
const CONSUMERS = 8;
const MB = 2 ** 20;
/** Messages that are pushed once the partitions are there. */
const SAMPLE = 100_000;
const SAMPLE_QUICK = 2_000;

/** Every client pushes its share of `messages`, each to the partition after the one before. */
async function fill(clients: readonly HttpConnection[], queue: string, partitions: number, messages: number) {
  let sent = 0;
  const loop = async (client: HttpConnection, seed: number) => {
    const body = new PushBody(queue, BATCH, seed);
    while (sent < messages) {
      const first = sent;
      sent += BATCH;
      assertStored(await client.request('POST', '/api/v1/push', body.stampInTurn(first, partitions)), first);
    }
  };
  await Promise.all(clients.map(loop));
}

async function drain(clients: readonly HttpConnection[], queue: string, messages: number) {
  const query = `batch=${BATCH}&partitions=${BATCH}&wait=true&timeout=250&consumerGroup=g&subscriptionMode=all`;
  let settled = 0;
  const loop = async (client: HttpConnection) => {
    while (settled < messages) {
      const popped = await pop(client, queue, query);
      if (popped === null) continue;
      await ack(client, popped, 'g');
      settled += popped.messages.length;
    }
  };
  await Promise.all(clients.slice(0, CONSUMERS).map(loop));
  if (settled !== messages) throw new Error(`${settled} messages came out of ${messages}`);
}

/** One client pushes to so many partitions, pops what it pushed and acks it: no two pushes meet in a segment. */
async function cycle(client: HttpConnection, queue: string, partitions: number, messages: number) {
  const query = `batch=${BATCH}&partitions=${BATCH}&wait=true&timeout=2000&consumerGroup=g`;
  const body = new PushBody(queue, BATCH, 1);
  for (let sent = 0; sent < messages; sent += BATCH) {
    assertStored(await client.request('POST', '/api/v1/push', body.stampInTurn(sent, partitions)), sent);
    for (let settled = 0; settled < BATCH; ) {
      const popped = await pop(client, queue, query);
      if (popped === null) throw new Error(`${settled} messages came out of ${BATCH}`);
      await ack(client, popped, 'g');
      settled += popped.messages.length;
    }
  }
}

async function measure(rig: Rig, queue: string, partitions: number, sample: number): Promise<Row[]> {
  const clients = await rig.connections(CLIENTS);
  const rows: Row[] = [];
  const phase = async (what: string, messages: number, work: () => Promise<void>) => {
    const begun = performance.now();
    const cpu = rig.brokerCpuSeconds();
    await work();
    const seconds = (performance.now() - begun) / 1000;
    rows.push({
      what: `${partitions.toLocaleString('en-US')} partitions: ${what}`,
      figures: {
        messages,
        seconds,
        'µs a message': (seconds * 1e6) / messages,
        'µs of broker CPU': ((rig.brokerCpuSeconds() - cpu) * 1e6) / messages,
        'broker MB': rig.brokerMemory() / MB,
      },
    });
  };
  await rig.configure(queue, {});
  try {
    await phase('created by a push', partitions, () => fill(clients, queue, partitions, partitions));
    await phase('pushed', sample, () => fill(clients, queue, partitions, sample));
    await phase('drained', partitions + sample, () => drain(clients, queue, partitions + sample));
    await phase('through and out, one client', sample / 5, () =>
      cycle(clients[0]!, queue, partitions, sample / 5),
    );
  } finally {
    for (const client of clients) client.close();
    await rig.deleteQueue(queue);
  }
  return rows;
}

export const partitions: Workload = {
  name: 'partitions',
  about: `requests of ${BATCH} messages, each to another partition; popped from ${BATCH} partitions at a time`,
  async run(rig, scale): Promise<Result> {
    const sample = scale.quick ? SAMPLE_QUICK : SAMPLE;
    const few = await measure(rig, 'bench-few', FEW, sample);
    const many = await measure(rig, 'bench-many', scale.quick ? MANY_QUICK : MANY, sample);
    return { rows: [...few, ...many], goals: [] };
  },
};
