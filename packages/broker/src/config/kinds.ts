/**
 * The kinds of settings. A setting knows its variable, its limits, its default and what it is for; it reads a
 * text and answers the value or what is wrong with it. The table is in settings.ts.
 */
export interface Setting<T> {
  readonly name: string;
  /** Other variables that mean the same, looked at in this order when `name` is not set. */
  readonly aliases: readonly string[];
  /** Kind and range, for people. */
  readonly accepts: string;
  /** Null with `derived`: decided at start. Null without: not set. */
  readonly default: T;
  /** How the default comes about, when it is not fixed. */
  readonly derived: string | null;
  readonly about: string;
  /** The value never appears in a message. */
  readonly secret: boolean;
  /** Read as it stands: not trimmed, and an empty text is a value too. */
  readonly verbatim: boolean;
  /** Nothing uses it yet: setting it draws a warning. */
  readonly later: boolean;
  read(text: string): { value: T } | { fault: string };
}

interface Common<D> {
  default: D;
  about: string;
  derived?: string;
  aliases?: readonly string[];
  secret?: boolean;
  verbatim?: boolean;
  later?: boolean;
}

function setting<T, D>(
  name: string,
  accepts: string,
  common: Common<D>,
  read: (text: string) => { value: T } | { fault: string },
): Setting<T | D> {
  return {
    name,
    aliases: common.aliases ?? [],
    accepts,
    default: common.default,
    derived: common.derived ?? null,
    about: common.about,
    secret: common.secret ?? false,
    verbatim: common.verbatim ?? false,
    later: common.later ?? false,
    read,
  };
}

const TRUE = new Set(['true', '1', 'yes', 'on']);
const FALSE = new Set(['false', '0', 'no', 'off']);

export function boolean<D extends boolean | null>(name: string, common: Common<D>): Setting<boolean | D> {
  return setting(name, 'boolean', common, (text) => {
    const word = text.toLowerCase();
    if (TRUE.has(word)) return { value: true };
    if (FALSE.has(word)) return { value: false };
    return { fault: 'is not a boolean (expected true/false, 1/0, yes/no, on/off)' };
  });
}

/** Both bounds are allowed values. */
export function integer<D extends number | null>(
  name: string,
  common: Common<D> & { min: number; max: number },
): Setting<number | D> {
  const { min, max } = common;
  const accepts = `integer ${min}..${max}`;
  return setting(name, accepts, common, (text) => {
    if (!/^[+-]?\d+$/.test(text)) return { fault: `is not a whole number (expected ${min}..${max})` };
    const value = Number(text);
    return value >= min && value <= max ? { value } : { fault: `is out of range (expected ${min}..${max})` };
  });
}

export function decimal<D extends number | null>(
  name: string,
  common: Common<D> & { min: number; max: number },
): Setting<number | D> {
  const { min, max } = common;
  const accepts = `number ${min}..${max}`;
  return setting(name, accepts, common, (text) => {
    if (!/^[+-]?(\d+\.?\d*|\.\d+)$/.test(text)) return { fault: `is not a number (expected ${min}..${max})` };
    const value = Number(text);
    return value >= min && value <= max ? { value } : { fault: `is out of range (expected ${min}..${max})` };
  });
}

export function oneOf<const W extends string>(
  name: string,
  words: readonly W[],
  common: Common<W>,
): Setting<W> {
  return setting<W, W>(name, words.join(', '), common, (text) => {
    const word = words.find((candidate) => candidate.toLowerCase() === text.toLowerCase());
    return word === undefined ? { fault: `is unknown (expected ${words.join(', ')})` } : { value: word };
  });
}

export function text<D extends string | null>(
  name: string,
  common: Common<D> & { accepts?: string; shape?: RegExp },
): Setting<string | D> {
  const accepts = common.accepts ?? 'text';
  return setting(name, accepts, common, (value) =>
    common.shape === undefined || common.shape.test(value) ? { value } : { fault: `is not ${accepts}` },
  );
}

/** Texts between commas, trimmed; an empty text is the empty list. */
export function list(name: string, common: Common<readonly string[]>): Setting<readonly string[]> {
  return setting(name, 'texts between commas', { ...common, verbatim: true }, (text) => ({
    value: text
      .split(',')
      .map((part) => part.trim())
      .filter((part) => part !== ''),
  }));
}
