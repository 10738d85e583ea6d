/**
 * What a route takes and answers. It is the route's `schema`: Fastify validates `params` and `body` with it, and the OpenAPI
 * document is made of it.
 */
import type { Type } from 'typebox';
import type { FaultCode } from '../errors.ts';
import type { Schema } from './schemas.ts';

/** The sections of the document, in its order. */
export const TAGS = {
  Messages: 'Push, pop and acknowledge.',
  Queues: 'Make, change, look at and delete queues.',
  'Consumer groups': 'How far groups are, and how they are moved.',
  Transactions: 'Pushes, acks, keys and timers that happen together or not at all.',
  'Keys and values': 'JSON values under a namespace and a key, with a version and a life.',
  Timers: 'Messages that are pushed later.',
  'Dead letters': 'What failed for good.',
  Lookup: 'Messages as a person wants to see them, and notes about them.',
  'Reading by offset': 'For programs that copy a queue: no group, no lease, no cursor.',
  Statistics: 'What stands where, and what has passed.',
  Connectors: 'Tables of PostgreSQL into queues, and queues into tables.',
  Operation: 'Maintenance, switches, probes and metrics.',
  Access: 'Who is calling.',
} as const;

type Tag = keyof typeof TAGS;

export interface Answer {
  readonly description: string;
  /** Null: no body. */
  readonly schema: Schema | null;
  readonly example?: unknown;
  /** Default `application/json`. */
  readonly type?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Operation {
  /** Unique; what a generated client calls it. */
  readonly operationId: string;
  readonly tag: Tag;
  readonly summary: string;
  readonly about?: string;
  /** Path segments; Fastify validates them. */
  readonly params?: Type.TObject;
  /** The same where Fastify does not: hot routes, and `*`, which stands for the last one. */
  readonly place?: Type.TObject;
  /** The query; read by `Query`, which knows no other parameter. */
  readonly parameters?: Type.TObject;
  /** Fastify validates it. */
  readonly body?: Schema;
  /** A body that has a reader of its own. */
  readonly readBody?: Schema;
  /** No body, and JSON null, say the same as `{}`. */
  readonly noBodyIsEmpty?: true;
  readonly bodyExample?: unknown;
  readonly answers: Readonly<Record<number, Answer>>;
  /** What it refuses, besides what every route of its kind does. */
  readonly refuses?: readonly FaultCode[];
  /** Schema of these refusals; default: the plain envelope. */
  readonly refusal?: Schema;
  /** Asks nothing of the database. */
  readonly memory?: boolean;
}

/** The members of an operation stand beside what Fastify calls a schema. */
declare module 'fastify' {
  interface FastifySchema extends Partial<Omit<Operation, 'params' | 'body'>> {}
}

/** The operation with its exact types, so that Fastify's handlers know what they get. */
export function operation<const O extends Operation>(given: O): O {
  return given;
}

/** An answer of JSON. */
export function answers(description: string, schema: Schema, example?: unknown): Answer {
  return example === undefined ? { description, schema } : { description, schema, example };
}
