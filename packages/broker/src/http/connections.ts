/**
 * The open client connections: what is in flight on each, who has to be told when one goes away, and what becomes
 * of bytes that are not HTTP.
 *
 * A client that half-closes counts as gone. It is the only sign of a consumer that closed the socket of its long
 * poll, and keeping a claim for it would hide messages for a whole lease.
 */
import { type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { FAULTS, type FaultCode } from './errors.ts';

/** Why a pop was cut short. */
export const CLIENT_GONE = 'client gone';
export const CLOSING = 'closing';

/** A client that has not taken a byte of its answer for so long is cut off. */
const STALLED_ANSWER_MS = 30_000;
/** Requests sent ahead on one connection without waiting for their answers; beyond it the connection is cut. */
const PIPELINED_MAX = 256;

interface Connection {
  inFlight: Set<ServerResponse>;
  waits: Set<AbortController>;
  /** Set when bytes arrived that are not HTTP: to be answered once what is in flight is. */
  broken: FaultCode | null;
}

export interface ConnectionObserver {
  /** A request was refused before it reached a handler. */
  refused(reason: string): void;
  answered(status: number): void;
}

export class Connections {
  readonly #open = new Map<Socket, Connection>();
  readonly #observer: ConnectionObserver;
  #inFlight = 0;
  #closing = false;
  #idle: (() => void) | null = null;

  constructor(observer: ConnectionObserver) {
    this.#observer = observer;
  }

  get count(): number {
    return this.#open.size;
  }

  /** Requests received and not answered yet. */
  get inFlight(): number {
    return this.#inFlight;
  }

  get closing(): boolean {
    return this.#closing;
  }

  /** To be called for every request. False: the connection has too many and is gone now. */
  begin(response: ServerResponse): boolean {
    const socket = response.req.socket;
    const connection = this.#open.get(socket);
    if (connection === undefined) return false;
    if (connection.inFlight.size >= PIPELINED_MAX) {
      this.#observer.refused('pipelined');
      socket.destroy();
      return false;
    }
    connection.inFlight.add(response);
    this.#inFlight++;
    response.once('close', () => this.#ended(socket, connection, response));
    if (this.#closing) response.setHeader('Connection', 'close');
    return true;
  }

  /** An abort controller that fires when the client of this response goes away or the server closes. */
  wait(response: ServerResponse): AbortController {
    const controller = new AbortController();
    const connection = this.#open.get(response.req.socket);
    if (connection === undefined || response.req.socket.destroyed) controller.abort(CLIENT_GONE);
    else if (this.#closing) controller.abort(CLOSING);
    else connection.waits.add(controller);
    return controller;
  }

  settled(response: ServerResponse, controller: AbortController): void {
    this.#open.get(response.req.socket)?.waits.delete(controller);
  }

  /** Cuts the client off if it does not take its answer. To be called after the last byte was handed over. */
  static guardAnswer(response: ServerResponse): void {
    const socket = response.socket;
    if (socket !== null && socket.writableLength > 0) socket.setTimeout(STALLED_ANSWER_MS);
  }

  /** Ends every wait, announces the end on every answer to come, resolves when nothing is in flight. */
  drain(): Promise<void> {
    this.#closing = true;
    for (const connection of this.#open.values()) {
      for (const response of connection.inFlight)
        if (!response.headersSent) response.setHeader('Connection', 'close');
      for (const controller of connection.waits) controller.abort(CLOSING);
      connection.waits.clear();
    }
    if (this.#inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idle = resolve;
    });
  }

  /** To be called with every new connection. */
  opened(socket: Socket): void {
    const connection: Connection = { inFlight: new Set(), waits: new Set(), broken: null };
    this.#open.set(socket, connection);
    socket.once('close', () => {
      this.#open.delete(socket);
      for (const controller of connection.waits) controller.abort(CLIENT_GONE);
      connection.waits.clear();
      // A response that is queued behind another one is not told of the end of its connection.
      for (const response of connection.inFlight) this.#ended(socket, connection, response);
    });
  }

  #ended(socket: Socket, connection: Connection, response: ServerResponse): void {
    if (!connection.inFlight.delete(response)) return;
    this.#inFlight--;
    if (response.headersSent) this.#observer.answered(response.statusCode);
    if (connection.broken !== null && connection.inFlight.size === 0) refuseRaw(socket, connection.broken);
    // The next one in a pipeline may be a long poll, which must not inherit the guard of a slow answer.
    else if (connection.inFlight.size > 0) socket.setTimeout(0);
    if (this.#inFlight === 0) this.#idle?.();
  }

  /** To be called with what the HTTP parser could not take, and with requests that were too slow. */
  parseError(error: NodeJS.ErrnoException, socket: Socket): void {
    if (error.code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }
    const connection = this.#open.get(socket);
    if (connection === undefined || connection.broken !== null) return;
    const kind = kindOf(error);
    this.#observer.refused(kind);
    connection.broken = kind;
    // Node has stopped parsing here. Answers that are still due go out first, unless the request that they belong to
    // is itself the broken one: it will never be complete.
    const cut = [...connection.inFlight].find((response) => !response.req.complete);
    if (connection.inFlight.size === 0) refuseRaw(socket, kind);
    else if (cut === undefined) socket.pause();
    else if (connection.inFlight.size === 1 && !cut.headersSent) refuseRaw(socket, kind);
    else socket.destroy();
  }
}

function kindOf(error: NodeJS.ErrnoException): FaultCode {
  if (error.code === 'HPE_HEADER_OVERFLOW') return 'headers_too_large';
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') return 'request_timeout';
  return 'malformed_http';
}

/** An answer to bytes that never became a request object. */
function refuseRaw(socket: Socket, kind: FaultCode): void {
  const { status, sentence } = FAULTS[kind];
  const body = JSON.stringify({ error: sentence, code: kind });
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nContent-Type: application/json\r\n`;
  socket.end(`${head}Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`, () => {
    socket.destroySoon();
  });
}
