/** The block `source` of a document. */

import { defaultSlot, identifiers, printTable, queueName, slotName, tableName } from './names.ts';
import {
  array,
  boolean,
  type Check,
  described,
  integer,
  object,
  oneOf,
  optional,
  required,
} from './reading.ts';
import type { SourceSettings, SourceTable } from './types.ts';

const TABLES_MAX = 256;

const ways = { anyOf: [{ type: 'string', enum: ['key', 'single'] }, identifiers.schema] };
const partitionBy: Check<SourceTable['partitionBy']> = described(ways, (value, path, faults) => {
  if (value === 'key' || value === 'single') return value;
  if (Array.isArray(value)) return identifiers(value, path, faults);
  return faults.add(path, 'must be "key", "single" or a list of columns');
});

const TABLE = {
  table: required(tableName(false)),
  queue: required(queueName),
  partitionBy: optional(partitionBy),
};

const tableEntry = object(TABLE);
const tableList = array(tableEntry, 1, TABLES_MAX).schema!;
const tables: Check<readonly SourceTable[]> = described(tableList, (value, path, faults) => {
  const seen = new Set<string>();
  const table: Check<SourceTable> = (each, at, into) => {
    const members = tableEntry(each, at, into);
    if (members?.table === undefined) return undefined;
    const name = printTable(members.table);
    if (seen.has(name)) into.add(`${at}.table`, `names ${name} a second time`);
    seen.add(name);
    return { ...members.table, queue: members.queue ?? '', partitionBy: members.partitionBy ?? 'key' };
  };
  return array(table, 1, TABLES_MAX)(value, path, faults);
});

const FIELDS = {
  tables: required(tables),
  slot: optional(slotName),
  publication: optional(slotName),
  managePublication: optional(boolean),
  snapshot: optional(oneOf('initial', 'never')),
  snapshotChunkRows: optional(integer(100, 100_000)),
  maxBundleMessages: optional(integer(1, 50_000)),
  maxBundleBytes: optional(integer(65_536, 67_108_864)),
  lingerMs: optional(integer(0, 5000)),
  heartbeatSeconds: optional(integer(1, 3600)),
  onTruncate: optional(oneOf('skip', 'emit')),
};

const block = object(FIELDS);

/** @param name of the connector */
export function sourceBlock(name: string): Check<SourceSettings> {
  return described(block.schema!, (value, path, faults) => {
    const given = block(value, path, faults)!;
    const listed = given.tables ?? [];
    const scattered = listed.find((table) => table.partitionBy !== 'single');
    if (given.onTruncate === 'emit' && scattered !== undefined) {
      faults.add(
        `${path}.onTruncate`,
        `"emit" demands partitionBy "single" in every table, and ${printTable(scattered)} has another`,
      );
    }
    return {
      tables: listed,
      slot: given.slot ?? defaultSlot(name),
      publication: given.publication ?? defaultSlot(name),
      managePublication: given.managePublication ?? true,
      snapshot: given.snapshot ?? 'initial',
      snapshotChunkRows: given.snapshotChunkRows ?? 2000,
      maxBundleMessages: given.maxBundleMessages ?? 1000,
      maxBundleBytes: given.maxBundleBytes ?? 4_194_304,
      lingerMs: given.lingerMs ?? 20,
      heartbeatSeconds: given.heartbeatSeconds ?? 10,
      onTruncate: given.onTruncate ?? 'skip',
    };
  });
}
