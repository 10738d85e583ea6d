import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { HttpConnection } from '../../bench/http.ts';

test('a request on a connection that the other end has closed fails, and at once', async (t) => {
  const server = createServer((_request, response) => void response.end('here'));
  t.after(() => server.close());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const connection = await HttpConnection.open((server.address() as AddressInfo).port);
  assert.equal((await connection.request('GET', '/')).body.toString(), 'here');
  server.closeAllConnections();
  // Whether it is noticed before the request or by it.
  await assert.rejects(connection.request('GET', '/'), /closed|ECONNRESET|EPIPE/);
  await assert.rejects(connection.request('GET', '/'), /closed|ECONNRESET|EPIPE/);
});
