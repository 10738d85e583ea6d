import { InvalidArgumentError } from 'commander';
import { usage } from '../exit.ts';
import { parseExact } from '../output/exact_json.ts';

/** Readers of what is typed. Each throws with what is allowed; commander puts the name of the option in front. */

const UNIT_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};
const DURATION = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/;
const PART = /(\d+(?:\.\d+)?)(ms|s|m|h|d)/g;

/** `500ms`, `30s`, `1h30m`, `2d`; a number alone is seconds. In ms. */
export function durationMs(text: string): number {
  if (/^\d+(?:\.\d+)?$/.test(text)) return Number(text) * 1_000;
  if (!DURATION.test(text)) throw new InvalidArgumentError('It is a time like 500ms, 30s, 1h30m or 2d.');
  let ms = 0;
  for (const [, number, unit] of text.matchAll(PART)) ms += Number(number) * UNIT_MS[unit!]!;
  return ms;
}

/** The same where the wire counts in whole seconds. */
export function durationSeconds(text: string): number {
  const seconds = durationMs(text) / 1_000;
  if (!Number.isInteger(seconds) || seconds < 1)
    throw new InvalidArgumentError('It is a time of whole seconds, at least 1s.');
  return seconds;
}

const DAY = /^\d{4}-\d\d-\d\d$/;
const ZONE = /(?:[zZ]|[+-]\d\d:?\d\d)$/;

/** An instant: ISO 8601 (without a zone: UTC), or a time that is so long ago (`15m`). As ISO 8601. */
export function instant(text: string): string {
  const ago = text.replace(/^-/, '');
  if (DURATION.test(ago)) return new Date(Date.now() - durationMs(ago)).toISOString();
  return momentOf(text) ?? invalid('It is an instant like 2026-01-31T10:00:00Z, or a time ago like 15m.');
}

/** An instant that may be to come: ISO 8601, without a zone UTC. */
export function moment(text: string): string {
  return momentOf(text) ?? invalid('It is an instant like 2026-01-31T10:00:00Z.');
}

function momentOf(text: string): string | null {
  const whole = DAY.test(text) ? `${text}T00:00:00Z` : ZONE.test(text) ? text : `${text}Z`;
  return /^\d{4}-\d\d-\d\dT/.test(whole) && !Number.isNaN(Date.parse(whole)) ? whole : null;
}

function invalid(sentence: string): never {
  throw new InvalidArgumentError(sentence);
}

/** An instant, or one of some words. */
export function instantOr(...words: readonly string[]): (text: string) => string {
  return (text) => (words.includes(text) ? text : instant(text));
}

/** An integer within bounds. */
export function integer(least: number, most: number = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = /^[+-]?\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= least && value <= most) return value;
    const range = most === Number.MAX_SAFE_INTEGER ? `at least ${least}` : `from ${least} to ${most}`;
    throw new InvalidArgumentError(`It is an integer, ${range}.`);
  };
}

export function finite(text: string): number {
  const value = text.trim() === '' ? Number.NaN : Number(text);
  if (Number.isFinite(value)) return value;
  throw new InvalidArgumentError('It is a number.');
}

/** A size of bytes: `100`, `64KiB`, `1MiB`. */
export function size(text: string): number {
  const match = /^(\d+)(B|KiB|MiB)?$/i.exec(text);
  if (match === null) throw new InvalidArgumentError('It is a size like 100, 64KiB or 1MiB.');
  const unit = { b: 1, kib: 1024, mib: 1024 ** 2 }[(match[2] ?? 'B').toLowerCase()]!;
  return Number(match[1]) * unit;
}

/** Several of an option: given again. */
export function again(text: string, before: readonly string[] | undefined): string[] {
  return [...(before ?? []), text];
}

/** The same, also with commas. */
export function several(text: string, before: readonly string[] | undefined): string[] {
  return [...(before ?? []), ...text.split(',').filter((each) => each !== '')];
}

/** JSON as it was typed, or a text as it is. @throws Failure that says of `what` that it is no JSON */
export function payload(text: string, isText: boolean, what: string): unknown {
  if (isText) return text;
  try {
    return parseExact(text);
  } catch (error) {
    const hint = /^[\w.-]/.test(text.trim()) ? `: a text is '${JSON.stringify(text)}', or give --text` : '';
    throw usage(`${what} is no JSON: ${(error as Error).message}${hint}`);
  }
}

/** What a path of names (`customer.id`) finds in a value; undefined when there is nothing. */
export function at(value: unknown, path: string): unknown {
  let found = value;
  for (const name of path.split('.')) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, name)) return undefined;
    found = (found as Record<string, unknown>)[name];
  }
  return found;
}
