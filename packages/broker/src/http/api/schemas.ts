/**
 * The words of which requests and answers are made. Each is a JSON Schema, as OpenAPI 3.1 takes it. A schema with a `title`
 * becomes a component of the document; `refusal` is what the caller hears when the validator turns a value down, and is
 * not part of the document.
 */
import { Type } from 'typebox';
import { INT_MAX, INT_MIN } from '../../engine/types.ts';
import {
  NAME_CHARACTERS_MAX,
  nameFault,
  requiredNameFault,
  TRANSACTION_ID_BYTES_MAX,
  transactionIdFault,
} from '../../log/names.ts';
import type { Fault } from '../errors.ts';
import type { PageSize } from '../query.ts';

export type Schema = Type.TSchema;

/** The sentence without its subject (`must be true or false`), or what makes the whole sentence, or the refusal. */
export type Refusal = string | ((value: unknown, field: string) => string | Fault);

type Judge = (value: unknown, field: string) => string | null;

function judged(judge: Judge): Refusal {
  return (value, field) =>
    (value === undefined ? null : judge(value, field)) ??
    `${field} is ${value === undefined ? 'missing' : 'not acceptable'}`;
}

/** Of a member that may be left out, and of which JSON null says the same. */
export function Maybe<T extends Schema>(schema: T) {
  return Type.Optional(Nullable(schema));
}

export function Nullable<T extends Schema>(schema: T) {
  return Type.Union([schema, Type.Null()]);
}

export const Count = Type.Integer({ minimum: 0 });
export const Text = Type.String();
export const Flag = Type.Boolean();
export const Quantity = Type.Number();
export const Json = Type.Unknown({ description: 'Any JSON, byte for byte as it was sent.' });
export const Uuid = Type.String({ format: 'uuid' });
export const Instant = Type.String({ format: 'date-time', description: 'ISO 8601 in UTC.' });
export const Id = Type.String({ description: 'Opaque: compare it, do not calculate with it.' });
export const PartitionId = Type.String({ description: 'Decimal digits; opaque.', examples: ['42'] });

/** One word of some. */
export function Word<W extends string>(words: readonly W[], more: Type.TSchemaOptions = {}) {
  return Type.Unsafe<W>({ type: 'string', enum: [...words], ...more });
}

const NO_CONTROL_CHARACTERS = '^[^\\p{Cc}\\p{Cs}]*$';

/** A partition, namespace or task in a body. */
export const Name = Type.String({
  maxLength: NAME_CHARACTERS_MAX,
  pattern: NO_CONTROL_CHARACTERS,
  refusal: judged(nameFault),
});

/** A queue or a group in a body. */
export const RequiredName = Type.String({
  minLength: 1,
  maxLength: NAME_CHARACTERS_MAX,
  pattern: NO_CONTROL_CHARACTERS,
  refusal: judged(requiredNameFault),
});

export const TransactionId = Type.String({
  minLength: 1,
  maxLength: TRANSACTION_ID_BYTES_MAX,
  pattern: NO_CONTROL_CHARACTERS,
  description: `At most ${TRANSACTION_ID_BYTES_MAX} bytes of UTF-8.`,
  refusal: judged(transactionIdFault),
});

/** An instant that somebody sends: also without a zone (UTC), and as a date alone. */
export const GivenInstant = Type.String({
  format: 'date-time',
  description: 'ISO 8601; UTC without a zone.',
  examples: ['2026-01-31T10:00:00Z'],
  refusal: 'must be an ISO 8601 instant',
});

export const GivenFlag = Type.Boolean({ refusal: 'must be true or false' });

/** Within PostgreSQL's `int` if nothing else is said, and refused outside. */
export function GivenInteger(more: Type.TNumberOptions = {}) {
  const bounds = { minimum: INT_MIN, maximum: INT_MAX, ...more };
  const refusal = `must be an integer between ${bounds.minimum} and ${bounds.maximum}`;
  return Type.Integer({ ...bounds, refusal });
}

/** An integer that is held between two bounds instead of being refused. */
export function HeldInteger(at: { least: number; most: number; absent: number }, about = '') {
  const held = `${about === '' ? '' : `${about} `}Held between ${at.least} and ${at.most}.`;
  return GivenInteger({ default: at.absent, description: held });
}

/** In a query: `name` as a filter, where an empty one is none. */
export const NameFilter = Type.Optional(
  Type.String({ maxLength: NAME_CHARACTERS_MAX, pattern: NO_CONTROL_CHARACTERS }),
);

const QueryInstant = Type.Optional(
  Type.String({ format: 'date-time', description: 'ISO 8601; UTC without a zone. Empty: not given.' }),
);

/** `limit`, of what has no pages. */
export function limitParameter({ limit, most }: PageSize) {
  return { limit: Type.Optional(HeldInteger({ least: 1, most, absent: limit })) };
}

/** `limit` and `offset`. */
export function pageParameters(size: PageSize) {
  return {
    ...limitParameter(size),
    offset: Type.Optional(
      GivenInteger({ default: 0, description: 'Rows to pass over. Below 0 counts as 0.' }),
    ),
  };
}

export const SEARCH_CHARACTERS_MAX = 255;

/** `search`, `sort`, `order`, `limit` and `offset`; the first word is what a list is sorted by unless told otherwise. */
export function listParameters(sorts: readonly [string, ...string[]], size: PageSize) {
  return {
    search: Type.Optional(
      Type.String({
        maxLength: SEARCH_CHARACTERS_MAX,
        description: 'A part of the name, in whatever case. Empty: not given.',
      }),
    ),
    sort: Type.Optional(Word([...sorts, ''])),
    order: Type.Optional(Word(['asc', 'desc', ''])),
    ...pageParameters(size),
  };
}

/** How a page is echoed. */
export const Pagination = Type.Object(
  { limit: Type.Integer(), offset: Type.Integer() },
  { title: 'Pagination' },
);

/** The same where the rows are counted. */
export const TotalledPagination = Type.Object(
  { limit: Count, offset: Count, total: Count },
  { description: 'total: of those that were searched for.' },
);

export const spanParameters = { from: QueryInstant, to: QueryInstant };

export const TimeRange = Type.Object({ from: Instant, to: Instant }, { title: 'TimeRange' });

export const filterParameters = {
  queue: NameFilter,
  namespace: NameFilter,
  ns: NameFilter,
  task: NameFilter,
};
