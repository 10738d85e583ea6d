/**
 * JSON whose payloads stay text. `JSON.parse` rounds large numbers, drops duplicate keys and reorders numeric ones; what a
 * producer sent is shown as it was sent. So members with given names are cut out of the answer's text, and only the rest of
 * it becomes values.
 */

/** JSON text, exactly as it stood in the answer. */
export class RawJson {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

const SPACE = /[\t\n\r ]*/y;
// Up to the first quote that is not escaped. Lazy: a greedy one remembers a way back for each character, and the engine has
// no room for those of a string of some megabytes.
const STRING = /".*?(?<!\\)(?:\\\\)*"/sy;
const SCALAR = /[^\s,\]}]+/y;

/** Parses JSON; every member called one of `rawKeys` becomes a RawJson. The text must be valid: it came from the broker. */
export function parseKeeping(text: string, rawKeys: ReadonlySet<string>): unknown {
  let at = 0;

  function match(pattern: RegExp): string {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found === null) throw new SyntaxError(`unexpected character in JSON at ${at}`);
    at = pattern.lastIndex;
    return found[0];
  }

  function take(character: string): boolean {
    match(SPACE);
    if (text[at] !== character) return false;
    at++;
    return true;
  }

  function value(): unknown {
    if (take('{')) {
      const object: Record<string, unknown> = Object.create(null);
      if (take('}')) return object;
      do {
        match(SPACE);
        const key = JSON.parse(match(STRING)) as string;
        if (!take(':')) throw new SyntaxError(`a colon is missing in JSON at ${at}`);
        object[key] = rawKeys.has(key) ? raw() : value();
      } while (take(','));
      if (!take('}')) throw new SyntaxError(`an object does not end in JSON at ${at}`);
      return object;
    }
    if (take('[')) {
      const list: unknown[] = [];
      if (take(']')) return list;
      do list.push(value());
      while (take(','));
      if (!take(']')) throw new SyntaxError(`a list does not end in JSON at ${at}`);
      return list;
    }
    return JSON.parse(match(text[at] === '"' ? STRING : SCALAR));
  }

  function raw(): RawJson {
    match(SPACE);
    const start = at;
    let depth = 0;
    do {
      match(SPACE);
      const character = text[at];
      if (character === '"') match(STRING);
      else if (character === '{' || character === '[') {
        depth++;
        at++;
      } else if (character === '}' || character === ']') {
        depth--;
        at++;
      } else if (character === ',' || character === ':') at++;
      else match(SCALAR);
    } while (depth > 0);
    return new RawJson(text.slice(start, at));
  }

  return value();
}

export type TokenKind = 'key' | 'string' | 'number' | 'word' | 'mark';

export interface Token {
  kind: TokenKind;
  text: string;
}

const TOKEN = new RegExp(`[\\t\\n\\r ]+|${STRING.source}|[{}[\\],:]|[^\\s,\\]}:]+`, 'gs');

/** The text with line breaks and two spaces a level; not a character of a key or value is changed. */
export function indented(text: string): Token[] {
  const out: Token[] = [];
  const pieces = (text.match(TOKEN) ?? []).filter((piece) => piece.trim() !== '');
  let depth = 0;
  const line = () => out.push({ kind: 'mark', text: `\n${'  '.repeat(depth)}` });
  pieces.forEach((piece, index) => {
    const next = pieces[index + 1];
    if (piece === '{' || piece === '[') {
      out.push({ kind: 'mark', text: piece });
      if (next === '}' || next === ']') return;
      depth++;
      line();
    } else if (piece === '}' || piece === ']') {
      const before = pieces[index - 1];
      if (before !== '{' && before !== '[') {
        depth--;
        line();
      }
      out.push({ kind: 'mark', text: piece });
    } else if (piece === ',') {
      out.push({ kind: 'mark', text: ',' });
      line();
    } else if (piece === ':') out.push({ kind: 'mark', text: ': ' });
    else out.push({ kind: kindOf(piece, next), text: piece });
  });
  return out;
}

function kindOf(piece: string, next: string | undefined): TokenKind {
  if (piece[0] === '"') return next === ':' ? 'key' : 'string';
  return /^[-\d]/.test(piece) ? 'number' : 'word';
}
