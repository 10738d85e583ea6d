import type { Brokers } from '../brokers/brokers.ts';
import {
  AbortedError,
  abortedBy,
  closed,
  type ErrorFacts,
  InDoubtError,
  OverloadedError,
  QueenError,
  RefusedError,
  sentenceOf,
  UnavailableError,
} from '../errors.ts';
import { bodyOf, errorOf } from './answer.ts';
import { overloadedPauseMs, type RetryPolicy } from './backoff.ts';
import { linked, pause, unlessAborted } from './signals.ts';

/** What every call takes. */
export interface CallOptions {
  /** Ends the call, its pauses and its request with an AbortedError. */
  signal?: AbortSignal | undefined;
}

export interface Request {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** From `/` on, with what needs it percent-encoded. */
  readonly path: string;
  /** Undefined values are left out. */
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>> | undefined;
  /** Sent as JSON; a function is asked before each try. */
  readonly body?: unknown;
  /** Which broker is asked first: one key, one broker, as long as that one answers. */
  readonly affinity?: string;
  /**
   * Whether the request may be sent again when nobody knows whether it was carried out. One that may not ends with an
   * InDoubtError then.
   */
  readonly repeatable: boolean;
  /** Whether it changes nothing, so that nobody need know whether it was carried out. Default: what is asked by GET. */
  readonly reads?: boolean;
  /** Longest wait for the answer to one try, ms. Default: the client's. */
  readonly timeoutMs?: number | undefined;
  /** Statuses besides 2xx that are answers, not errors. */
  readonly accepts?: (status: number, body: unknown) => boolean;
  /** An answer that has begun to arrive is taken although the signal fires: it may hold something that has to be given back. */
  readonly keepsAnswer?: boolean;
  readonly signal?: AbortSignal | undefined;
}

export interface Answer<T> {
  readonly status: number;
  readonly body: T;
  /** Whether an earlier try may have been carried out as well. */
  readonly repeated: boolean;
}

export interface TransportOptions {
  readonly brokers: Brokers;
  readonly headers: () => Promise<Record<string, string>>;
  readonly retry: RetryPolicy;
  readonly timeoutMs: number;
  readonly fetch: typeof fetch;
  /** Default: `JSON.parse`. */
  readonly parse?: ((text: string) => unknown) | undefined;
}

/**
 * Sends requests, and repeats them.
 *
 * A try ends in one of four ways, and to get a token is part of it. An answer below 500 is the broker's last word, but for 429: that is asked again, of the same
 * broker, when it says so. Where nothing was carried out (no token, no connection, 503 of a broker) the next broker is asked at once, and after a
 * round of all of them there is a pause. Where nobody knows (the connection broke, the time ran out) the same happens if
 * the request is `repeatable`. Everything that is pushed has its transactionId before the first try, and that is what makes
 * a push repeatable.
 */
export class Transport {
  readonly #options: TransportOptions;
  readonly #end = new AbortController();

  constructor(options: TransportOptions) {
    this.#options = options;
  }

  /** Ends every call that is under way, and every one to come. */
  close(): void {
    this.#end.abort(closed('client'));
  }

  /** @throws QueenError of all kinds */
  async call<T>(request: Request): Promise<Answer<T>> {
    const link = linked(request.signal, this.#end.signal);
    try {
      return await this.#tries<T>(request, link.signal);
    } finally {
      link.unlink();
    }
  }

  /** The body of the answer alone. */
  async ask<T>(request: Request): Promise<T> {
    return (await this.call<T>(request)).body;
  }

  async #tries<T>(request: Request, signal: AbortSignal): Promise<Answer<T>> {
    const { brokers, retry } = this.#options;
    const { reads = request.method === 'GET' } = request;
    const order = brokers.order(request.affinity ?? request.path);
    let failures = 0;
    let refusals = 0;
    let repeated = false;
    for (;;) {
      const broker = order[failures % order.length]!;
      try {
        const { status, body } = await this.#try(request, broker, signal);
        brokers.answered(broker);
        return { status, body: body as T, repeated };
      } catch (error) {
        if (!(error instanceof QueenError) || error instanceof AbortedError) throw error;
        if (error instanceof RefusedError) throw repeated ? doubted(error) : error;
        if (error instanceof OverloadedError) {
          if (refusals >= retry.overloadedRetries) throw repeated ? doubted(error) : error;
          await pause(overloadedPauseMs(retry, refusals++, error.retryAfterSeconds), signal);
          continue;
        }
        if (error.broker !== undefined) brokers.failed(broker);
        if (error instanceof InDoubtError && !reads) {
          if (!request.repeatable) throw error;
          repeated = true;
        }
        if (failures >= retry.retries) {
          if (repeated) throw doubted(error);
          throw error instanceof InDoubtError ? new UnavailableError(error.message, factsOf(error)) : error;
        }
        failures++;
        if (failures % order.length === 0) {
          const round = failures / order.length - 1;
          await pause(overloadedPauseMs(retry, round, error.retryAfterSeconds), signal);
        }
      }
    }
  }

