/** Writes answers to raw responses. Each function does nothing when the client is gone or was answered already. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Connections } from './connections.ts';
import type { Fault } from './errors.ts';

const JSON_TYPE = 'application/json';
/** How long and how much of a refused body is still read, so that the client can read why it was refused. */
const LINGER_MS = 5_000;
const LINGER_BYTES = 64 * 1024 * 1024;

/** The response can still be written. */
function answerable(response: ServerResponse): boolean {
  return !response.headersSent && !response.destroyed && response.req.socket.writable;
}

export function answerJson(response: ServerResponse, status: number, json: string): void {
  if (!answerable(response)) return;
  response.writeHead(status, { 'Content-Type': JSON_TYPE, 'Content-Length': Buffer.byteLength(json) });
  response.end(json);
  Connections.guardAnswer(response);
}

/** JSON that is bytes already. */
export function answerBytes(response: ServerResponse, status: number, json: Buffer): void {
  if (!answerable(response)) return;
  response.writeHead(status, { 'Content-Type': JSON_TYPE, 'Content-Length': json.length });
  response.end(json);
  Connections.guardAnswer(response);
}

/** JSON that is already in pieces of bytes. */
export function answerChunks(response: ServerResponse, status: number, chunks: readonly Buffer[]): void {
  if (!answerable(response)) return;
  let length = 0;
  for (const chunk of chunks) length += chunk.length;
  response.writeHead(status, { 'Content-Type': JSON_TYPE, 'Content-Length': length });
  response.cork();
  for (const chunk of chunks) response.write(chunk);
  response.uncork();
  response.end();
  Connections.guardAnswer(response);
}

/** 204: no body and no Content-Length. */
export function answerNothing(response: ServerResponse): void {
  if (!answerable(response)) return;
  response.writeHead(204);
  response.end();
}

/** A refusal. If the request's body has not been read it is thrown away, and the connection ends after it. */
export function answerFault(response: ServerResponse, fault: Fault, envelopeAlways?: boolean): void {
  if (!answerable(response)) return;
  const { headers, body } = faultAnswer(fault, envelopeAlways);
  headers['Content-Length'] = Buffer.byteLength(body);
  if (!bodyDue(response.req)) {
    response.writeHead(fault.status, headers);
    response.end(body);
    return;
  }
  headers.Connection = 'close';
  response.writeHead(fault.status, headers);
  response.write(body);
  linger(response);
}

/** Some of the request's body has not been received. (At the very first moment no request is complete, not even a GET.) */
function bodyDue(request: IncomingMessage): boolean {
  if (request.complete) return false;
  const length = request.headers['content-length'];
  return request.headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

/**
 * A body over the cap is answered in plain text, unless the route always has the envelope or something was added to it;
 * everything else in the JSON envelope.
 */
export function faultAnswer(
  fault: Fault,
  envelopeAlways = false,
): { headers: Record<string, string | number>; body: string } {
  const plain = fault.code === 'body_too_large' && fault.extra === undefined && !envelopeAlways;
  const headers: Record<string, string | number> = {
    'Content-Type': plain ? 'text/plain; charset=utf-8' : JSON_TYPE,
  };
  if (fault.retryAfterSeconds !== undefined)
    headers['Retry-After'] = Math.max(1, Math.ceil(fault.retryAfterSeconds));
  if (fault.status === 401) headers['WWW-Authenticate'] = 'Bearer';
  return { headers, body: plain ? fault.message : JSON.stringify(fault.envelope()) };
}

/**
 * Closing a socket with unread bytes in it resets the connection, and the reset overtakes the answer. So the answer
 * is sent whole, the rest of the body is read into nothing for a while, and only then the connection is closed.
 */
function linger(response: ServerResponse): void {
  const request = response.req;
  let dropped = 0;
  const timer = setTimeout(close, LINGER_MS);
  timer.unref();
  function close(): void {
    clearTimeout(timer);
    request.off('data', drop);
    response.end();
    if (!request.complete) request.socket.destroySoon();
  }
  function drop(chunk: Buffer): void {
    dropped += chunk.length;
    if (dropped > LINGER_BYTES) close();
  }
  request.on('error', () => {});
  request.once('close', close);
  request.once('end', close);
  request.on('data', drop);
  request.resume();
}
