/**
 * What a name may look like, judged before anything is written. Each check answers null when the value is
 * good, or the sentence for the caller.
 *
 * - No control characters (C0, DEL, C1): 0x1F joins names into composite keys, so a name that holds it could
 *   forge another key, and NUL cannot be stored in a text column at all.
 * - Well-formed Unicode only: a lone surrogate becomes U+FFFD in UTF-8, and two different names would be one.
 * - Nothing is folded, trimmed or normalised: case, spaces and composed or decomposed letters all count.
 *
 * An empty partition is a legal name. A queue and a group must have at least one character (no route could address
 * it), and so must a transactionId (every message that carries an empty one would count as one message).
 */

/** Characters (code points) in a queue, partition, group, namespace or task. The width of the columns. */
export const NAME_CHARACTERS_MAX = 255;
/** UTF-8 bytes of a transactionId: what the frame's u16 length can say. */
export const TRANSACTION_ID_BYTES_MAX = 65_535;

function textFault(value: unknown, field: string): string | null {
  if (typeof value !== 'string') return `${field} must be a string`;
  let surrogates = false;
  for (let i = 0; i < value.length; i++) {
    const unit = value.charCodeAt(i);
    if (unit < 0x20 || (unit >= 0x7f && unit < 0xa0)) return `${field} must not contain control characters`;
    if (unit >= 0xd800 && unit < 0xe000) surrogates = true;
  }
  if (surrogates && !value.isWellFormed()) {
    return `${field} must be well-formed Unicode (it holds a lone surrogate)`;
  }
  return null;
}

function countCodePoints(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** For a partition, namespace or task: may be empty. */
export function nameFault(value: unknown, field: string): string | null {
  const fault = textFault(value, field);
  if (fault !== null) return fault;
  const text = value as string;
  // A code point has at most two UTF-16 units, so only lengths between the two bounds need counting.
  if (text.length > NAME_CHARACTERS_MAX) {
    if (text.length > 2 * NAME_CHARACTERS_MAX || countCodePoints(text) > NAME_CHARACTERS_MAX) {
      return `${field} must have at most ${NAME_CHARACTERS_MAX} characters`;
    }
  }
  return null;
}

/** For a queue or a consumer group: not empty. */
export function requiredNameFault(value: unknown, field: string): string | null {
  if (value === '') return `${field} must not be empty`;
  return nameFault(value, field);
}

/** For a transactionId: not empty, limited in bytes instead of characters. */
export function transactionIdFault(value: unknown, field: string): string | null {
  if (value === '') return `${field} must not be empty`;
  const fault = textFault(value, field);
  if (fault !== null) return fault;
  const text = value as string;
  if (text.length * 3 > TRANSACTION_ID_BYTES_MAX && Buffer.byteLength(text) > TRANSACTION_ID_BYTES_MAX) {
    return `${field} must have at most ${TRANSACTION_ID_BYTES_MAX} bytes of UTF-8`;
  }
  return null;
}
