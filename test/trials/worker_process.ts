/**
 * A consumer in a process of its own (see worker.ts). The only argument is its job as JSON. It pops one batch, acks
 * the first messages of it, and goes on working on the rest for ever. On SIGTERM it gives back what it has not
 * finished, as client libraries do, and ends.
 */
import { Client } from '../broker/client.ts';
import type { WorkerJob, WorkerReport } from './worker.ts';

const job = JSON.parse(process.argv[2]!) as WorkerJob;
const client = new Client(job.url);

function say(report: WorkerReport): void {
  process.stdout.write(`${JSON.stringify(report)}\n`);
}

const messages = await client.popAt(job.path, { wait: true, timeout: 20_000, ...job.parameters });
for (const message of messages.slice(0, job.finish)) {
  const verdict = await client.ack(message);
  if (!verdict.success) throw new Error(JSON.stringify(verdict));
}
const rest = messages.slice(job.finish);

process.on('SIGTERM', async () => {
  const verdicts = await client.ackBatch(rest, 'retry');
  say({ word: 'gave back', verdicts });
  process.exit(0);
});
say({ word: 'holds', messages });

const { renew } = job;
if (renew !== undefined) {
  const lease = messages[0]!.leaseId;
  setInterval(async () => {
    const { body } = await client.call('POST', `/api/v1/lease/${lease}/extend`, { seconds: renew.seconds });
    say({ word: 'renewed', partitions: body.renewed as number });
  }, renew.everyMs);
}
// The handler that never returns.
setInterval(() => {}, 60_000);
