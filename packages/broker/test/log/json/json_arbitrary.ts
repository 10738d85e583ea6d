/**
 * JSON texts for property tests: every way of writing a value that the grammar allows (white space, escapes, long
 * numbers, repeated and awkward keys), as text, so that a test knows the exact bytes of each part.
 */
import fc from 'fast-check';

export const space: fc.Arbitrary<string> = fc.oneof(
  { weight: 6, arbitrary: fc.constant('') },
  { weight: 1, arbitrary: fc.string({ unit: fc.constantFrom(' ', '\n', '\r', '\t'), maxLength: 3 }) },
);

const hex4 = (code: number): string => code.toString(16).padStart(4, '0');

/** One character of a string as it may be written between the quotes. */
const writtenCharacter: fc.Arbitrary<string> = fc.oneof(
  { weight: 5, arbitrary: fc.constantFrom(...'abcxyz019 {}[]:,') },
  fc.constantFrom('\\"', '\\\\', '\\/', '\\b', '\\f', '\\n', '\\r', '\\t'),
  fc.constantFrom('é', '日', '😀', '\u007f', '\u2028', '\ufeff', '\ufffd'),
  fc.integer({ min: 0, max: 0xffff }).map((code) => `\\u${hex4(code)}`),
  fc.constantFrom('\\uD83D\\uDE00', '\\ud800', '\\udC00x', '\\u0000', '\\u001F'),
);

export const stringText: fc.Arbitrary<string> = fc
  .array(writtenCharacter, { maxLength: 12 })
  .map((parts) => `"${parts.join('')}"`);

export const numberText: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom('0', '-0', '-0.0', '1.0', '1e400', '-1E-400', '1e+5', '123456789012345678901234567890'),
  fc.constantFrom(
    '0.1234567890123456789012345678901234567890',
    '9007199254740993',
    '5e-324',
    '1.7976931348623159e309',
  ),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => JSON.stringify(value)),
  fc.integer().map(String),
);

/** Any JSON value as text. */
export const valueText: fc.Arbitrary<string> = fc.letrec<{ value: string }>((tie) => {
  const element = fc.tuple(space, tie('value'), space).map((parts) => parts.join(''));
  const key = fc.oneof(stringText, fc.constantFrom('"payload"', '"__proto__"', '"items"', '"a"'));
  const member = fc.tuple(space, key, space, element).map(([a, k, b, v]) => `${a}${k}${b}:${v}`);
  const list = (open: string, part: fc.Arbitrary<string>, close: string): fc.Arbitrary<string> =>
    fc
      .tuple(space, fc.array(part, { maxLength: 4 }))
      .map(([s, parts]) => `${open}${parts.join(',') || s}${close}`);
  return {
    value: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.constantFrom('null', 'true', 'false', '{}', '[]', '""'),
      numberText,
      stringText,
      list('[', element, ']'),
      list('{', member, '}'),
    ),
  };
}).value;

/** The string as a JSON text in which the characters that `choose` picks are written as \u escapes. */
export function escapeSome(text: string, choose: (index: number) => boolean): string {
  let out = '"';
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    const must = code < 0x20 || code === 0x22 || code === 0x5c || (code >= 0xd800 && code < 0xe000);
    out += must || choose(i) ? `\\u${hex4(code)}` : text[i];
  }
  return `${out}"`;
}
