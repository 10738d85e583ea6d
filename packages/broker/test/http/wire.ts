/** A server over the fake broker, and a raw socket client: fetch hides too much of what these tests are about. */
import { connect, type Socket } from 'node:net';
import { createServer, type ServerOptions } from '../../src/http/server.ts';
import { silentLog } from '../../src/observability/log.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { Traffic } from '../../src/observability/traffic.ts';
import { FakeBroker } from './fake_broker.ts';

export interface Wire {
  url: string;
  port: number;
  broker: FakeBroker;
  metrics: Metrics;
  traffic: Traffic;
  close(graceMs?: number): Promise<void>;
}

export async function openWire(
  t: { after(fn: () => unknown): void },
  overrides: Partial<ServerOptions> = {},
): Promise<Wire> {
  const broker = new FakeBroker();
  const metrics = new Metrics();
  const traffic = new Traffic();
  const server = createServer({
    broker,
    metrics,
    traffic,
    log: silentLog,
    version: '0.0.0-test',
    serverId: 'test',
    ...overrides,
  });
  const { port } = await server.listen(0, '127.0.0.1');
  let closed: Promise<void> | undefined;
  const close = (graceMs = 1000) => {
    closed ??= server.close(graceMs);
    return closed;
  };
  t.after(() => close(50));
  return { url: `http://127.0.0.1:${port}`, port, broker, metrics, traffic, close };
}

export interface RawAnswer {
  status: number;
  headers: Record<string, string>;
  body: string;
}

/** One TCP connection on which a test writes bytes and reads answers. */
export class RawClient {
  readonly socket: Socket;
  #chunks: Buffer[] = [];
  #bytes = 0;
  /** Bytes before which there is nothing to look at. */
  #needed = 1;
  #ended = false;
  #wake: () => void = () => {};

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (chunk) => {
      this.#chunks.push(chunk);
      this.#bytes += chunk.length;
      if (this.#bytes >= this.#needed) this.#wake();
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      this.#ended = true;
      this.#wake();
    });
  }

  static open(port: number, t: { after(fn: () => unknown): void }, halfOpen = false): Promise<RawClient> {
    return new Promise((resolve, reject) => {
      const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: halfOpen });
      t.after(() => socket.destroy());
      socket.once('error', reject);
      socket.once('connect', () => resolve(new RawClient(socket)));
    });
  }

  send(bytes: string | Buffer): this {
    this.socket.write(bytes);
    return this;
  }

  /** The next answer; null when the connection ended without one. */
  async answer(): Promise<RawAnswer | null> {
    for (;;) {
      const answer = this.#take();
      if (answer !== null) return answer;
      if (this.#ended) return null;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  async closed(): Promise<void> {
    while (!this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #take(): RawAnswer | null {
    if (this.#bytes < this.#needed) return null;
    const received = Buffer.concat(this.#chunks);
    this.#chunks = [received];
    this.#needed = this.#bytes + 1;
    const end = received.indexOf('\r\n\r\n');
    if (end === -1) return null;
    const [first, ...lines] = received.subarray(0, end).toString('latin1').split('\r\n');
    const status = Number(first!.split(' ')[1]);
    const headers: Record<string, string> = {};
    for (const line of lines) {
      const colon = line.indexOf(':');
      headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
    }
    const whole = end + 4 + Number(headers['content-length'] ?? 0);
    if (received.length < whole) {
      this.#needed = whole;
      return null;
    }
    const body = received.subarray(end + 4, whole).toString('utf8');
    this.#chunks = [received.subarray(whole)];
    this.#bytes = received.length - whole;
    this.#needed = 1;
    return { status, headers, body };
  }
}

export function post(path: string, body: string | Buffer, headers: Record<string, string> = {}): Buffer {
  const bytes = Buffer.from(body as string);
  const lines = Object.entries({ Host: 'x', 'Content-Length': String(bytes.length), ...headers });
  const head = `POST ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;
  return Buffer.concat([Buffer.from(head), bytes]);
}

export function get(path: string): string {
  return `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
}

/** Resolves when the condition holds; the test's own timeout is the limit. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 2));
}
