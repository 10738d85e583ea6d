/**
 * The request target, taken apart: path segments and query pairs, percent-decoded strictly. A malformed escape or a
 * byte sequence that is not UTF-8 is an error and never passed on half-decoded: two targets must not name one queue.
 */
import { Fault } from './errors.ts';

export interface Target {
  /** As sent, without the query; always begins with a slash. */
  path: string;
  /** As sent, without the question mark; '' when there is none. */
  query: string;
}

/** Splits the target. An absolute form (`http://host/path`, sent by proxies) is reduced to its path. */
export function splitTarget(url: string): Target {
  const text = url.charCodeAt(0) === 0x2f ? url : originForm(url);
  const mark = text.indexOf('?');
  const hash = text.indexOf('#');
  const end = hash === -1 ? text.length : hash;
  if (mark === -1 || mark > end) return { path: text.slice(0, end), query: '' };
  return { path: text.slice(0, mark), query: text.slice(mark + 1, end) };
}

function originForm(url: string): string {
  const scheme = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i.exec(url);
  if (scheme === null) return `/${url}`;
  const rest = url.slice(scheme[0].length);
  return rest.startsWith('/') ? rest : `/${rest}`;
}

/** One path segment; `%2F` in it is a slash of the name. Throws a 400 Fault that names the field. */
export function decodeSegment(segment: string, field: string): string {
  if (!segment.includes('%')) return segment;
  try {
    return decodeURIComponent(segment);
  } catch {
    throw new Fault('malformed_url', { field });
  }
}

/**
 * The query's pairs, first key first. Undecodable keys and values stay undecoded here, marked by `malformed`: an
 * unknown parameter is ignored whatever it holds, and only who reads a known one complains.
 */
export interface QueryPair {
  name: string;
  value: string;
  malformed: boolean;
}

export function queryPairs(query: string): QueryPair[] {
  const pairs: QueryPair[] = [];
  if (query === '') return pairs;
  for (const part of query.split('&')) {
    if (part === '') continue;
    const equals = part.indexOf('=');
    const name = decodePart(equals === -1 ? part : part.slice(0, equals));
    const value = equals === -1 ? '' : part.slice(equals + 1);
    if (name === null) continue;
    const decoded = decodePart(value);
    pairs.push({ name, value: decoded ?? value, malformed: decoded === null });
  }
  return pairs;
}

function decodePart(text: string): string | null {
  const spaced = text.includes('+') ? text.replaceAll('+', ' ') : text;
  if (!spaced.includes('%')) return spaced;
  try {
    return decodeURIComponent(spaced);
  } catch {
    return null;
  }
}
