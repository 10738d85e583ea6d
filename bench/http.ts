/**
 * An HTTP/1.1 client for load: one connection, one request at a time, requests written as they are. node:http
 * costs the generator as much as the broker pays for the same request, and they share the machine.
 */
import { connect, type Socket } from 'node:net';

export interface Answer {
  status: number;
  body: Buffer;
}

const HEAD_END = Buffer.from('\r\n\r\n');

export class HttpConnection {
  readonly #socket: Socket;
  #pending: { resolve(answer: Answer): void; reject(error: Error): void } | null = null;
  #received: Buffer[] = [];
  #bytes = 0;
  #bytesWanted = 0;
  #ended: Error | null = null;

  static open(port: number): Promise<HttpConnection> {
    return new Promise((resolve, reject) => {
      const socket = connect({ port, host: '127.0.0.1', noDelay: true });
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.removeListener('error', reject);
        resolve(new HttpConnection(socket));
      });
    });
  }

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk) => this.#data(chunk));
    socket.on('error', (error) => this.#fail(error));
    socket.on('close', () => this.#fail(new Error('the broker closed the connection')));
  }

  /** The body is written as it is and must not change until the answer has come. */
  request(method: string, path: string, body: Buffer | null = null): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#pending !== null) throw new Error('one request at a time');
      // Nothing would ever answer: the broker closes a connection that is idle for a minute.
      if (this.#ended !== null) throw this.#ended;
      this.#pending = { resolve, reject };
      const head = `${method} ${path} HTTP/1.1\r\nHost: bench\r\n`;
      if (body === null) {
        this.#socket.write(`${head}\r\n`);
        return;
      }
      this.#socket.cork();
      this.#socket.write(`${head}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`);
      this.#socket.write(body);
      this.#socket.uncork();
    });
  }

  close(): void {
    this.#pending = null;
    this.#socket.destroy();
  }

  #data(chunk: Buffer): void {
    this.#received.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes < this.#bytesWanted) return;
    const all = this.#received.length === 1 ? chunk : Buffer.concat(this.#received);
    this.#received = [all];
    const headEnd = all.indexOf(HEAD_END);
    if (headEnd < 0) return;
    const head = all.toString('latin1', 0, headEnd);
    const status = Number(head.slice(9, 12));
    const length = /\r\ncontent-length: *(\d+)/i.exec(head);
    if (length === null && status !== 204) {
      this.#fail(new Error(`an answer without Content-Length: ${head}`));
      return;
    }
    const bodyAt = headEnd + HEAD_END.length;
    this.#bytesWanted = bodyAt + (length === null ? 0 : Number(length[1]));
    if (this.#bytes < this.#bytesWanted) return;
    const pending = this.#pending;
    this.#pending = null;
    this.#received = [];
    this.#bytes = 0;
    const body = all.subarray(bodyAt, this.#bytesWanted);
    this.#bytesWanted = 0;
    pending?.resolve({ status, body });
  }

  #fail(error: Error): void {
    this.#ended ??= error;
    const pending = this.#pending;
    this.#pending = null;
    pending?.reject(error);
  }
}

export async function openConnections(port: number, count: number): Promise<HttpConnection[]> {
  return Promise.all(Array.from({ length: count }, () => HttpConnection.open(port)));
}
