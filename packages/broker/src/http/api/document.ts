/**
 * The OpenAPI document. It takes JSON Schema as it stands, so the schemas of the routes go in unchanged: those that validate
 * requests are the ones that are shown. A schema with a title becomes a component.
 */

import { accessOf, LEVEL_ROLES } from '../access/levels.ts';
import type { Route } from '../app.ts';
import { FAULTS, type FaultCode } from '../errors.ts';
import type { Level } from '../identity.ts';
import { type Answer, type Operation, TAGS } from './operation.ts';

type Json = Record<string, unknown>;

const VALIDATED = ['bad_body', 'body_too_large', 'request_timeout', 'unsupported_encoding'] as const;
const DATABASE: readonly FaultCode[] = ['pool', 'unavailable', 'in_doubt', 'internal'];
const UNKNOWN_TOKEN = (Object.keys(FAULTS) as FaultCode[]).filter((code) => FAULTS[code].status === 401);
const REFUSED_CALLER: readonly FaultCode[] = [...UNKNOWN_TOKEN, 'forbidden', 'cross_site'];

const ABOUT = `JSON in, JSON out; a request body needs no \`Content-Type\`, and unknown members and parameters are ignored except where a schema says otherwise.

An error is \`{"error", "code"}\`, with \`field\` when one is to blame: \`code\` is a stable word. 4xx: the request has to change, but for 429 (try again shortly). 5xx: the broker or its database has trouble; with \`"code": "in_doubt"\` nobody knows whether it was carried out. Any route may also answer 408, 417, 431 and 500.

When the broker asks for tokens, \`x-queen-access\` says which roles a route takes; otherwise every route is open, but not to pages of other sites (403 \`cross_site\`).`;

/** The words of a failure that has nothing finer to say. */
const Refused = {
  type: 'object',
  title: 'Refused',
  required: ['error', 'code'],
  properties: {
    error: { type: 'string', description: 'A sentence.' },
    code: { type: 'string', description: 'A stable word.' },
    field: { type: 'string', description: 'What is to blame.' },
  },
} as const;

/**
 * The document of these routes; pages that are no part of the interface are left out.
 *
 * @param version of the broker
 */
export function openApiDocument(routes: readonly Route[], version: string): Json {
  const components = new Components();
  const paths: Record<string, Json> = {};
  for (const { method, path, operation } of routes) {
    if (operation === undefined || method === 'HEAD') continue;
    const shown = documentPath(path, operation);
    paths[shown] ??= {};
    paths[shown][method.toLowerCase()] = renderOperation(method, path, operation, components);
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Queen',
      version,
      summary: 'A partitioned message queue on PostgreSQL',
      description: ABOUT,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'This broker.' }],
    tags: Object.entries(TAGS)
      .filter(([name]) => routes.some(({ operation }) => operation?.tag === name))
      .map(([name, description]) => ({ name, description })),
    security: [{ token: [] }],
    paths,
    components: {
      securitySchemes: {
        token: {
          type: 'http',
          scheme: 'bearer',
          bearerFormat: 'JWT',
          description: 'Only where the broker asks for one.',
        },
      },
      parameters: {
        Tenant: {
          name: 'x-queen-tenant',
          in: 'header',
          schema: { type: 'string', format: 'uuid' },
          description: 'Only where the broker takes tenants from it. Without one: the default tenant.',
        },
      },
      schemas: components.schemas,
      responses: components.responses,
    },
  };
}

/** `/api/v1/kv/{ns}/{key}` of `/api/v1/kv/:ns/*`: the last name of its place is the rest of the path. */
export function documentPath(path: string, { place }: Operation): string {
  const rest = place === undefined ? undefined : Object.keys(place.properties).at(-1);
  return path
    .split('/')
    .map((part) => (part === '*' ? `{${rest}}` : part.replace(/^:(.+)$/, '{$1}')))
    .join('/');
}

function renderOperation(method: string, path: string, operation: Operation, components: Components): Json {
  const { operationId, tag, summary, about, noBodyIsEmpty, bodyExample } = operation;
  const { level, tenant } = accessOf(method, path);
  const parameters = [
    ...renderParameters('path', operation.place ?? operation.params, components),
    ...renderParameters('query', operation.parameters, components),
    ...(tenant ? [{ $ref: '#/components/parameters/Tenant' }] : []),
  ];
  const body = operation.readBody ?? operation.body;
  return {
    operationId,
    tags: [tag],
    summary,
    ...(about === undefined ? {} : { description: about }),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined
      ? {}
      : {
          requestBody: {
            required: noBodyIsEmpty !== true,
            ...(noBodyIsEmpty === true
              ? {
                  description: `None${operation.body === undefined ? ' says' : ', and null, say'} the same as \`{}\`.`,
                }
              : {}),
            content: {
              'application/json': {
                schema: components.schemaOf(body),
                ...(bodyExample === undefined ? {} : { example: bodyExample }),
              },
            },
          },
        }),
    responses: renderAnswers(operation, level, tenant, components),
    ...(level === 'public' ? { security: [] } : {}),
    'x-queen-access': level,
    'x-queen-roles': level === 'public' ? [] : [...LEVEL_ROLES[level]],
  };
}

function renderParameters(where: 'path' | 'query', of: Operation['params'], components: Components): Json[] {
  if (of === undefined) return [];
  const { properties, required = [] } = of as unknown as {
    properties: Record<string, Json>;
    required?: string[];
  };
  return Object.entries(properties).map(([name, schema]) => {
    const { description, ...rest } = components.inline(schema) as Json;
    return {
      name,
      in: where,
      required: where === 'path' || required.includes(name),
      ...(description === undefined ? {} : { description }),
      schema: rest,
    };
  });
}

