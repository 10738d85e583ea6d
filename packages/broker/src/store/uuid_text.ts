const UUID_TEXT = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Writes the 16 bytes of `text` at `at`; false (and nothing written) when it is not in the 8-4-4-4-12 form. */
export function parseUuidInto(text: string, out: Buffer, at: number): boolean {
  if (!UUID_TEXT.test(text)) return false;
  out.write(text.replaceAll('-', ''), at, 16, 'hex');
  return true;
}

/** The 16 bytes at `at` as lower-case text. */
export function uuidText(bytes: Buffer, at: number): string {
  const hex = bytes.toString('hex', at, at + 16);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
