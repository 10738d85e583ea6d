/**
 * One statement on the wire, from Parse to ReadyForQuery, in the form in which pg's Client takes foreign
 * query classes. pg's own Query is not used because it converts rows by a global table of text parsers and
 * does not tell how far the server had come when a connection broke.
 *
 * With the extended protocol the commit of a lone statement happens at Sync, after CommandComplete was
 * sent. Success is therefore ReadyForQuery and nothing earlier.
 */
import { type Decoder, decoderFor } from './decode.ts';
import { InvariantError } from './invariant.ts';
import type { DataRow, FieldDescription, Wire } from './wire.ts';

/** Result columns of a prepared statement. The server refuses to run one whose result type has changed. */
interface Shape {
  readonly names: readonly string[];
  readonly decoders: readonly Decoder[];
}

/** What one connection has prepared, by statement name. */
export class Prepared {
  readonly parsed: Set<string> = new Set();
  readonly shapes: Map<string, Shape> = new Map();
}

export interface CallRequest {
  /** '' = prepared for this call only. */
  readonly name: string;
  readonly text: string;
  readonly values: readonly (string | Buffer | null)[];
  /** Sends BEGIN ahead in the same packet: a transaction costs no round trip to open. */
  readonly begin: boolean;
}

export type CallEnd = (error: unknown, rows: object[]) => void;

export class Call {
  /** The bytes went out. Before that, nothing can have happened. */
  sent = false;
  /** The server accepted the parameters, so that execution may have begun. */
  bound = false;
  /** The command's tag has arrived ("INSERT 0 1"); the commit may have happened, or still fail. */
  tag: string | null = null;

  readonly #request: CallRequest;
  readonly #prepared: Prepared;
  readonly #end: CallEnd;
  readonly #rows: object[] = [];
  #shape: Shape | undefined;
  /** Answers to the BEGIN in front that are still to come. */
  #skipParse: number;
  #skipBind: number;
  #skipComplete: number;
  #fault: unknown;
  #ended = false;

  constructor(request: CallRequest, prepared: Prepared, end: CallEnd) {
    this.#request = request;
    this.#prepared = prepared;
    this.#end = end;
    this.#skipParse = this.#skipBind = this.#skipComplete = request.begin ? 1 : 0;
  }

  submit(wire: Wire): Error | null {
    const { name, text, values, begin } = this.#request;
    if (!wire.stream.writable) return new Error('the connection is closed');
    this.#shape = name === '' ? undefined : this.#prepared.shapes.get(name);
    wire.stream.cork();
    try {
      if (begin) {
        wire.parse({ name: '', text: 'BEGIN', types: [] });
        wire.bind({ statement: '', values: [], binary: true });
        wire.execute({ portal: '' });
      }
      if (!this.#prepared.parsed.has(name)) wire.parse({ name, text, types: [] });
      wire.bind({ statement: name, values, binary: true });
      if (this.#shape === undefined) wire.describe({ type: 'P', name: '' });
      wire.execute({ portal: '' });
      wire.sync();
    } finally {
      wire.stream.uncork();
    }
    this.sent = true;
    return null;
  }

  handleParseComplete(): void {
    if (this.#skipParse > 0) this.#skipParse--;
    else if (this.#request.name !== '') this.#prepared.parsed.add(this.#request.name);
  }

  handleBindComplete(): void {
    if (this.#skipBind > 0) this.#skipBind--;
    else this.bound = true;
  }

  handleNoData(): void {
    this.#learn({ names: [], decoders: [] });
  }

  handleRowDescription(message: { fields: readonly FieldDescription[] }): void {
    try {
      this.#learn({
        names: message.fields.map((field) => field.name),
        decoders: message.fields.map((field) => decoderFor(field.dataTypeID, field.name)),
      });
    } catch (error) {
      this.#fault ??= error;
    }
  }

  handleDataRow(message: DataRow): void {
    const shape = this.#shape;
    if (this.#fault !== undefined || shape === undefined) {
      this.#fault ??= new InvariantError('row_without_description');
      return;
    }
    try {
      this.#rows.push(decodeRow(shape, message.bytes, message.offset));
    } catch (error) {
      this.#fault = error;
    }
  }

  handleCommandComplete(message: { text: string }): void {
    if (this.#skipComplete > 0) this.#skipComplete--;
    else this.tag = message.text;
  }

  handleEmptyQuery(): void {
    this.tag = '';
  }

  handlePortalSuspended(): void {}

  handleCopyInResponse(wire: Wire): void {
    wire.stream.destroy(new InvariantError('copy_not_supported'));
  }

  handleCopyData(): void {}

  handleReadyForQuery(): void {
    this.#finish(this.#fault);
  }

  handleError(error: unknown): void {
    this.#finish(error);
  }

  #learn(shape: Shape): void {
    this.#shape = shape;
    if (this.#request.name !== '') this.#prepared.shapes.set(this.#request.name, shape);
  }

  #finish(error: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#end(error, this.#rows);
  }
}

function decodeRow(shape: Shape, bytes: Buffer, offset: number): object {
  const { names, decoders } = shape;
  const count = bytes.readInt16BE(offset);
  if (count !== names.length) throw new InvariantError('column_count', { count, expected: names.length });
  const row: Record<string, unknown> = {};
  let at = offset + 2;
  for (let i = 0; i < count; i++) {
    const length = bytes.readInt32BE(at);
    at += 4;
    if (length < 0) {
      row[names[i]!] = null;
    } else {
      row[names[i]!] = decoders[i]!(bytes, at, at + length);
      at += length;
    }
  }
  return row;
}
