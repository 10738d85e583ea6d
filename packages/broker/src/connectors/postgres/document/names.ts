/** What names may look like in a document. Each answers the sentence without its subject, or null. */
import { requiredNameFault } from '../../../log/names.ts';
import type { Check } from './reading.ts';
import { array, described, kindOf, text } from './reading.ts';

const CONNECTOR = /^[a-z0-9][a-z0-9_-]{0,47}$/;
const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_$]{0,62}$/;
const FOLDED = /^[a-z_][a-z0-9_]{0,62}$/;
const QUEUE_BYTES_MAX = 128;
const IDENTIFIER_RULE =
  'a letter or underscore, then letters, digits, underscores and dollar signs, 63 at most, no quotes';

export interface TableName {
  readonly schema: string;
  readonly table: string;
}

export function isConnectorName(name: string): boolean {
  return CONNECTOR.test(name);
}

/** What a slot and a publication are called unless the document says so. */
export function defaultSlot(name: string): string {
  return `queen_${name.replaceAll('-', '_')}`;
}

export const identifier: Check<string> = text(
  (name) => (IDENTIFIER.test(name) ? null : `must be a column name (${IDENTIFIER_RULE})`),
  { pattern: IDENTIFIER.source },
);

const columns = { type: 'array', items: identifier.schema, minItems: 1, uniqueItems: true };

/** At least one, none twice. */
export const identifiers: Check<readonly string[]> = described(columns, (value, path, faults) => {
  const seen = new Set<string>();
  return array<string>(
    (each, at, into) => {
      const name = identifier(each, at, into);
      if (name === undefined) return undefined;
      if (seen.has(name)) return into.add(at, `names ${name} a second time`);
      seen.add(name);
      return name;
    },
    1,
    Number.POSITIVE_INFINITY,
  )(value, path, faults);
});

export const slotName: Check<string> = text(
  (name) =>
    FOLDED.test(name)
      ? null
      : 'must be 1 to 63 lower-case letters, digits and underscores and must not begin with a digit',
  { pattern: FOLDED.source },
);

/** Of a queue or a consumer group: what a push takes, within 128 bytes. */
export const queueName: Check<string> = text(
  (name) => {
    const fault = requiredNameFault(name, '');
    if (fault !== null) return fault.trim();
    return Buffer.byteLength(name) > QUEUE_BYTES_MAX
      ? `must have at most ${QUEUE_BYTES_MAX} bytes of UTF-8`
      : null;
  },
  { minLength: 1, maxLength: QUEUE_BYTES_MAX },
);

/** @param schemaRequired else a bare name means the schema public */
export function tableName(schemaRequired: boolean): Check<TableName> {
  const name = IDENTIFIER.source.slice(1, -1);
  const pattern = schemaRequired ? `^${name}\\.${name}$` : `^(${name}\\.)?${name}$`;
  return described({ type: 'string', pattern }, (value, path, faults) => {
    if (typeof value !== 'string') return faults.add(path, `must be a string, not ${kindOf(value)}`);
    const parts = value.split('.');
    const shape = schemaRequired ? 'schema.name' : 'schema.name or name';
    const fits = parts.length === 2 || (parts.length === 1 && !schemaRequired);
    if (!fits || !parts.every((part) => IDENTIFIER.test(part))) {
      return faults.add(
        path,
        `must be ${shape}, each part ${IDENTIFIER_RULE}; other names are not supported`,
      );
    }
    const [schema, table] = parts.length === 2 ? parts : ['public', parts[0]];
    return { schema: schema!, table: table! };
  });
}

export function printTable({ schema, table }: TableName): string {
  return `${schema}.${table}`;
}
