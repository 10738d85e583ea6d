import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * A TCP proxy that misbehaves on demand, between a broker and its database or between a client and a broker.
 */
export interface TcpProxy {
  readonly host: string;
  readonly port: number;
  /** Connections that are open now. */
  readonly connections: number;
  /** Back to plain forwarding. Bytes that were swallowed stay lost. */
  heal(): void;
  /** Resets every open connection; new ones are accepted. */
  drop(): void;
  /** Resets every open connection and refuses new ones until `heal`. */
  refuse(): void;
  /**
   * Half-open: nothing is forwarded or closed any more, as when a firewall forgets a connection. New
   * connections are accepted and hear nothing.
   */
  swallow(direction?: 'both' | 'to_server' | 'to_client'): void;
  /** Connections from now on go there, as when a name is given to another server; open ones stay. */
  redirect(target: ProxyTarget): void;
  /** Holds every chunk back for so long, in both directions. */
  delay(ms: number): void;
  close(): Promise<void>;
}

export type ProxyTarget = { host: string; port: number } | { path: string };

/** Listens on a free port of the loopback interface. */
export async function startProxy(target: ProxyTarget): Promise<TcpProxy> {
  const pairs = new Set<{ client: Socket; server: Socket }>();
  const state = { refusing: false, toServer: true, toClient: true, delayMs: 0 };
  let place = target;

  const listener = createServer((client) => {
    if (state.refusing) {
      client.resetAndDestroy();
      return;
    }
    const server = 'path' in place ? connect(place.path) : connect(place.port, place.host);
    const pair = { client, server };
    pairs.add(pair);
    client.setNoDelay(true);
    server.setNoDelay(true);
    const end = (): void => {
      pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) {
      socket.on('error', end);
      // A half-open connection does not carry the news of a close either.
      socket.on('close', () => {
        if (state.toServer && state.toClient) end();
      });
    }
    forward(client, server, () => state.toServer, state);
    forward(server, client, () => state.toClient, state);
  });
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  const address = listener.address();
  if (address === null || typeof address === 'string') throw new Error('no port');

  const reset = (): void => {
    for (const { client, server } of pairs) {
      client.resetAndDestroy();
      server.destroy();
    }
    pairs.clear();
  };
  return {
    host: '127.0.0.1',
    port: address.port,
    get connections() {
      return pairs.size;
    },
    heal() {
      Object.assign(state, { refusing: false, toServer: true, toClient: true, delayMs: 0 });
    },
    drop: reset,
    refuse() {
      state.refusing = true;
      reset();
    },
    swallow(direction = 'both') {
      if (direction !== 'to_client') state.toServer = false;
      if (direction !== 'to_server') state.toClient = false;
    },
    redirect(target) {
      place = target;
    },
    delay(ms) {
      state.delayMs = ms;
    },
    async close() {
      reset();
      await new Promise<void>((resolve) => listener.close(() => resolve()));
    },
  };
}

function forward(from: Socket, to: Socket, open: () => boolean, state: { delayMs: number }): void {
  // Chunks keep their order however the delay changes: each waits for the one before it.
  let last: Promise<void> = Promise.resolve();
  from.on('data', (chunk: Buffer) => {
    if (!open()) return;
    const due = performance.now() + state.delayMs;
    last = last.then(async () => {
      const wait = due - performance.now();
      if (state.delayMs > 0 && wait > 0) await sleep(wait);
      write(to, chunk, from);
    });
  });
  from.on('end', () => {
    last = last.then(() => {
      if (open() && !to.destroyed) to.end();
    });
  });
}

function write(to: Socket, chunk: Buffer, from: Socket): void {
  if (to.destroyed) return;
  if (!to.write(chunk)) {
    from.pause();
    to.once('drain', () => from.resume());
  }
}
