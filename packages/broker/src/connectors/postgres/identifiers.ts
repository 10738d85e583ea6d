/** Names as SQL writes them. */

export function quoteName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

export function qualified(schema: string, name: string): string {
  return `${quoteName(schema)}.${quoteName(name)}`;
}
