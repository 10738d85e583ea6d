/** Reads by offset. */
import { Type } from 'typebox';
import { DEFAULT_PARTITION } from '../../engine/types.ts';
import { answers, operation } from './operation.ts';
import {
  Count,
  GivenInstant,
  Instant,
  Json,
  Maybe,
  Name,
  Nullable,
  RequiredName,
  type Schema,
  Text,
  Word,
} from './schemas.ts';

export const FETCH = {
  entriesMax: 1_024,
  changedEntriesMax: 64,
  entryBytes: 1024 * 1024,
  entryBytesMax: 8 * 1024 * 1024,
  waitMsMax: 30_000,
  page: 1_000,
};

function Entries<T extends Schema>(entry: T, most: number) {
  return Type.Array(entry, {
    maxItems: most,
    refusal: (value: unknown, field: string) =>
      `${field} must be ${Array.isArray(value) ? `at most ${most}` : 'an array'}`,
  });
}

/** An integer that counts as the nearest one between two bounds. */
const held = (least: number, most: number, absent: number, about: string) =>
  Maybe(
    Type.Integer({
      default: absent,
      description: `${about} Held between ${least} and ${most}.`,
      refusal: 'must be an integer',
    }),
  );

const lane = {
  queue: RequiredName,
  partition: Maybe(Type.Union([Type.String({ ...Name, default: DEFAULT_PARTITION }), Type.Number()])),
};
const objectRefusal = { refusal: 'must be an object' };
const ends = {
  highWatermark: Type.Integer({ description: 'Offset of the next message; -1: unknown.' }),
  logStartOffset: Type.Integer({ description: 'Oldest offset that is retained; -1: unknown.' }),
  error: Type.Optional(Word(['UNKNOWN_TOPIC_OR_PARTITION', 'OFFSET_OUT_OF_RANGE', 'CORRUPT_MESSAGE'])),
};

export const fetchRecords = operation({
  operationId: 'fetch',
  tag: 'Reading by offset',
  summary: 'Read from offsets',
  about: 'Delays and leases do not apply. One record always comes, however large.',
  body: Type.Object(
    {
      entries: Entries(
        Type.Object(
          {
            ...lane,
            offset: Type.Integer({
              minimum: 0,
              maximum: Number.MAX_SAFE_INTEGER,
              refusal: 'must be an integer, at least 0',
            }),
            maxBytes: held(1, FETCH.entryBytesMax, FETCH.entryBytes, 'Of payloads.'),
          },
          { title: 'FetchEntry', ...objectRefusal },
        ),
        FETCH.entriesMax,
      ),
      maxWaitMs: held(0, FETCH.waitMsMax, 0, 'How long to wait for minBytes.'),
      minBytes: held(1, Number.MAX_SAFE_INTEGER, 1, 'Of payloads.'),
    },
    { title: 'Fetch', ...objectRefusal },
  ),
  bodyExample: { entries: [{ queue: 'orders', partition: 'customer-7', offset: 1 }], maxWaitMs: 1000 },
  answers: {
    200: answers(
      'One element an entry, in order.',
      Type.Object(
        {
          entries: Type.Array(
            Type.Object({
              queue: Text,
              partition: Text,
              records: Type.Array(
                Type.Object(
                  { offset: Count, transactionId: Text, payload: Json, ts: Instant },
                  { title: 'FetchedRecord' },
                ),
              ),
              ...ends,
            }),
          ),
        },
        { title: 'Fetched' },
      ),
      {
        entries: [
          {
            queue: 'orders',
            partition: 'customer-7',
            records: [
              {
                offset: 1,
                transactionId: 'order-2',
                payload: { total: 3 },
                ts: '2026-01-31T10:02:54.321489Z',
              },
            ],
            highWatermark: 2,
            logStartOffset: 0,
          },
        ],
      },
    ),
  },
  refuses: ['bad_body'],
});

export const fetchOffsets = operation({
  operationId: 'fetchOffsets',
  tag: 'Reading by offset',
  summary: 'Find offsets by time',
  body: Type.Object(
    {
      entries: Entries(
        Type.Object(
          {
            ...lane,
            timestamp: Type.String({
              ...GivenInstant,
              refusal: (value: unknown, field: string) =>
                `${field} ${value == null ? 'is missing' : 'must be an ISO 8601 instant'}`,
            }),
          },
          { title: 'OffsetsEntry', ...objectRefusal },
        ),
        FETCH.entriesMax,
      ),
    },
    { title: 'FetchOffsets', ...objectRefusal },
  ),
  bodyExample: { entries: [{ queue: 'orders', partition: 'customer-7', timestamp: '2026-01-31T10:00:00Z' }] },
  answers: {
    200: answers(
      'The first message at or after each instant; null: there is none.',
      Type.Object({
        entries: Type.Array(
          Type.Object({
            queue: Text,
            partition: Text,
            offset: Nullable(Count),
            ts: Nullable(Instant),
            ...ends,
          }),
        ),
      }),
    ),
  },
  refuses: ['bad_body'],
});

export const changedPartitions = operation({
  operationId: 'changedPartitions',
  tag: 'Reading by offset',
  summary: 'Partitions written since an instant',
  about: 'Nothing older than `safeTime` can still appear: read up to there, and begin the next round there.',
  body: Type.Object(
    {
      entries: Entries(
        Type.Object(
          {
            queue: RequiredName,
            since: Maybe(Type.String({ ...GivenInstant, description: 'None: all partitions, by name.' })),
            after: Maybe(
              Type.String({ description: 'The `next` of the page before.', refusal: 'must be a string' }),
            ),
            limit: held(1, FETCH.page, FETCH.page, 'Partitions.'),
          },
          { title: 'ChangedEntry', ...objectRefusal },
        ),
        FETCH.changedEntriesMax,
      ),
    },
    { title: 'ChangedPartitions', ...objectRefusal },
  ),
  bodyExample: { entries: [{ queue: 'orders', since: '2026-01-31T10:00:00Z' }] },
  answers: {
    200: answers(
      'One element an entry, in order.',
      Type.Object({
        safeTime: Instant,
        safeTimeDegraded: Type.Boolean({ description: 'It is a guess, far on the safe side.' }),
        entries: Type.Array(
          Type.Object({
            queue: Text,
            partitions: Type.Optional(
              Type.Array(
                Type.Object({
                  name: Text,
                  lastOffset: Type.Integer(),
                  logStart: Type.Integer(),
                  lastWriteAt: Instant,
                }),
              ),
            ),
            next: Type.Optional(Nullable(Text)),
            error: Type.Optional(Word(['UNKNOWN_TOPIC_OR_PARTITION', 'BAD_CURSOR'])),
          }),
        ),
      }),
    ),
  },
  refuses: ['bad_body'],
});