function renderAnswers(operation: Operation, level: Level, tenant: boolean, components: Components): Json {
  const responses: Json = {};
  for (const [status, answer] of Object.entries(operation.answers)) {
    responses[status] = renderAnswer(answer, components);
  }
  for (const [status, codes] of refusalsOf(operation, level, tenant)) {
    const answered = responses[status] as Json | undefined;
    const own = codes.filter((code) => operation.refuses?.includes(code));
    responses[status] =
      answered === undefined && own.length === 0
        ? components.responseOf(codes, () =>
            renderRefusal(status, codes, [], operation, undefined, components),
          )
        : renderRefusal(status, codes, own, operation, answered, components);
  }
  return responses;
}

function renderAnswer({ description, schema, example, type, headers }: Answer, components: Components): Json {
  return {
    description,
    ...(headers === undefined ? {} : { headers: renderHeaders(headers) }),
    ...(schema === null
      ? {}
      : {
          content: {
            [type ?? 'application/json']: {
              schema: components.schemaOf(schema),
              ...(example === undefined ? {} : { example }),
            },
          },
        }),
  };
}

function renderHeaders(headers: Readonly<Record<string, string>>): Json {
  return Object.fromEntries(
    Object.entries(headers).map(([name, description]) => [name, { description, schema: { type: 'string' } }]),
  );
}

/** By status, what may be refused with it. */
function refusalsOf(operation: Operation, level: Level, tenant: boolean): [number, FaultCode[]][] {
  const codes = new Set<FaultCode>(operation.refuses ?? []);
  const hasPlace = operation.place !== undefined || operation.params !== undefined;
  if (hasPlace) codes.add('malformed_url');
  if (operation.readBody !== undefined || operation.body !== undefined) {
    for (const code of VALIDATED) if (code !== 'bad_body' || operation.refusal === undefined) codes.add(code);
  }
  if (level !== 'public') for (const code of REFUSED_CALLER) codes.add(code);
  if (tenant) codes.add('bad_tenant');
  if (operation.memory !== true) for (const code of DATABASE) codes.add(code);
  const byStatus = new Map<number, FaultCode[]>();
  for (const code of codes) {
    const { status } = FAULTS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return [...byStatus].sort(([a], [b]) => a - b);
}

/** A status may be both: what the route answers with it, and a refusal. */
function renderRefusal(
  status: number,
  codes: readonly FaultCode[],
  own: readonly FaultCode[],
  operation: Operation,
  answered: Json | undefined,
  components: Components,
): Json {
  const shapes: unknown[] = [];
  if (operation.refusal !== undefined && own.length > 0) shapes.push(components.schemaOf(operation.refusal));
  if (operation.refusal === undefined || own.length < codes.length) shapes.push(components.schemaOf(Refused));
  const before = (answered?.content as Record<string, { schema: unknown }> | undefined)?.['application/json'];
  if (before !== undefined) shapes.unshift(before.schema);
  const schema = shapes.length === 1 ? shapes[0] : { anyOf: shapes };
  const sentences = codes.map((code) => `\`${code}\`: ${FAULTS[code].sentence}.`);
  const text = answered === undefined ? sentences : [String(answered.description), ...sentences];
  const content: Json = { 'application/json': { schema } };
  if (status === 413) content['text/plain'] = { schema: { type: 'string' } };
  return {
    description: text.join('\n\n'),
    ...(status === 429 || status === 503
      ? { headers: renderHeaders({ 'Retry-After': 'Seconds to wait before the next try.' }) }
      : {}),
    content,
    'x-queen-codes': codes,
  };
}

/** Schemas, copied without what only the validator needs; one with a title once, and by reference from then on. */
class Components {
  readonly schemas: Record<string, Json> = {};
  readonly responses: Record<string, Json> = {};
  readonly #sources = new Map<string, object>();

  schemaOf(schema: unknown): unknown {
    if (Array.isArray(schema)) return schema.map((each) => this.schemaOf(each));
    if (typeof schema !== 'object' || schema === null) return schema;
    const { title } = schema as { title?: unknown };
    if (typeof title !== 'string') return this.#members(schema);
    const source = this.#sources.get(title);
    if (source === undefined) {
      this.#sources.set(title, schema);
      this.schemas[title] = this.#members(schema);
    } else if (source !== schema) throw new Error(`two schemas are called ${title}`);
    return { $ref: `#/components/schemas/${title}` };
  }

  /** What many routes refuse in the same way, once. */
  responseOf(codes: readonly string[], render: () => Json): Json {
    const name = codes
      .map((code) => code.replaceAll(/(?:^|_)([a-z])/g, (_, letter) => letter.toUpperCase()))
      .join('_');
    this.responses[name] ??= render();
    return { $ref: `#/components/responses/${name}` };
  }

  /** Never by reference. */
  inline(schema: object): Json {
    return this.#members(schema);
  }

  #members(schema: object): Json {
    const members: Json = {};
    for (const [key, value] of Object.entries(schema)) {
      if (key === 'refusal') continue;
      members[key] =
        key === 'properties' || key === 'patternProperties'
          ? Object.fromEntries(
              Object.entries(value as Json).map(([name, each]) => [name, this.schemaOf(each)]),
            )
          : LITERAL.has(key)
            ? value
            : this.schemaOf(value);
    }
    return members;
  }
}

/** Keywords whose values are no schemas. */
const LITERAL: ReadonlySet<string> = new Set(['default', 'examples', 'enum', 'const', 'required']);
