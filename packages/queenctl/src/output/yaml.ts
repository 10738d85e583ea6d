import { createRequire } from 'node:module';
import { digitsOf } from './exact_json.ts';
import { harmless } from './text.ts';

/** The library, once there is YAML to read or to write: most commands have none, and start sooner without it. */
export const yamlLibrary: () => typeof import('yaml') = () => createRequire(import.meta.url)('yaml');

/** Numbers that `parseExact` kept are written with their own digits. */
const digits = {
  tag: 'tag:yaml.org,2002:float',
  default: true as const,
  identify: (value: unknown) => digitsOf(value) !== null,
  resolve: (text: string) => text,
  // Never matches: this is for writing only.
  test: /^(?!)/,
  stringify: ({ value }: { value: unknown }) => digitsOf(value)!,
};

export function yamlOf(document: unknown): string {
  const text = yamlLibrary().stringify(plain(document), {
    customTags: [digits],
    lineWidth: 0,
    aliasDuplicateObjects: false,
  });
  // What holds one of these stands in double quotes, where an escape is the same.
  return harmless(text, /[\u007f-\u009f]/g);
}

/** Without what is undefined, as JSON has it. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null || digitsOf(value) !== null) return value;
  if (value instanceof Date) return value.toISOString();
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, each]) => each !== undefined)
      .map(([key, each]) => [key, plain(each)]),
  );
}
