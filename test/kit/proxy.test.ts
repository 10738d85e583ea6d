import assert from 'node:assert/strict';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { atEnd, type Cleanup } from './cleanup.ts';
import { startProxy, type TcpProxy } from './proxy.ts';

/** A server that says everything back, behind a proxy. */
async function echo(t: Cleanup): Promise<TcpProxy> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.pipe(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const proxy = await startProxy({ host: '127.0.0.1', port: (server.address() as AddressInfo).port });
  atEnd(t, async () => {
    await proxy.close();
    server.close();
  });
  return proxy;
}

async function dial(t: Cleanup, proxy: TcpProxy): Promise<Socket> {
  const socket = connect(proxy.port, proxy.host);
  socket.on('error', () => {});
  atEnd(t, () => void socket.destroy());
  await new Promise<void>((resolve) => socket.once('connect', resolve));
  return socket;
}

function heard(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    socket.once('data', (chunk: Buffer) => resolve(chunk.toString()));
    socket.once('close', () => resolve('closed'));
  });
}

test('it forwards, in order, and delays', async (t) => {
  const proxy = await echo(t);
  const socket = await dial(t, proxy);
  let answer = heard(socket);
  socket.write('hello');
  assert.equal(await answer, 'hello');
  proxy.delay(30);
  answer = heard(socket);
  const started = performance.now();
  socket.write('slow');
  assert.equal(await answer, 'slow');
  assert.ok(performance.now() - started >= 58, 'thirty each way');
  proxy.heal();
});

test('a dropped connection is reset, a new one works; refused ones do not until it is healed', async (t) => {
  const proxy = await echo(t);
  const first = await dial(t, proxy);
  const end = heard(first);
  first.write('x');
  await end;
  const closed = heard(first);
  proxy.drop();
  assert.equal(await closed, 'closed');

  proxy.refuse();
  const refused = connect(proxy.port, proxy.host);
  refused.on('error', () => {});
  assert.equal(await heard(refused), 'closed');
  proxy.heal();
  const second = await dial(t, proxy);
  const answer = heard(second);
  second.write('again');
  assert.equal(await answer, 'again');
});

test('half-open: nothing is heard and nothing is closed, and what was swallowed stays lost', async (t) => {
  const proxy = await echo(t);
  const socket = await dial(t, proxy);
  let answer = heard(socket);
  socket.write('before');
  await answer;
  proxy.swallow('to_server');
  answer = heard(socket);
  socket.write('lost');
  // A second connection, made later, is swallowed as well: its silence has lasted as long as the first one's.
  await dial(t, proxy);
  assert.equal(proxy.connections, 2);
  assert.equal(socket.destroyed, false);
  proxy.heal();
  socket.write('after');
  assert.equal(await answer, 'after');
});