  async #try(
    request: Request,
    broker: string,
    signal: AbortSignal,
  ): Promise<{ status: number; body: unknown }> {
    if (signal.aborted) throw abortedBy(signal);
    const { fetch, parse, timeoutMs: usual } = this.#options;
    const timeoutMs = request.timeoutMs ?? usual;
    const body = typeof request.body === 'function' ? (request.body as () => unknown)() : request.body;
    const text = body === undefined ? undefined : JSON.stringify(body);
    const link = linked(signal);
    const timer = setTimeout(() => link.abort(new DOMException('timeout', 'TimeoutError')), timeoutMs);
    try {
      const headers = await this.#headers(link.signal, timeoutMs);
      const response = await fetch(broker + request.path + queryOf(request.query), {
        method: request.method,
        headers: text === undefined ? headers : { ...headers, 'content-type': 'application/json' },
        ...(text === undefined ? {} : { body: text }),
        signal: link.signal,
        redirect: 'error',
      });
      if (request.keepsAnswer === true) link.unlink();
      const decoded = await bodyOf(response, parse);
      if (response.ok || request.accepts?.(response.status, decoded) === true) {
        return { status: response.status, body: decoded };
      }
      throw errorOf(response, decoded, broker);
    } catch (error) {
      const answered = error instanceof QueenError && error.broker !== undefined;
      if (!answered && signal.aborted) throw abortedBy(signal);
      if (error instanceof QueenError) throw error;
      const what = `${request.method} ${request.path} at ${broker}`;
      if (link.signal.aborted) {
        const facts = { code: 'timeout', broker, cause: error };
        throw new InDoubtError(`no answer to ${what} within ${timeoutMs} ms`, facts);
      }
      throw unanswered(what, broker, error);
    } finally {
      clearTimeout(timer);
      link.unlink();
    }
  }

  /** The token comes from code of the user, which can fail and hang like a broker. No broker is to blame for it then. */
  async #headers(signal: AbortSignal, timeoutMs: number): Promise<Record<string, string>> {
    try {
      return await unlessAborted(this.#options.headers(), signal);
    } catch (error) {
      const why = signal.aborted ? `none within ${timeoutMs} ms` : sentenceOf(error);
      throw new UnavailableError(`no token: ${why}`, { code: 'token', cause: error });
    }
  }
}

/** Causes that fetch gives when not a byte of the request can have arrived. Browsers tell nothing. */
const NOT_SENT: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

function unanswered(what: string, broker: string, error: unknown): QueenError {
  const cause = error instanceof Error ? error.cause : undefined;
  const code = (cause as { code?: unknown } | undefined)?.code;
  const facts = { code: 'network', broker, cause: error };
  const detail = cause instanceof Error && cause.message !== '' ? cause.message : sentenceOf(error);
  const sentence = `no answer to ${what}: ${typeof code === 'string' ? code : detail}`;
  return typeof code === 'string' && NOT_SENT.has(code)
    ? new UnavailableError(sentence, facts)
    : new InDoubtError(sentence, facts);
}

/** However the last try failed: an earlier one may have been carried out. */
function doubted(error: QueenError): QueenError {
  if (error instanceof InDoubtError) return error;
  return new InDoubtError(`${error.message} (an earlier try may have been carried out)`, factsOf(error));
}

/** The same under another name. */
function factsOf(error: QueenError): ErrorFacts {
  const { code, status, reason, field, retryAfterSeconds, body, broker } = error;
  return { code, status, reason, field, retryAfterSeconds, body, broker, cause: error };
}

function queryOf(query: Request['query']): string {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined) text.set(name, String(value));
  }
  return text.size === 0 ? '' : `?${text}`;
}

/** A name as one segment of a path. @throws TypeError for the few that no URL can hold */
export function segment(name: string): string {
  // It would be taken for a step in the path, escaped or not.
  if (name === '.' || name === '..' || name === '')
    throw new TypeError(`the name "${name}" fits into no URL`);
  return encodeURIComponent(name);
}
