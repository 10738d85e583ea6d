/** Keys and values. Operations have a reader of their own, which takes values as spans; a test holds it against these. */
import { Type } from 'typebox';
import { KEY_BYTES_MAX, NAMESPACE, PAGE_DEFAULT, TTL_SECONDS_MAX } from '../../engine/kv/check.ts';
import { OPERATIONS_MAX } from '../../engine/kv/kv.ts';
import { answers, operation } from './operation.ts';
import { Count, Flag, Instant, Json, Maybe, Nullable, type Schema, Text, Word } from './schemas.ts';

export const Namespace = Type.String({ pattern: NAMESPACE.source, examples: ['settings'] });
const Key = Type.String({
  minLength: 1,
  maxLength: KEY_BYTES_MAX,
  pattern: '^[^\\u0000\\p{Cs}]*$',
  description: `At most ${KEY_BYTES_MAX} bytes of UTF-8.`,
  examples: ['mode'],
});
const Cursor = Type.String({ maxLength: KEY_BYTES_MAX, pattern: '^[^\\u0000\\p{Cs}]*$' });
const Expect = Type.Integer({
  minimum: 0,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'The version that must live there; 0: nothing may.',
});
const Value = Type.Unknown({ description: 'Any JSON, null included.' });
const ttlSeconds = Type.Integer({
  minimum: 1,
  maximum: TTL_SECONDS_MAX,
  description: 'Seconds that it lives. Exactly one of ttlSeconds and forever: true.',
});
const life = { ttlSeconds: Maybe(ttlSeconds), forever: Maybe(Flag) };
const LIVES = [
  { required: ['ttlSeconds'], properties: { ttlSeconds, forever: { enum: [false, null] } } },
  { required: ['forever'], properties: { forever: { const: true }, ttlSeconds: { type: 'null' } } },
];
const required = Maybe(
  Type.Boolean({ default: false, description: 'When it is not applied, nothing of the call is.' }),
);
const limit = Maybe(
  Type.Number({ default: PAGE_DEFAULT, description: 'Rows; held between 1 and QUEEN_KV_PREFIX_LIMIT.' }),
);

function op<P extends Record<string, Schema>>(name: string, title: string, fields: P, more: object = {}) {
  return Type.Object(
    { op: Type.Literal(name), ns: Namespace, ...fields },
    { title, additionalProperties: false, ...more },
  );
}

const reads = [
  op('get', 'KvGet', { key: Key }),
  op('getMany', 'KvGetMany', { keys: Type.Array(Key, { minItems: 1 }) }),
];
const getPrefix = op('getPrefix', 'KvGetPrefix', {
  prefix: Key,
  after: Maybe(Cursor),
  limit,
  keysOnly: Maybe(Flag),
});
const writes = [
  op(
    'put',
    'KvPut',
    { key: Key, value: Value, ...life, expect: Type.Optional(Expect), required },
    { oneOf: LIVES },
  ),
  op('putIfAbsent', 'KvPutIfAbsent', { key: Key, value: Value, ...life, required }, { oneOf: LIVES }),
  op('delete', 'KvDelete', { key: Key, expect: Type.Optional(Expect), required }),
  op(
    'incr',
    'KvIncr',
    {
      key: Key,
      delta: Type.Number({ description: 'Its digits are kept, however many.' }),
      min: Maybe(Type.Number()),
      max: Maybe(Type.Number()),
      ...life,
      required,
    },
    { oneOf: LIVES },
  ),
];

/** What a transaction takes. */
export const RidingKvOperation = Type.Unsafe<unknown>({ oneOf: [...reads, ...writes] });
export const KvOperation = Type.Unsafe<unknown>({
  oneOf: [...reads, getPrefix, ...writes],
  title: 'KvOperation',
});

const entry = {
  key: Text,
  value: Type.Optional(Json),
  version: Type.Integer({ description: 'For comparing only.' }),
  expiresAt: Nullable(Instant),
  updatedAt: Instant,
};
const Rows = Type.Array(Type.Object(entry, { title: 'KvEntry' }));

export const kvResultMembers = {
  op: Text,
  found: Type.Optional(Flag),
  applied: Type.Optional(Flag),
  key: Type.Optional(Text),
  value: Type.Optional(Json),
  version: Type.Optional(Type.Integer({ description: 'For comparing only. 0: nothing is there.' })),
  expiresAt: Type.Optional(Nullable(Instant)),
  updatedAt: Type.Optional(Instant),
  reason: Type.Optional(
    Word(['exists', 'absent', 'version', 'limit', 'type'], { description: 'Why it was not applied.' }),
  ),
  rows: Type.Optional(Rows),
  missing: Type.Optional(Type.Array(Text)),
  truncated: Type.Optional(Flag),
  nextAfter: Type.Optional(Nullable(Text)),
};
const KvResult = Type.Object({ index: Count, ...kvResultMembers }, { title: 'KvResult' });

