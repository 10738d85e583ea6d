/**
 * The identity of a key value before the database has seen it: a text that is equal for values which the database takes for one
 * row. For types where that cannot be told from the text, the texts do not decide, and messages stay in strict order.
 */
import type { CatalogColumn } from './target.ts';

/** Of the value's text (a string decoded, anything else as it is written). */
export type KeyText = (text: string) => string;

const INTEGERS = new Set(['20', '21', '23', '26']);
const UUID = '2950';
const TEXT = '25';
const VARCHAR = '1043';
/** Printed in one way only: bool, bytea, date, time, timestamp, timestamptz, inet, char(n). */
const PRINTED_ALIKE = new Set(['16', '17', '1082', '1083', '1114', '1184', '869', '1042']);

/** @param canonical the texts come from a server that printed them, not from any producer */
export function keyTextOf(column: CatalogColumn, canonical: boolean): { of: KeyText; decides: boolean } {
  const { typeOid } = column;
  if (INTEGERS.has(typeOid)) return { of: integerText, decides: true };
  if (typeOid === UUID) return { of: uuidText, decides: true };
  if (!column.deterministic) return { of: asItIs, decides: false };
  if (typeOid === TEXT) return { of: asItIs, decides: true };
  // A length cuts trailing blanks off.
  if (typeOid === VARCHAR) return { of: asItIs, decides: canonical || column.typeModifier < 0 };
  return { of: asItIs, decides: canonical && PRINTED_ALIKE.has(typeOid) };
}

function asItIs(text: string): string {
  return text;
}

/** `007`, `+7` and `7` are one number. What is none is refused by the database. */
function integerText(text: string): string {
  if (/^(0|-?[1-9][0-9]{0,17})$/.test(text)) return text;
  const digits = /^\s*\+?(-?[0-9]+)\s*$/.exec(text)?.[1];
  return digits === undefined ? text : BigInt(digits).toString();
}

function uuidText(text: string): string {
  return text.toLowerCase().replaceAll(/[{}-]/g, '');
}
