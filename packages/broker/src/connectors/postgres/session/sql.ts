/**
 * A session for statements: text in, text out, answered in the order in which they were asked.
 *
 * pg's client does the start of the connection and is then left behind: it converts rows by tables that are global to the
 * process, and cannot pipeline statements whose answers it does not convert. Every statement here is sent at once, with
 * a Sync of its own, so a failed one takes none of its followers with it (unless they share its transaction, or its Sync).
 */
import type { Socket } from 'node:net';
import type { ConnectionOptions } from 'node:tls';
import { type CancelTarget, cancelStatement } from '../../../store/cancel.ts';
import { isServerError } from '../../../store/errors.ts';
import type { DataRow, Wire } from '../../../store/wire.ts';
import { ConnectorFault } from '../fault.ts';
import { ProtocolViolation } from '../replication/pgoutput.ts';
import { sessionFault } from './faults.ts';
import type { SqlOptions, SqlParam, SqlResult, SqlSession } from './types.ts';

/** What the start of a connection yielded. */
export interface StartedConnection {
  readonly wire: Wire;
  readonly socket: Socket;
  readonly host: string;
  readonly ssl: ConnectionOptions | false;
  readonly processId: number;
  readonly secretKey: number;
}

const TEXT_OID = 25;
const CLOSE_GRACE_MS = 1_000;
const CANCEL_MS = 2_000;
/** Of pg's own listeners none may answer any more. */
const ANSWERS = [
  'errorMessage',
  'readyForQuery',
  'notice',
  'rowDescription',
  'dataRow',
  'portalSuspended',
  'emptyQuery',
  'commandComplete',
  'parseComplete',
  'bindComplete',
  'copyInResponse',
  'copyData',
  'notification',
] as const;

type Cell = string | Buffer | null;

interface Call {
  readonly name: string;
  readonly bytes: boolean;
  readonly joined: boolean;
  readonly resolve: (call: Call) => void;
  readonly reject: (fault: ConnectorFault) => void;
  columns: readonly string[];
  /** Of a statement that is only prepared: how many it takes. */
  parameters: number;
  rows: Cell[][];
  tag: string;
  parsed: boolean;
  fault: ConnectorFault | null;
  timer: NodeJS.Timeout | undefined;
}

interface Sending {
  readonly name: string;
  readonly bytes: boolean;
  readonly timeoutMs?: number | undefined;
  readonly joined?: boolean | undefined;
}

export class PgSession implements SqlSession {
  readonly processId: number;
  serverVersion = 0;
  readonly #connection: StartedConnection;
  readonly #wire: Wire;
  /** Sent and not answered; the first one is being answered. */
  readonly #calls: Call[] = [];
  readonly #prepared = new Set<string>();
  readonly #closeListeners: (() => void)[] = [];
  /** Why the connection is gone, or is going. */
  #end: ConnectorFault | null = null;
  #closed = false;
  /** What is sent until the end of this turn of the event loop leaves in one write. */
  #gathering = false;

  constructor(connection: StartedConnection) {
    this.#connection = connection;
    this.#wire = connection.wire;
    this.processId = connection.processId;
    this.#listen();
  }

