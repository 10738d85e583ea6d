/**
 * The protocol layer: pg's own Connection with its parser corrected for binary results.
 *
 * pg-protocol decodes every column as UTF-8 before it looks at the column's format, which mangles binary
 * values (`\xff00fe80` comes back as U+FFFD signs). Here a DataRow stays what it is, a range of the receive
 * buffer, and is decoded while it is handled: the parser reuses that buffer for the next read.
 *
 * This leans on the inside of pg 8.23.1 and pg-protocol 1.16.1; both are pinned exactly and the round-trip
 * test guards the seam.
 */
import type { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import pg from 'pg';
import { Parser } from 'pg-protocol/dist/parser.js';

export interface FieldDescription {
  name: string;
  dataTypeID: number;
}

export interface WireMessage {
  name: string;
  length: number;
}

/** One row: `bytes` from `offset` on holds the column count and the length-prefixed columns. */
export interface DataRow extends WireMessage {
  bytes: Buffer;
  offset: number;
}

/** The part of pg's Connection that statements use. */
export interface Wire extends EventEmitter {
  stream: Socket;
  parse(statement: { name: string; text: string; types: readonly number[] }): void;
  bind(portal: { statement: string; values: readonly (string | Buffer | null)[]; binary: boolean }): void;
  describe(target: { type: 'P' | 'S'; name: string }): void;
  execute(portal: { portal: string }): void;
  sync(): void;
  end(): void;
}

interface ParserShape {
  parse(bytes: Buffer, handle: (message: WireMessage) => void): void;
  handlePacket(offset: number, code: number, length: number, bytes: Buffer): WireMessage;
}

const DATA_ROW = 0x44;
const ERROR_RESPONSE = 0x45;
const SEVERITY_FIELD = 0x56;
const LENGTH_BYTES = 4;
// The published types mark the method as private; it is an ordinary one.
const BaseParser = Parser as unknown as new () => ParserShape;
const BaseConnection = (pg as unknown as { Connection: new (config: object) => Wire }).Connection;

class BinaryParser extends BaseParser {
  override handlePacket(offset: number, code: number, length: number, bytes: Buffer): WireMessage {
    if (code === DATA_ROW) {
      const row: DataRow = { name: 'dataRow', length, bytes, offset };
      return row;
    }
    const message = super.handlePacket(offset, code, length, bytes);
    if (code === ERROR_RESPONSE) {
      const severity = untranslatedSeverity(bytes, offset, offset + length - LENGTH_BYTES);
      if (severity !== undefined) (message as WireMessage & { severity: string }).severity = severity;
    }
    return message;
  }
}

class BinaryConnection extends BaseConnection {
  /** Overrides pg's method; called with the plain socket, or with the TLS stream once it is secured. */
  attachListeners(stream: Socket): void {
    const parser = new BinaryParser();
    stream.on('data', (chunk: Buffer) => {
      try {
        parser.parse(chunk, (message) => {
          this.emit(message.name === 'error' ? 'errorMessage' : message.name, message);
        });
      } catch (error) {
        // Out of step with the server: nothing that follows can be believed. As an event, since an
        // exception thrown here would end the process.
        stream.destroy(error instanceof Error ? error : new Error(String(error)));
      }
    });
  }
}

export interface WireConfig {
  ssl: object | false;
  keepAliveInitialDelayMillis: number;
}

export function newWire(config: WireConfig): Wire {
  return new BinaryConnection({ ...config, keepAlive: true });
}

/** Field V of an ErrorResponse. pg reads field S, which the server translates into the language of lc_messages. */
export function untranslatedSeverity(bytes: Buffer, start: number, end: number): string | undefined {
  for (let at = start; at < end && bytes[at] !== 0; ) {
    const close = bytes.indexOf(0, at + 1);
    if (close < 0 || close > end) return undefined;
    if (bytes[at] === SEVERITY_FIELD) return bytes.toString('utf8', at + 1, close);
    at = close + 1;
  }
  return undefined;
}
