/**
 * A connection pooler in transaction mode, as small as one can be: it ends the clients' protocol itself, holds a few
 * connections to the server, and lends one to a client from the first message until the transaction is over. For
 * machines that have no pgbouncer.
 */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';

const SERVERS = 2;
const SSL_REQUEST = 80_877_103;
const GSS_REQUEST = 80_877_104;
const CANCEL_REQUEST = 80_877_102;
const READY = 'Z'.charCodeAt(0);
const PARAMETER = 'S'.charCodeAt(0);
const SYNC = 'S'.charCodeAt(0);
const QUERY = 'Q'.charCodeAt(0);
const TERMINATE = 'X'.charCodeAt(0);
const IDLE = 'I'.charCodeAt(0);
const BACKEND_KEY = 'K';

interface Backend {
  socket: Socket;
  client: Client | null;
}

interface Client {
  socket: Socket;
  backend: Backend | null;
  /** Answers that are still to come: the loan cannot end before. */
  owed: number;
  waiting: Buffer[];
}

/** Listens on a free port of the loopback interface; anybody may come. */
export async function startPooler(
  t: Cleanup,
  server: { path: string } | { host: string; port: number },
  who: { user: string; database: string },
): Promise<{ host: string; port: number }> {
  const idle: Backend[] = [];
  const queue: Client[] = [];
  const sockets = new Set<Socket>();
  const parameters: Buffer[] = [];

  const lend = (): void => {
    while (idle.length > 0 && queue.length > 0) {
      const client = queue.shift()!;
      if (client.socket.destroyed) continue;
      const backend = idle.shift()!;
      backend.client = client;
      client.backend = backend;
      for (const message of client.waiting.splice(0)) send(client, message);
    }
  };
  const send = (client: Client, message: Buffer): void => {
    if (message[0] === SYNC || message[0] === QUERY) client.owed++;
    client.backend!.socket.write(message);
  };
  const fromServer = (backend: Backend, message: Buffer): void => {
    const { client } = backend;
    client?.socket.write(message);
    if (message[0] !== READY || client === null) return;
    client.owed--;
    if (message[5] !== IDLE || client.owed > 0) return;
    client.backend = null;
    backend.client = null;
    idle.push(backend);
    lend();
  };
  const fromClient = (client: Client, message: Buffer): void => {
    if (message[0] === TERMINATE) client.socket.end();
    else if (client.backend !== null) send(client, message);
    else if (client.waiting.push(message) === 1) {
      queue.push(client);
      lend();
    }
  };

  for (let i = 0; i < SERVERS; i++) {
    const socket = 'path' in server ? connect(server.path) : connect(server.port, server.host);
    sockets.add(socket);
    socket.on('error', () => {});
    const backend: Backend = { socket, client: null };
    await new Promise<void>((resolve) => {
      socket.on(
        'data',
        framed(true, (message) => {
          if (backend.client !== null) return fromServer(backend, message);
          if (message[0] === PARAMETER && i === 0) parameters.push(message);
          if (message[0] === READY) resolve();
        }),
      );
      socket.write(startup(who));
    });
    idle.push(backend);
  }

  let clients = 0;
  const listener = createServer((socket) => {
    sockets.add(socket);
    const client: Client = { socket, backend: null, owed: 0, waiting: [] };
    const pid = 1_000_000 + ++clients;
    socket.on('error', () => {});
    socket.on('close', () => client.backend?.socket.destroy());
    socket.on(
      'data',
      framed(
        false,
        (message) => {
          const code = message.length >= 8 ? message.readInt32BE(4) : 0;
          if (code === SSL_REQUEST || code === GSS_REQUEST) return void socket.write('N');
          if (code === CANCEL_REQUEST) return void socket.end();
          const key = Buffer.alloc(8);
          key.writeInt32BE(pid, 0);
          const greeting = [
            typed('R', Buffer.alloc(4)),
            ...parameters,
            typed(BACKEND_KEY, key),
            typed('Z', Buffer.from('I')),
          ];
          socket.write(Buffer.concat(greeting));
          return 'greeted';
        },
        (message) => fromClient(client, message),
      ),
    );
  });
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  atEnd(t, async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise<void>((resolve) => listener.close(() => resolve()));
  });
  return { host: '127.0.0.1', port: (listener.address() as AddressInfo).port };
}

function typed(type: string, body: Buffer): Buffer {
  const message = Buffer.alloc(5 + body.length);
  message.write(type, 0, 'latin1');
  message.writeInt32BE(4 + body.length, 1);
  body.copy(message, 5);
  return message;
}

function startup({ user, database }: { user: string; database: string }): Buffer {
  const body = Buffer.from(`user\0${user}\0database\0${database}\0\0`);
  const message = Buffer.alloc(8);
  message.writeInt32BE(8 + body.length, 0);
  message.writeInt32BE(3 << 16, 4);
  return Buffer.concat([message, body]);
}

/**
 * Cuts a stream into messages. Those of a client have no type byte until `onUntyped` says that it is greeted.
 */
function framed(
  isTyped: boolean,
  onMessage: (message: Buffer) => unknown,
  onTyped: (message: Buffer) => void = onMessage,
): (chunk: Buffer) => void {
  let rest: Buffer = Buffer.alloc(0);
  let withType = isTyped;
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    for (;;) {
      const head = withType ? 1 : 0;
      if (rest.length < head + 4) return;
      const length = head + rest.readInt32BE(head);
      if (rest.length < length) return;
      const message = rest.subarray(0, length);
      rest = rest.subarray(length);
      if (withType) onTyped(message);
      else if (onMessage(message) === 'greeted') withType = true;
    }
  };
}
