// First, so that its hook comes before that of the kit.
import './end.ts';

import { startBroker } from '../../../test/kit/broker.ts';
import { atEnd, type Cleanup } from '../../../test/kit/cleanup.ts';
import { freshDatabase, type TestDatabase } from '../../../test/kit/postgres.ts';
import { type ClientOptions, Queen } from '../src/index.ts';
import { file } from './end.ts';

export interface Setup {
  readonly database: TestDatabase;
  readonly url: string;
}

let shared: Promise<Setup> | undefined;

/** One broker for all tests of the file; each takes queues of its own. */
export function broker(): Promise<Setup> {
  shared ??= (async () => {
    const database = await freshDatabase(file);
    const { url } = await startBroker({ database, env: { QUEEN_ENCRYPTION_KEY: 'ab'.repeat(32) } }, file);
    return { database, url };
  })();
  return shared;
}

/** A client that is closed with the test. */
export async function clientOf(t: Cleanup, options: Partial<ClientOptions> = {}): Promise<Queen> {
  const client = new Queen({ urls: options.urls ?? [(await broker()).url], ...options });
  atEnd(t, () => client.close({ timeoutMs: 0 }).catch(() => {}));
  return client;
}

/** Looks until it holds; rejects after `withinMs`. */
export async function until<T>(
  look: () => T | Promise<T>,
  withinMs = 10_000,
): Promise<Exclude<T, false | null | undefined>> {
  const end = performance.now() + withinMs;
  for (;;) {
    const seen = await look();
    if (seen) return seen as Exclude<T, false | null | undefined>;
    if (performance.now() > end) throw new Error(`not within ${withinMs} ms: ${look}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
