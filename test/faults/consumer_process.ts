/** A consumer that can be stopped and killed: `node consumer_process.ts <url> <queue> <group> <lease seconds>`. */
import { createInterface } from 'node:readline';
import { Client, type Message } from '../broker/client.ts';

const [url, queue, group, leaseSeconds] = process.argv.slice(2) as [string, string, string, string];
const client = new Client(url);
let batch: Message[] = [];
while (batch.length === 0) {
  const lease = { consumerGroup: group, subscriptionMode: 'all', leaseSeconds };
  batch = await client.pop(queue, { ...lease, wait: true, timeout: 10_000 });
}
console.log(JSON.stringify(batch));
for await (const _line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await client.ackBatch(batch)));
}
