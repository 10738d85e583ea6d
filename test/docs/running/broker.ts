import { after } from 'node:test';
import { type BrokerProcess, startBroker } from '../../kit/broker.ts';

let started: Promise<BrokerProcess> | null = null;
const ends: (() => Promise<void>)[] = [];
after(async () => {
  for (const end of ends.reverse()) await end();
});

/** The one broker of this process, as a newcomer starts it, but for its port and directory. It ends with the process. */
export function broker(): Promise<BrokerProcess> {
  const env = { STATS_INTERVAL_MS: '1000', METRICS_FLUSH_MS: '1000' };
  started ??= startBroker({ env }, { after: (end) => void ends.push(end) });
  return started;
}