export const preconditionMembers = {
  ok: Type.Literal(false),
  reason: Type.Literal('kv_precondition'),
  failedIndex: Count,
  kvReason: Text,
  version: Type.Integer(),
  value: Type.Optional(Json),
};

/** `error` is one of the codes, never a sentence. */
export const CodedRefusal = Type.Object(
  {
    error: Type.String({ description: 'A stable word.' }),
    code: Text,
    reason: Type.Optional(Type.String({ description: 'A finer word.' })),
    message: Type.Optional(Text),
    field: Type.Optional(Text),
  },
  { title: 'CodedRefusal' },
);

const refuses = [
  'kv_bad_request',
  'payload_too_large',
  'kv_quota_exceeded',
  'feature_gated',
  'rate_limited',
  'kv_disabled',
  'kv_unavailable',
  'kv_failed',
] as const;
const common = { tag: 'Keys and values', refusal: CodedRefusal, memory: true } as const;

export const kvBatch = operation({
  operationId: 'kv',
  ...common,
  summary: 'A batch of operations',
  about: `Up to ${OPERATIONS_MAX} of them, in one transaction. A write whose condition was lost is a result, and the others happen all the same, unless it says required.`,
  readBody: Type.Object(
    { operations: Type.Array(KvOperation, { maxItems: OPERATIONS_MAX }) },
    { title: 'KvBatch' },
  ),
  bodyExample: {
    operations: [
      { op: 'put', ns: 'settings', key: 'mode', value: { dry: true }, ttlSeconds: 3600 },
      { op: 'get', ns: 'settings', key: 'mode' },
    ],
  },
  answers: {
    200: answers(
      'One result an operation, or the required condition that was lost.',
      Type.Union([
        Type.Object({ results: Type.Array(KvResult) }, { title: 'KvResults' }),
        Type.Object(preconditionMembers, { title: 'KvPrecondition' }),
      ]),
      {
        results: [
          { index: 0, op: 'put', applied: true, key: 'mode', value: { dry: true }, version: 3 },
          {
            index: 1,
            op: 'get',
            found: true,
            key: 'mode',
            value: { dry: true },
            version: 3,
            expiresAt: '2026-01-31T11:02:54.309490Z',
            updatedAt: '2026-01-31T10:02:54.309490Z',
          },
        ],
      },
    ),
  },
  refuses: [...refuses, 'kv_reserved_namespace'],
});

const place = Type.Object({
  ns: Namespace,
  key: Type.String({ ...Key, description: 'The rest of the path, slashes included; a "?" in it is %3F.' }),
});
const one = { ...common, place };
const result = answers('The result, also for a lost race or a missing key.', KvResult);

export const kvGet = operation({
  operationId: 'kvGet',
  ...one,
  summary: 'Read a key',
  answers: { 200: { ...result, headers: { ETag: 'The version, when there is a value.' } } },
  refuses,
});

export const kvPut = operation({
  operationId: 'kvPut',
  ...one,
  summary: 'Write a key',
  readBody: Type.Object(
    { value: Value, ...life, expect: Type.Optional(Expect) },
    { title: 'KvPutBody', additionalProperties: false, oneOf: LIVES },
  ),
  bodyExample: { value: { dry: true }, ttlSeconds: 3600 },
  answers: { 200: result },
  refuses: [...refuses, 'kv_reserved_namespace'],
});

export const kvDelete = operation({
  operationId: 'kvDelete',
  ...one,
  summary: 'Delete a key',
  readBody: Type.Object(
    { expect: Type.Optional(Expect) },
    { title: 'KvDeleteBody', additionalProperties: false },
  ),
  noBodyIsEmpty: true,
  answers: { 200: result },
  refuses: [...refuses, 'kv_reserved_namespace'],
});

export const kvNamespaces = operation({
  operationId: 'kvNamespaces',
  ...common,
  summary: 'Namespaces and how many keys they have',
  answers: {
    200: answers(
      'By name; expired keys that are not swept yet count.',
      Type.Object({ namespaces: Type.Array(Type.Object({ namespace: Text, keys: Count })) }),
    ),
  },
  refuses,
});

export const kvList = operation({
  operationId: 'kvList',
  ...common,
  summary: 'Page through a namespace',
  readBody: Type.Object(
    {
      namespace: Namespace,
      prefix: Maybe(Type.String({ ...Cursor, default: '' })),
      after: Maybe(Cursor),
      limit,
      keysOnly: Maybe(Flag),
      includeExpired: Maybe(Flag),
    },
    { title: 'KvListing' },
  ),
  bodyExample: { namespace: 'settings', limit: 100 },
  answers: {
    200: answers(
      'By key.',
      Type.Object(
        {
          rows: Type.Array(Type.Object({ ...entry, expired: Flag })),
          truncated: Flag,
          nextAfter: Nullable(Text),
          bytes: Type.Integer({ description: 'Of the values.' }),
        },
        { title: 'KvPage' },
      ),
    ),
  },
  refuses,
});
