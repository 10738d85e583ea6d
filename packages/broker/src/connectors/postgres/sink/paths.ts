/**
 * Paths of a `sql` sink: where in a message the value of a parameter stands.
 *
 *   path = "$" step*        step = "." name | "[" index "]" | "[" json-string "]"
 *
 * or one of the facts of the message itself (`@offset`). White space means itself everywhere. Values come out as text:
 * strings decoded, everything else in the characters that the producer wrote.
 */
import { JsonReader, KEYS_END, type KnownKeys, knownKeys } from '../../../log/json/reader.ts';

/** What a message is besides its payload. */
export const FACTS = ['@partition', '@partitionId', '@offset', '@transactionId', '@createdAt'] as const;
export type Fact = (typeof FACTS)[number];

type Step = { readonly keys: KnownKeys } | { readonly index: number };

export type ParamPath = { readonly fact: Fact } | { readonly steps: readonly Step[] };

const INDEX_MAX = 2 ** 31 - 1;
const NAME = /\.([^.[\]"'\s]+)/y;
const INDEX = /\[(0|[1-9][0-9]*)\]/y;
/** Just where the string ends; what may stand in it is JSON's affair. */
const QUOTED = /\[("(?:[^"\\]|\\.)*")\]/sy;

/** The path that `text` spells, or a sentence without its subject that says why it is none. */
export function parsePath(text: string): ParamPath | string {
  if (text.startsWith('@')) {
    const fact = FACTS.find((name) => name === text);
    return fact === undefined ? `must be one of ${FACTS.join(', ')}, or begin with "$"` : { fact };
  }
  if (!text.startsWith('$')) return `must begin with "$", or be one of ${FACTS.join(', ')}`;
  const steps: Step[] = [];
  for (let at = 1; at < text.length; ) {
    const step = stepAt(text, at);
    if (typeof step === 'string') return step;
    steps.push(step.step);
    at = step.end;
  }
  return { steps };
}

function stepAt(text: string, at: number): { step: Step; end: number } | string {
  const name = matchAt(NAME, text, at);
  if (name !== null) return { step: { keys: knownKeys(name[1]!) }, end: at + name[0].length };
  const index = matchAt(INDEX, text, at);
  if (index !== null) {
    const value = Number(index[1]);
    if (value > INDEX_MAX) return `has an index above ${INDEX_MAX} at character ${at + 1}`;
    return { step: { index: value }, end: at + index[0].length };
  }
  const quoted = matchAt(QUOTED, text, at);
  if (quoted === null) return `is not understood from character ${at + 1} on`;
  try {
    return { step: { keys: knownKeys(JSON.parse(quoted[1]!) as string) }, end: at + quoted[0].length };
  } catch {
    return `has a name that is no JSON string at character ${at + 1}`;
  }
}

function matchAt(pattern: RegExp, text: string, at: number): RegExpExecArray | null {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

/**
 * The value at a path of a payload, as text; null where there is none (an absent name, an index out of range, a step into
 * something that holds nothing) or where it is JSON's null. `payload` must be JSON, else BodyFault.
 */
export function valueAt(payload: Buffer, steps: readonly Step[]): string | null {
  let span: Buffer | null = payload;
  for (const step of steps) {
    span = 'index' in step ? elementAt(span, step.index) : memberOf(span, step.keys);
    if (span === null) return null;
  }
  return spanText(span);
}

/** A JSON value as the text of a parameter: null for `null`, a string's characters, everything else as it is written. */
export function spanText(span: Buffer): string | null {
  const reader = new JsonReader(span);
  const kind = reader.kind();
  if (kind === 'null') return null;
  if (kind === 'string') return reader.string();
  const from = reader.at;
  return span.toString('utf8', from, reader.skip());
}

/** The last member of that name counts. */
function memberOf(span: Buffer, keys: KnownKeys): Buffer | null {
  const reader = new JsonReader(span);
  if (reader.kind() !== 'object') return null;
  let found: Buffer | null = null;
  for (let key = reader.firstKey(keys); key !== KEYS_END; key = reader.nextKey(keys)) {
    const from = reader.at;
    const to = reader.skip();
    if (key === 0) found = span.subarray(from, to);
  }
  return found;
}

function elementAt(span: Buffer, index: number): Buffer | null {
  const reader = new JsonReader(span);
  if (reader.kind() !== 'array') return null;
  let at = 0;
  for (let more = reader.firstElement(); more; more = reader.nextElement()) {
    const from = reader.at;
    const to = reader.skip();
    if (at++ === index) return span.subarray(from, to);
  }
  return null;
}
