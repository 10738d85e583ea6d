/** Calls to the broker that serves the page: its token, its errors, its JSON. */
import { parseKeeping } from './json_text.ts';
import { askForToken, token } from './token.ts';

type QueryValues = Record<string, string | number | boolean | null | undefined>;

export interface CallOptions {
  /** Values that are null, undefined or empty are left out. */
  query?: QueryValues | undefined;
  signal?: AbortSignal | undefined;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it is, for bodies with payloads that must not be rewritten. */
  text?: string;
  /** Members that stay text (RawJson), wherever they stand: payloads. */
  raw?: readonly string[];
}

/** What the broker refused, in its own words. */
export class ApiError extends Error {
  /** 0: no answer came. */
  readonly status: number;
  /** The broker's stable word; `unreachable` when no answer came. */
  readonly code: string;
  readonly field: string | undefined;
  /** The whole answer, for routes that say more than a sentence. */
  readonly body: Record<string, unknown>;

  constructor(status: number, code: string, message: string, body: Record<string, unknown> = {}) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
    this.code = code;
    this.field = typeof body.field === 'string' ? body.field : undefined;
    this.body = body;
  }
}

export const get = <T>(path: string, options: Omit<CallOptions, 'body' | 'text'> = {}): Promise<T> =>
  call<T>('GET', path, options);
export const post = <T>(path: string, options: CallOptions = {}): Promise<T> =>
  call<T>('POST', path, options);
export const put = <T>(path: string, options: CallOptions = {}): Promise<T> => call<T>('PUT', path, options);
/** HTTP's DELETE. */
export const remove = <T>(path: string, options: CallOptions = {}): Promise<T> =>
  call<T>('DELETE', path, options);

/** A path with names in it, each encoded: at`/api/v1/status/queues/${queue}`. */
export function at(parts: TemplateStringsArray, ...names: (string | number)[]): string {
  return parts.reduce((path, part, index) => path + encodeURIComponent(names[index - 1]!) + part);
}

/**
 * Resolves with the answer's JSON (undefined when it has none). Rejects with an ApiError, or with an AbortError when
 * `signal` fires. A 401 asks for a token, and the call is rejected: whoever polls tries again with the new one.
 */
async function call<T>(method: string, path: string, options: CallOptions = {}): Promise<T> {
  const headers: Record<string, string> = { accept: 'application/json' };
  const sent = token();
  if (sent !== null) headers.authorization = `Bearer ${sent}`;
  const body = options.text ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
  if (body !== undefined) headers['content-type'] = 'application/json';
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(path + queryText(options.query), {
      method,
      headers,
      cache: 'no-store',
      ...(body === undefined ? {} : { body }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    text = await answer.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, 'unreachable', 'The broker does not answer.');
  }
  if (!answer.ok) {
    const error = errorOf(answer, text);
    if (answer.status === 401) askForToken(sent, error.message);
    throw error;
  }
  if (text === '') return undefined as T;
  return (options.raw === undefined ? JSON.parse(text) : parseKeeping(text, new Set(options.raw))) as T;
}

function queryText(query: QueryValues = {}): string {
  const pairs = Object.entries(query)
    .filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]): [string, string] => [name, String(value)]);
  return pairs.length === 0 ? '' : `?${new URLSearchParams(pairs)}`;
}

/** What an answer that is no success says. */
export function errorOf(answer: Response, text: string): ApiError {
  try {
    const body = JSON.parse(text) as Record<string, unknown>;
    const stable = typeof body.code === 'string' ? body.code : String(body.reason ?? body.error ?? '');
    const sentence = [body.message, body.error].find((each) => typeof each === 'string' && each !== '');
    return new ApiError(answer.status, stable, String(sentence ?? answer.statusText), body);
  } catch {
    // Not from the broker: a proxy's page.
    return new ApiError(
      answer.status,
      'not_json',
      `The answer is ${answer.status} ${answer.statusText}`.trim(),
    );
  }
}
