/** Connectors. What a document may hold is judged by the connectors, and its schema is made of their readers. */
import { Type } from 'typebox';
import { answers, operation } from './operation.ts';
import { Flag, Instant, Nullable, type Schema, Text } from './schemas.ts';

const Name = Type.Object({ name: Type.String() });
const common = { tag: 'Connectors', params: Name } as const;
const named = ['bad_connector_name', 'connector_not_found'] as const;

const Shown = Type.Object(
  {
    name: Text,
    kind: Type.Optional(Text),
    enabled: Type.Optional(Flag),
    connection: Type.Optional(
      Type.Record(Type.String(), Type.Unknown(), { description: 'passwordSet instead of the password.' }),
    ),
    source: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
    sink: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
    updatedAt: Type.Optional(Instant),
    resyncRequestedAt: Type.Optional(Instant),
    deleting: Type.Optional(Type.Object({ dropSlot: Flag, requestedAt: Instant })),
    status: Type.Optional(
      Type.Unsafe<unknown>({
        type: 'object',
        required: ['phase'],
        properties: { phase: { type: 'string' } },
        additionalProperties: true,
        description: "This broker's view.",
      }),
    ),
    state: Type.Optional(
      Nullable(
        Type.Object({
          pointer: Nullable(Type.Record(Type.String(), Type.Unknown())),
          lease: Nullable(Type.Record(Type.String(), Type.Unknown())),
        }),
      ),
    ),
  },
  { title: 'ShownConnector' },
);

export const listConnectors = operation({
  operationId: 'listConnectors',
  tag: 'Connectors',
  summary: 'All connectors',
  answers: { 200: answers('By name.', Type.Object({ connectors: Type.Array(Shown) })) },
});

export const getConnector = operation({
  operationId: 'connector',
  ...common,
  summary: 'One connector',
  answers: { 200: answers('With how it goes.', Shown) },
  refuses: named,
});

/** @param document what the readers of the connectors take */
export function putConnector(document: Schema) {
  return operation({
    operationId: 'putConnector',
    ...common,
    summary: 'Make or replace a connector',
    about: 'The whole document, but for a password that is left out: the stored one is kept then.',
    readBody: document,
    bodyExample: {
      kind: 'source',
      connection: { host: 'db.example', database: 'shop', user: 'queen', password: '…' },
      source: { tables: [{ table: 'public.orders', queue: 'orders' }] },
    },
    answers: { 200: answers('The document as it is stored.', Shown) },
    refuses: [
      'bad_body',
      'bad_connector_name',
      'invalid_connector',
      'egress_refused',
      'encryption_required',
      'kind_change',
      'conflict',
      'document_too_large',
      'seal_failed',
    ],
  });
}

const Removed = Type.Object(
  {
    name: Text,
    deleted: Type.Optional(Flag),
    deleting: Type.Optional(Flag),
    detail: Type.Optional(Text),
    warning: Type.Optional(Text),
  },
  { title: 'ConnectorRemoved' },
);

export const deleteConnector = operation({
  operationId: 'deleteConnector',
  ...common,
  summary: 'Remove a connector',
  parameters: Type.Object({
    dropSlot: Type.Optional(
      Type.Boolean({
        default: true,
        description: 'false: at once, and what it has at the upstream is left.',
      }),
    ),
  }),
  answers: {
    200: answers('It is gone.', Removed),
    202: answers('It is gone when its owner has dropped what it has at the upstream.', Removed),
  },
  refuses: [...named, 'bad_request', 'conflict'],
});

export const resyncConnector = operation({
  operationId: 'resyncConnector',
  ...common,
  summary: 'Start a source anew, with a snapshot',
  answers: {
    202: answers('It will.', Type.Object({ name: Text, resyncRequestedAt: Instant })),
  },
  refuses: [...named, 'not_a_source', 'deleting', 'unreadable_document', 'conflict'],
});
