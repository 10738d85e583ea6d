/**
 * The protocol layer of connections to databases that are not ours: pg's, made strict.
 *
 * pg's parser believes what it reads: an unknown kind of authentication throws inside a socket's listener and ends the
 * process, bytes after the last field of a message go unseen, a length of four billion is waited for. A server that
 * somebody put into a document must not be able to do any of this. Here whatever is out of step destroys the socket,
 * which ends the session as an error of the network.
 *
 * A DataRow stays a range of the receive buffer, which the next read reuses: it is decoded while it is handled.
 *
 * Leans on the inside of pg and pg-protocol like `store/wire.ts`; both are pinned exactly.
 */
import type { Socket } from 'node:net';
import pg from 'pg';
import { Parser } from 'pg-protocol/dist/parser.js';
import { untranslatedSeverity, type Wire, type WireMessage } from '../../../store/wire.ts';
import { ProtocolViolation } from '../replication/pgoutput.ts';

/** What PostgreSQL itself can put into one message, and a little for what stands around a field of that size. */
const MESSAGE_BYTES_MAX = 0x4000_0000 + 0x1_0000;
const CODE_BYTES = 1;
const LENGTH_BYTES = 4;
const DATA_ROW = 0x44;
const COPY_BOTH = 0x57;
const COPY_DATA = 0x64;
const AUTHENTICATION = 0x52;
const ERROR_RESPONSE = 0x45;
const KNOWN = new Set(Array.from('123ADCEGHIKNRSTWZcdnst', (character) => character.charCodeAt(0)));

interface ReaderShape {
  offset: number;
  setBuffer(offset: number, bytes: Buffer): void;
}

interface ParserShape {
  reader: ReaderShape;
  buffer: Buffer;
  bufferOffset: number;
  bufferLength: number;
  parse(bytes: Buffer, handle: (message: WireMessage) => void): void;
  handlePacket(offset: number, code: number, length: number, bytes: Buffer): WireMessage;
}

// The published types mark these members as private; they are ordinary ones.
const BaseParser = Parser as unknown as new () => ParserShape;
const BaseConnection = (pg as unknown as { Connection: new (config: object) => Wire }).Connection;

class StrictParser extends BaseParser {
  readonly #rawRows: boolean;
  /** Where the reader stood when a message was decoded. */
  #readTo = 0;

  constructor(rawRows: boolean) {
    super();
    this.#rawRows = rawRows;
    const { reader } = this;
    const setBuffer = reader.setBuffer.bind(reader);
    reader.setBuffer = (offset, bytes) => {
      this.#readTo = reader.offset;
      setBuffer(offset, bytes);
    };
  }

  override parse(bytes: Buffer, handle: (message: WireMessage) => void): void {
    super.parse(bytes, handle);
    // What is left is the beginning of a message; its length is judged before its bytes are gathered.
    if (this.bufferLength < CODE_BYTES + LENGTH_BYTES) return;
    checkHead(this.buffer[this.bufferOffset]!, this.buffer.readUInt32BE(this.bufferOffset + CODE_BYTES));
  }

  override handlePacket(offset: number, code: number, length: number, bytes: Buffer): WireMessage {
    checkHead(code, length);
    if (code === DATA_ROW && this.#rawRows) {
      return { name: 'dataRow', length, bytes, offset } as WireMessage;
    }
    // The changes of a source, a message each: what pg does here, without its reader.
    if (code === COPY_DATA) {
      return {
        name: 'copyData',
        length,
        chunk: bytes.subarray(offset, offset + length - LENGTH_BYTES),
      } as WireMessage;
    }
    const message = super.handlePacket(offset, code, length, bytes);
    const end = offset + length - LENGTH_BYTES;
    // Of the beginning of a copy pg reads nothing, and we need nothing.
    if (code !== COPY_BOTH && this.#readTo !== end) throw new ProtocolViolation(notUnderstood(code, length));
    if (code === AUTHENTICATION && message.name === 'authenticationOk' && bytes.readInt32BE(offset) !== 0) {
      throw new ProtocolViolation(notUnderstood(code, length));
    }
    if (code === ERROR_RESPONSE) {
      const severity = untranslatedSeverity(bytes, offset, end);
      if (severity !== undefined) (message as WireMessage & { severity: string }).severity = severity;
    }
    return message;
  }
}

function checkHead(code: number, length: number): void {
  if (!KNOWN.has(code) || length < LENGTH_BYTES || length > MESSAGE_BYTES_MAX) {
    throw new ProtocolViolation(notUnderstood(code, length));
  }
}

function notUnderstood(code: number, length: number): string {
  return `a message of the server is not understood: kind 0x${code.toString(16)}, ${length} bytes`;
}

class StrictConnection extends BaseConnection {
  readonly #parser: StrictParser;

  constructor(socket: Socket, rawRows: boolean) {
    super({ stream: socket, ssl: false });
    this.#parser = new StrictParser(rawRows);
  }

  /** Overrides pg's method. */
  attachListeners(stream: Socket): void {
    stream.on('data', (chunk: Buffer) => {
      try {
        this.#parser.parse(chunk, (message) => {
          this.emit(message.name === 'error' ? 'errorMessage' : message.name, message);
        });
      } catch (error) {
        stream.destroy(error instanceof Error ? error : new Error(String(error)));
      }
    });
  }
}

/**
 * @param socket connected already, and secured if it is to be: pg's own way to connect is cut short
 * @param rows `raw`: a DataRow is handed on as a range of bytes (`DataRow` of store/wire.ts), else as pg decodes it
 */
export function strictWire(socket: Socket, rows: 'raw' | 'decoded'): Wire {
  socket.connect = (() => {
    process.nextTick(() => socket.emit('connect'));
    return socket;
  }) as Socket['connect'];
  return new StrictConnection(socket, rows === 'raw');
}
