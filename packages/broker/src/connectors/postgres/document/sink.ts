/** The block `sink` of a document. A field that belongs to another mode is an error, not ignored. */
import { parsePath } from '../sink/paths.ts';
import { identifier, identifiers, printTable, queueName, tableName } from './names.ts';
import {
  array,
  boolean,
  type Check,
  described,
  type Faults,
  integer,
  object,
  oneOf,
  optional,
  required,
  text,
} from './reading.ts';
import type { MetadataFact, SinkMode, SinkSettings } from './types.ts';

const STATEMENT_BYTES_MAX = 65_536;
const DEFAULT_PROGRESS = { schema: 'queen', table: 'sink_progress' };

const statement = text((sql) => {
  if (sql.trim() === '') return 'must not be blank';
  if (sql.includes('\0')) return 'must not contain NUL';
  return Buffer.byteLength(sql) > STATEMENT_BYTES_MAX
    ? `must have at most ${STATEMENT_BYTES_MAX} bytes`
    : null;
});

const param = text((path) => {
  const parsed = parsePath(path);
  return typeof parsed === 'string' ? parsed : null;
});

const COLUMN = optional(identifier);
const FACTS = {
  partition: COLUMN,
  partitionId: COLUMN,
  offset: COLUMN,
  transactionId: COLUMN,
  createdAt: COLUMN,
  payload: COLUMN,
} satisfies Record<MetadataFact, typeof COLUMN>;

const facts = object(FACTS);
const metadata: Check<SinkSettings['metadata']> = described(facts.schema!, (value, path, faults) => {
  const given = facts(value, path, faults)!;
  const seen = new Set<string>();
  const read: Partial<Record<MetadataFact, string>> = {};
  for (const [fact, column] of Object.entries(given)) {
    if (column === undefined) continue;
    if (seen.has(column)) faults.add(`${path}.${fact}`, `names the column ${column} a second time`);
    seen.add(column);
    read[fact as MetadataFact] = column;
  }
  return read;
});

const FIELDS = {
  queue: required(queueName),
  consumerGroup: optional(queueName),
  subscriptionMode: optional(oneOf('all', 'new')),
  table: required(tableName(false)),
  mode: required(oneOf('append', 'upsert', 'cdc', 'sql')),
  key: optional(identifiers),
  statement: optional(statement),
  params: optional(array(param, 0, Number.POSITIVE_INFINITY)),
  metadata: optional(metadata),
  batch: optional(integer(1, 10_000)),
  workers: optional(integer(1, 32)),
  leaseSeconds: optional(integer(5, 3600)),
  maxAttempts: optional(integer(1, 100)),
  progressTable: optional(tableName(true)),
  createProgressTable: optional(boolean),
};

const MODES: Readonly<Record<'key' | 'statement' | 'params' | 'metadata', readonly SinkMode[]>> = {
  key: ['upsert', 'cdc'],
  statement: ['sql'],
  params: ['sql'],
  metadata: ['append', 'upsert'],
};

const block = object(FIELDS);

/** @param name of the connector */
export function sinkBlock(name: string): Check<SinkSettings> {
  return described(block.schema!, (value, path, faults) => {
    const given = block(value, path, faults)!;
    const named = value as Record<string, unknown>;
    if (given.mode !== undefined) checkMode(given.mode, named, path, faults);
    const progressTable = given.progressTable ?? DEFAULT_PROGRESS;
    if (given.table !== undefined && printTable(given.table) === printTable(progressTable)) {
      const at = given.progressTable === undefined ? 'table' : 'progressTable';
      faults.add(`${path}.${at}`, 'must not be both the target and the progress table');
    }
    return {
      queue: given.queue ?? '',
      consumerGroup: given.consumerGroup ?? `pg-${name}`,
      subscriptionMode: given.subscriptionMode ?? 'all',
      schema: given.table?.schema ?? '',
      table: given.table?.table ?? '',
      mode: given.mode ?? 'append',
      key: given.key ?? null,
      statement: given.statement ?? null,
      params: given.params ?? null,
      metadata: given.metadata ?? {},
      batch: given.batch ?? 500,
      workers: given.workers ?? 1,
      leaseSeconds: given.leaseSeconds ?? 60,
      maxAttempts: given.maxAttempts ?? 3,
      progressTable,
      createProgressTable: given.createProgressTable ?? true,
    };
  });
}

function checkMode(mode: SinkMode, named: Record<string, unknown>, path: string, faults: Faults): void {
  for (const [field, modes] of Object.entries(MODES)) {
    const there = named[field] !== undefined && named[field] !== null;
    if (there && !modes.includes(mode)) {
      faults.add(`${path}.${field}`, `is only for mode ${modes.join(' and ')}, not ${mode}`);
    }
  }
  if (mode !== 'sql') return;
  for (const field of ['statement', 'params']) {
    if (named[field] === undefined || named[field] === null) {
      faults.add(`${path}.${field}`, 'is missing, mode sql needs it');
    }
  }
}
