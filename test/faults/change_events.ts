/** Events of a source as they lie in a queue, read without losing a character of their values. */
export interface StoredMessage {
  queue: string;
  partition: string;
  offset: number;
  id: string;
  /** The payload, as it was written. */
  text: string;
  /** The transaction of the store that it came with. */
  stored: string;
}

/** Columns and their values as text; null: SQL NULL. */
export type Row = ReadonlyMap<string, string | null>;

export interface ChangeEvent {
  op: string;
  table: string;
  key: Row | null;
  after: Row | null;
  before: Row | null;
  unchanged: readonly string[];
  lsn: bigint;
  xid: string | null;
  ts: string;
  seq: number;
}

/** @throws SyntaxError */
export function readEvent(text: string): ChangeEvent {
  const members = membersOf(text);
  const row = (name: string): Row | null => {
    const span = members.get(name);
    if (span === undefined || span === 'null') return null;
    return new Map([...membersOf(span)].map(([column, value]) => [column, plain(value)]));
  };
  const word = (name: string): string => plain(members.get(name) ?? 'null') ?? '';
  return {
    op: word('op'),
    table: word('table'),
    key: row('key'),
    after: row('after'),
    before: row('before'),
    unchanged: JSON.parse(members.get('unchanged') ?? '[]') as string[],
    lsn: parsePlace(word('lsn')),
    xid: members.get('xid') ?? null,
    ts: word('ts'),
    seq: Number(members.get('seq')),
  };
}

/** `0/1570D68` */
export function parsePlace(text: string): bigint {
  const match = /^([0-9A-F]{1,8})\/([0-9A-F]{1,8})$/.exec(text);
  if (match === null) throw new SyntaxError(`no position: ${text}`);
  return (BigInt(`0x${match[1]}`) << 32n) | BigInt(`0x${match[2]}`);
}

/** What a value says: a string without its quotes, anything else as it is written. */
function plain(span: string): string | null {
  if (span === 'null') return null;
  return span.startsWith('"') ? (JSON.parse(span) as string) : span;
}

/** Names and spans of the members of a JSON object. */
function membersOf(text: string): Map<string, string> {
  JSON.parse(text);
  const members = new Map<string, string>();
  let at = text.indexOf('{') + 1;
  for (;;) {
    const from = text.indexOf('"', at);
    if (from < 0 || text.slice(at, from).includes('}')) return members;
    const colon = text.indexOf(':', endOfString(text, from));
    const end = endOfValue(text, colon + 1);
    members.set(
      JSON.parse(text.slice(from, endOfString(text, from))) as string,
      text.slice(colon + 1, end).trim(),
    );
    at = end + 1;
    if (text[end] === '}') return members;
  }
}

/** Behind its closing quote. */
function endOfString(text: string, from: number): number {
  let at = from + 1;
  while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return at + 1;
}

/** Where the comma or the brace behind it stands. */
function endOfValue(text: string, from: number): number {
  let depth = 0;
  for (let at = from; ; ) {
    const sign = text[at];
    if (sign === '"') {
      at = endOfString(text, at);
      continue;
    }
    if (depth === 0 && (sign === ',' || sign === '}')) return at;
    if (sign === '{' || sign === '[') depth++;
    if (sign === '}' || sign === ']') depth--;
    at++;
  }
}
