/**
 * Stands in front of several brokers of one database and hands each request to the next of them: what a client meets
 * behind a load balancer that knows nothing. With `QUEEN_TEST_BROKERS=2`, openLive and startBroker start two brokers and
 * give out this one's address (see `brokersWanted`).
 */
import { Agent, createServer, request as send } from 'node:http';
import type { AddressInfo } from 'node:net';
import { atEnd, type Cleanup } from './cleanup.ts';

/**
 * How many brokers a test gets.
 *
 * @param alone why the test needs one broker, whatever the environment says; undefined: it does not.
 */
export function brokersWanted(alone?: string): number {
  return alone === undefined ? Number(process.env.QUEEN_TEST_BROKERS || 1) : 1;
}

/** A broker hears of another one's pushes within milliseconds; a pop that would not wait at all waits for that. */
const HEARSAY_MS = 500;

export async function startRoundRobin(
  urls: readonly string[],
  t: Cleanup,
): Promise<{ url: string; port: number }> {
  const agent = new Agent({ keepAlive: true });
  let turn = 0;
  const server = createServer((request, response) => {
    const { hostname, port } = new URL(urls[turn++ % urls.length]!);
    const path = patient(request.method!, request.url!);
    const onward = send(
      { hostname, port, agent, method: request.method, path, headers: request.headers },
      (answer) => {
        response.writeHead(answer.statusCode!, answer.statusMessage, answer.rawHeaders);
        answer.pipe(response);
      },
    );
    onward.on('error', () => response.destroy());
    // Whoever leaves early leaves the broker too.
    response.on('close', () => onward.destroy());
    request.pipe(onward);
  });
  server.on('checkContinue', (request, response) => {
    response.writeContinue();
    server.emit('request', request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(t, () => {
    server.close();
    server.closeAllConnections();
    agent.destroy();
  });
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, port };
}

function patient(method: string, path: string): string {
  if (method !== 'GET' || !/^\/api\/v1\/pop(\/|\?|$)/.test(path) || /[?&](wait|timeout)=/.test(path))
    return path;
  return `${path}${path.includes('?') ? '&' : '?'}wait=true&timeout=${HEARSAY_MS}`;
}
