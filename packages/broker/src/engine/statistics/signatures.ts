/** What error texts have in common: the same text with ids, dates and numbers taken out. */

const SIGNATURE_CHARACTERS = 120;

const PARTS: readonly [RegExp, string][] = [
  [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi, '<id>'],
  [/\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?(?:Z|[+-]\d{2}:?\d{2})?/g, '<date>'],
  // What has a digit among hex letters, and is long, is nobody's word.
  [/\b(?:0x[0-9a-f]+|(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,})\b/gi, '<id>'],
  [/[+-]?\d+(?:[.,]\d+)*/g, '<n>'],
];

export function signatureOf(error: string): string {
  let text = error;
  for (const [pattern, stands] of PARTS) text = text.replace(pattern, stands);
  return text.replace(/\s+/g, ' ').trim().slice(0, SIGNATURE_CHARACTERS);
}

/** The most frequent ones; `share` of all texts, 0 to 1. */
export function signatures(
  errors: readonly (string | null)[],
  most: number,
): { text: string; n: number; share: number }[] {
  const counts = new Map<string, number>();
  for (const error of errors) {
    const text = signatureOf(error ?? '');
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  return [...counts]
    .sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1))
    .slice(0, most)
    .map(([text, n]) => ({ text, n, share: Math.round((n / errors.length) * 1000) / 1000 }));
}
