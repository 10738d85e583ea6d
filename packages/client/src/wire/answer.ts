import { InDoubtError, OverloadedError, type QueenError, RefusedError, UnavailableError } from '../errors.ts';

/** Codes with which a broker says 500 and that nothing was written. */
const UNWRITTEN: ReadonlySet<string> = new Set(['pool', 'unavailable', 'timeout', 'sql', 'connection']);

/** The value in `Retry-After`, in seconds: a number or a date. Undefined when there is none that can be read. */
export function retryAfterSeconds(value: string | null, nowMs: number): number | undefined {
  if (value === null || value.trim() === '') return undefined;
  const seconds = Number(value);
  if (Number.isFinite(seconds)) return Math.max(0, seconds);
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, (at - nowMs) / 1000);
}

/** The body of an answer: JSON where it is JSON, else its text; null when there is none. */
export async function bodyOf(
  response: Response,
  parse: (text: string) => unknown = JSON.parse,
): Promise<unknown> {
  if (response.status === 204) return null;
  const text = await response.text();
  if (text === '') return null;
  try {
    return parse(text);
  } catch (error) {
    // A success that is cut off or is no JSON at all is no answer. The text of a failure is still worth reading.
    if (response.ok) throw error;
    return text;
  }
}

/** The error for an answer that is no success. */
export function errorOf(response: Response, body: unknown, broker: string): QueenError {
  const { status } = response;
  const envelope = (typeof body === 'object' && body !== null ? body : {}) as Record<string, unknown>;
  const said =
    textOf(envelope.message) ?? textOf(envelope.error) ?? (typeof body === 'string' ? body.trim() : '');
  const message = said === '' ? `HTTP ${status}` : said;
  const word = textOf(envelope.code) ?? codeIn(envelope.error);
  const code = word ?? `http_${status}`;
  const facts = {
    code,
    status,
    reason: textOf(envelope.reason),
    field: textOf(envelope.field),
    retryAfterSeconds: retryAfterSeconds(response.headers.get('retry-after'), Date.now()),
    body,
    broker,
  };
  if (status === 429) return new OverloadedError(message, facts);
  // A 503 without a word comes from something in between, which may have lost a broker that was at work.
  if (status === 408 || (status === 503 && word !== undefined)) return new UnavailableError(message, facts);
  if (status < 500) return new RefusedError(message, facts);
  const unwritten = status === 500 && UNWRITTEN.has(facts.reason ?? code);
  return unwritten ? new UnavailableError(message, facts) : new InDoubtError(message, facts);
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Keys and timers have a code where others have a sentence. */
function codeIn(value: unknown): string | undefined {
  return typeof value === 'string' && /^[a-z][a-z0-9_]{2,63}$/.test(value) ? value : undefined;
}