  async query(text: string, params: readonly SqlParam[] = [], options: SqlOptions = {}): Promise<SqlResult> {
    const { name = '', timeoutMs, textParams, joined } = options;
    const { columns, rows, tag } = await this.#send({ name, bytes: false, timeoutMs, joined }, (known) => {
      if (!known)
        this.#wire.parse({ name, text, types: textParams === true ? params.map(() => TEXT_OID) : [] });
      this.#run(name, params);
    });
    return { columns, rows: rows as (string | null)[][], count: countOf(tag) };
  }

  async prepare(name: string, text: string, textParams: number): Promise<number> {
    const { parameters } = await this.#send({ name, bytes: false }, (known) => {
      if (!known) this.#wire.parse({ name, text, types: new Array<number>(textParams).fill(TEXT_OID) });
      this.#wire.describe({ type: 'S', name });
    });
    return parameters;
  }

  async bytes(text: string): Promise<readonly (readonly (Buffer | null)[])[]> {
    const { rows } = await this.#send({ name: '', bytes: true }, () => {
      this.#wire.parse({ name: '', text, types: [] });
      this.#run('', []);
    });
    return rows as (Buffer | null)[][];
  }

  onClose(listener: () => void): void {
    if (this.#closed) listener();
    else this.#closeListeners.push(listener);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    const done = new Promise<void>((resolve) => this.onClose(resolve));
    const busy = this.#calls.length > 0;
    this.#end ??= new ConnectorFault('io', 'the session was closed');
    if (busy) this.#abandon();
    else this.#wire.end();
    const timer = setTimeout(() => this.#connection.socket.destroy(), CLOSE_GRACE_MS);
    await done;
    clearTimeout(timer);
  }

  #run(statement: string, values: readonly SqlParam[]): void {
    this.#wire.bind({ statement, values, binary: false });
    this.#wire.describe({ type: 'P', name: '' });
    this.#wire.execute({ portal: '' });
  }

  /** @param write sends the messages; `known`: the name was prepared, or is about to be */
  #send({ name, bytes, timeoutMs, joined = false }: Sending, write: (known: boolean) => void): Promise<Call> {
    if (this.#end !== null || !this.#wire.stream.writable) {
      return Promise.reject(this.#end ?? new ConnectorFault('io', 'the connection to the server is lost'));
    }
    return new Promise((resolve, reject) => {
      const known = name !== '' && this.#prepared.has(name);
      const fresh = { columns: [], rows: [], parameters: 0, tag: '', fault: null, timer: undefined };
      const call: Call = { name, bytes, joined, resolve, reject, parsed: known, ...fresh };
      this.#gather();
      write(known);
      if (!joined) this.#wire.sync();
      if (name !== '') this.#prepared.add(name);
      if (timeoutMs !== undefined) call.timer = setTimeout(() => this.#late(timeoutMs), timeoutMs);
      this.#calls.push(call);
    });
  }

  #gather(): void {
    if (this.#gathering) return;
    this.#gathering = true;
    const { stream } = this.#wire;
    stream.cork();
    process.nextTick(() => {
      this.#gathering = false;
      stream.uncork();
    });
  }

  #listen(): void {
    const wire = this.#wire;
    for (const event of ANSWERS) wire.removeAllListeners(event);
    const current = <Message>(answer: (call: Call, message: Message) => void) => {
      return (message: Message) => {
        const call = this.#calls[0];
        if (call === undefined) this.#break(new ProtocolViolation('an answer to nothing'));
        else answer(call, message);
      };
    };
    wire.on(
      'parseComplete',
      current((call) => (call.parsed = true)),
    );
    wire.on(
      'bindComplete',
      current(() => {}),
    );
    wire.on(
      'noData',
      current(() => {}),
    );
    wire.on(
      'emptyQuery',
      current((call) => this.#completed(call)),
    );
    wire.on(
      'parameterDescription',
      current((call, message: { parameterCount: number }) => {
        call.parameters = message.parameterCount;
      }),
    );
    wire.on(
      'rowDescription',
      current((call, message: { fields: readonly { name: string }[] }) => {
        call.columns = message.fields.map((field) => field.name);
      }),
    );
    wire.on(
      'dataRow',
      current((call, row: DataRow) => call.rows.push(decodeRow(row, call))),
    );
    wire.on(
      'commandComplete',
      current((call, message: { text: string }) => {
        call.tag = message.text;
        this.#completed(call);
      }),
    );
    wire.on(
      'readyForQuery',
      current(() => this.#synced()),
    );
    wire.on('errorMessage', (error: unknown) => this.#refused(error));
    // It would wait for data for ever.
    const copy = () => this.#break(new ConnectorFault('statement', 'COPY is not supported'));
    for (const event of ['copyInResponse', 'copyOutResponse', 'replicationStart']) wire.on(event, copy);
    wire.stream.once('error', (error) => this.#break(error));
    wire.once('end', () => this.#gone());
  }

  /** One that shares the Sync of another waits for nothing else. */
  #completed(call: Call): void {
    if (!call.joined || call.fault !== null) return;
    this.#calls.shift();
    clearTimeout(call.timer);
    call.resolve(call);
  }

  /** Ends the call whose Sync this answers, and those before it that were skipped after a failure. */
  #synced(): void {
    let fault: ConnectorFault | null = null;
    for (let call = this.#calls.shift(); call !== undefined; call = this.#calls.shift()) {
      clearTimeout(call.timer);
      fault ??= call.fault;
      if (fault === null && call.joined) {
        this.#break(new ProtocolViolation('a statement was not answered'));
        fault = this.#end;
      }
      if (fault === null) call.resolve(call);
      else {
        if (!call.parsed) this.#prepared.delete(call.name);
        call.reject(fault);
      }
      if (!call.joined) return;
    }
  }

  #refused(error: unknown): void {
    const fault = sessionFault(error);
    const call = this.#calls[0];
    const last = isServerError(error) && (error.severity === 'FATAL' || error.severity === 'PANIC');
    // The severity is in the server's language; a fatal one is followed by the end of the connection either way.
    if (last || call === undefined) this.#end ??= fault;
    if (call === undefined) return;
    call.fault ??= fault;
  }

  #late(timeoutMs: number): void {
    this.#end ??= new ConnectorFault('io', `no answer from the server within ${timeoutMs} ms`);
    this.#abandon();
  }

  /** Nobody waits for the answer any more: the server is asked to give up, too. */
  #abandon(): void {
    const { host, ssl, processId, secretKey, socket } = this.#connection;
    const { remoteAddress, remotePort } = socket;
    if (remoteAddress !== undefined && remotePort !== undefined) {
      const address = { host: remoteAddress, port: remotePort };
      const target: CancelTarget = { address, serverName: host, ssl, processId, secretKey };
      void cancelStatement(target, CANCEL_MS);
    }
    socket.destroy();
  }

  #break(error: unknown): void {
    this.#end ??= sessionFault(error);
    this.#connection.socket.destroy();
  }

  #gone(): void {
    this.#closed = true;
    this.#end ??= new ConnectorFault('io', 'the server closed the connection');
    for (const call of this.#calls.splice(0)) {
      clearTimeout(call.timer);
      call.reject(call.fault ?? this.#end);
    }
    for (const listener of this.#closeListeners.splice(0)) listener();
  }
}

/** The number at the end of a command's tag: `INSERT 0 3`, `SELECT 2`, `BEGIN`. */
function countOf(tag: string): number {
  const match = / (\d+)$/.exec(tag);
  return match === null ? 0 : Number(match[1]);
}

function decodeRow({ bytes, offset, length }: DataRow, call: Call): Cell[] {
  const end = offset + length - 4;
  const count = bytes.readInt16BE(offset);
  if (count !== call.columns.length) throw new ProtocolViolation('a row of another shape');
  // One copy a row: the receive buffer is used again.
  const copy = call.bytes ? Buffer.from(bytes.subarray(offset, end)) : null;
  const row: Cell[] = [];
  let at = offset + 2;
  for (let i = 0; i < count; i++) {
    const size = bytes.readInt32BE(at);
    at += 4;
    if (size < -1 || at + size > end) throw new ProtocolViolation('a value that ends outside of its row');
    if (size === -1) row.push(null);
    else {
      row.push(
        copy === null
          ? bytes.toString('utf8', at, at + size)
          : copy.subarray(at - offset, at - offset + size),
      );
      at += size;
    }
  }
  if (at !== end) throw new ProtocolViolation('a row with bytes behind its last value');
  return row;
}
