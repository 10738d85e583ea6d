import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { atEnd, type Cleanup } from '../../../../test/kit/cleanup.ts';

/** What the page has to hand: the package as it is published, and a client by the origin of the page. */
const PAGE = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>The client in a browser</title><link rel="icon" href="data:,"></head>
<body>
<script type="module">
import * as published from '/client/index.js';
globalThis.published = published;
globalThis.connect = (options) => new published.Queen({ urls: [location.origin], ...options });
</script>
</body>
</html>`;

/**
 * One origin for a page, the built package in `directory`, and the broker behind it: brokers send no CORS headers, so this is how the
 * package is used in browsers. A request that the page gives up is given up towards the broker as well, and one that the broker
 * does not answer is a 502.
 *
 * @returns where it listens
 */
export async function startOrigin(t: Cleanup, directory: string, brokerPort: number) {
  const server = createServer((asked, response) => {
    const path = asked.url ?? '/';
    if (path.startsWith('/api/')) return forward(asked, response, brokerPort);
    if (path === '/') return void response.setHeader('content-type', 'text/html').end(PAGE);
    if (/^\/client\/[\w/]+\.js$/.test(path)) {
      const module = readFileSync(join(directory, path.slice('/client/'.length)));
      return void response.setHeader('content-type', 'text/javascript').end(module);
    }
    response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(t, () => {
    server.closeAllConnections();
    return new Promise<void>((resolve) => server.close(() => resolve()));
  });
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
}

function forward(asked: IncomingMessage, response: ServerResponse, port: number): void {
  const { method, url: path, headers } = asked;
  const onward = request({ host: '127.0.0.1', port, method, path, headers }, (answer) => {
    response.writeHead(answer.statusCode!, answer.headers);
    answer.on('error', () => response.destroy());
    answer.pipe(response);
  });
  // As a reverse proxy does: to hang up would make browsers send the request once more.
  onward.on('error', () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
  response.on('close', () => onward.destroy());
  asked.pipe(onward);
}
