// First, so that its hook comes before that of the kit.
import '../../../test/kit/end.ts';

import { startBroker } from '../../../test/kit/broker.ts';
import { atEnd, type Cleanup } from '../../../test/kit/cleanup.ts';
import { file } from '../../../test/kit/end.ts';
import { freshDatabase, type TestDatabase } from '../../../test/kit/postgres.ts';
import { startProxy, type TcpProxy } from '../../../test/kit/proxy.ts';
import { type ClientOptions, Queen } from '../src/index.ts';

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

/** A proxy before the broker of the file, a client that knows nothing else, and one that goes past it. */
export async function behindProxy(t: Cleanup, options: Partial<ClientOptions> = {}) {
  const { port } = new URL((await broker()).url);
  const proxy = await startProxy({ host: '127.0.0.1', port: Number(port) });
  atEnd(t, () => proxy.close());
  const client = await clientOf(t, {
    urls: [`http://127.0.0.1:${proxy.port}`],
    retry: { baseMs: 20, retries: 20 },
    ...options,
  });
  return { proxy, client, direct: await clientOf(t) };
}

/** Work whose answer is cut off, once it can be seen that it was done. */
export async function cutOff(
  proxy: TcpProxy,
  work: () => Promise<unknown>,
  done: () => boolean | Promise<boolean>,
): Promise<unknown> {
  proxy.swallow('to_client');
  const result = work();
  result.catch(() => {});
  await until(done);
  proxy.heal();
  proxy.drop();
  return result;
}

/** Looks until it holds; rejects after `withinMs`. */
export async function until<T>(
  look: () => T | Promise<T>,
  withinMs = 30_000,
): Promise<Exclude<T, false | null | undefined>> {
  const end = performance.now() + withinMs;
  for (;;) {
    const seen = await look();
    if (seen) return seen as Exclude<T, false | null | undefined>;
    if (performance.now() > end) throw new Error(`not within ${withinMs} ms: ${look}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
