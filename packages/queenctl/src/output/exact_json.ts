/**
 * JSON whose numbers keep their digits. A payload of `{"total": 12.50}` or a number of 30 digits is shown and pushed as it
 * was written: what a double cannot hold, or would print otherwise, is kept as its own text.
 */
import { harmless } from './text.ts';

interface RawJson {
  readonly rawJSON: string;
}

// Node has these; the type library does not yet.
const json = JSON as unknown as {
  parse(
    text: string,
    reviver: (key: string, value: unknown, context: { source?: string }) => unknown,
  ): unknown;
  rawJSON(text: string): RawJson;
  isRawJSON(value: unknown): value is RawJson;
};

/** @throws SyntaxError */
export function parseExact(text: string): unknown {
  return json.parse(text, (_key, value, { source }) =>
    typeof value === 'number' && source !== undefined && String(value) !== source
      ? json.rawJSON(source)
      : value,
  );
}

/** JSON text of it, in which nothing steers a terminal: that is escaped, which changes no value. */
export function jsonText(value: unknown, indent?: number): string {
  return harmless(
    JSON.stringify(value, null, indent),
    /[\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g,
  );
}

/** The digits of a number that `parseExact` kept, or null for everything else. */
export function digitsOf(value: unknown): string | null {
  return json.isRawJSON(value) ? value.rawJSON : null;
}
