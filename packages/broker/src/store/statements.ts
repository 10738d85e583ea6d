/**
 * Cuts a SQL script into its statements at the semicolons that end one: not at those inside quotes, dollar
 * quotes, comments, or the body of a function in SQL-standard form (BEGIN ATOMIC ... END).
 *
 * One pass over the characters, each construct skipped as a whole by the rules of PostgreSQL's own scanner:
 * block comments nest, a backslash escapes only in an E'' string, a dollar sign inside a word starts no
 * quote. The text of a statement is handed out unchanged; comments in front of it belong to it.
 */
export interface ScriptStatement {
  readonly text: string;
  /** Of its first word, counted from 1. */
  readonly line: number;
}

/** Throws a SyntaxError naming the line when a quote or comment is not closed. */
export function splitStatements(script: string): ScriptStatement[] {
  const out: ScriptStatement[] = [];
  let start = 0;
  let firstWord = -1;
  let at = 0;
  let depth = 0;
  let atomic = false;
  const end = (upTo: number) => {
    if (firstWord >= 0) out.push({ text: script.slice(start, upTo).trim(), line: lineOf(script, firstWord) });
    firstWord = -1;
    atomic = false;
    depth = 0;
  };
  while (at < script.length) {
    const char = script[at]!;
    if (isSpace(char)) {
      at++;
      continue;
    }
    const comment = skipComment(script, at);
    if (comment > at) {
      at = comment;
      continue;
    }
    if (char === ';' && !atomic) {
      end(at);
      start = ++at;
      continue;
    }
    if (firstWord < 0) firstWord = at;
    if (isWordStart(char)) {
      const next = skipWord(script, at);
      const word = script.slice(at, next).toLowerCase();
      if (word === 'atomic' && /begin\s+$/i.test(script.slice(start, at))) {
        atomic = true;
        depth = 1;
      } else if (atomic && word === 'case') {
        depth++;
      } else if (atomic && word === 'end') {
        depth--;
        if (depth === 0) atomic = false;
      }
      at = word === 'e' && script[next] === "'" ? skipQuoted(script, next, true) : next;
      continue;
    }
    at = skipQuote(script, at);
  }
  end(script.length);
  return out;
}

function skipComment(script: string, at: number): number {
  if (script.startsWith('--', at)) {
    const newline = script.indexOf('\n', at);
    return newline < 0 ? script.length : newline + 1;
  }
  if (!script.startsWith('/*', at)) return at;
  let depth = 0;
  for (let i = at; i < script.length; i++) {
    if (script.startsWith('/*', i)) {
      depth++;
      i++;
    } else if (script.startsWith('*/', i)) {
      depth--;
      i++;
      if (depth === 0) return i + 1;
    }
  }
  throw unclosed(script, at, 'comment');
}

/** The position behind the quoted thing, number or single character at `at`. */
function skipQuote(script: string, at: number): number {
  const char = script[at]!;
  if (char === "'" || char === '"') return skipQuoted(script, at, false);
  if (char === '$') return skipDollarQuote(script, at);
  if (char >= '0' && char <= '9') return skipWord(script, at);
  return at + 1;
}

function skipQuoted(script: string, at: number, escapes: boolean): number {
  const quote = script[at]!;
  for (let i = at + 1; i < script.length; i++) {
    if (escapes && script[i] === '\\') {
      i++;
    } else if (script[i] === quote) {
      if (script[i + 1] !== quote) return i + 1;
      i++;
    }
  }
  throw unclosed(script, at, 'quote');
}

const DOLLAR_TAG = /\$(?:[A-Za-z_\u0080-\uffff][A-Za-z0-9_\u0080-\uffff]*)?\$/y;

function skipDollarQuote(script: string, at: number): number {
  DOLLAR_TAG.lastIndex = at;
  const tag = DOLLAR_TAG.exec(script)?.[0];
  if (tag === undefined) return at + 1;
  const close = script.indexOf(tag, at + tag.length);
  if (close < 0) throw unclosed(script, at, `${tag} quote`);
  return close + tag.length;
}

const WORD = /[A-Za-z0-9_$\u0080-\uffff]*/y;

function skipWord(script: string, at: number): number {
  WORD.lastIndex = at;
  return at + WORD.exec(script)![0].length;
}

function isWordStart(char: string): boolean {
  return /[A-Za-z_\u0080-\uffff]/.test(char);
}

function isSpace(char: string): boolean {
  return char === ' ' || char === '\n' || char === '\t' || char === '\r' || char === '\f' || char === '\v';
}

function unclosed(script: string, at: number, what: string): SyntaxError {
  return new SyntaxError(`line ${lineOf(script, at)}: the ${what} that begins here is not closed`);
}

function lineOf(script: string, at: number): number {
  let line = 1;
  for (let i = script.indexOf('\n'); i >= 0 && i < at; i = script.indexOf('\n', i + 1)) line++;
  return line;
}
