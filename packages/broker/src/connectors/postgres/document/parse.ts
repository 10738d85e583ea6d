/**
 * A connector document, from JSON. Strict everywhere: an unknown field, a value of another type or outside of its range is
 * an error that names its path, since a document that was half understood would move somebody's data.
 *
 * What a read of the API shows can be written back: what the broker adds is dropped. Only the stored form has a sealed
 * password and the broker's own marks.
 */
import {
  type ConnectionDraft,
  type PasswordChange,
  storedConnection,
  writtenConnection,
} from './connection.ts';
import {
  boolean,
  type Check,
  DocumentFault,
  dropped,
  Faults,
  isObject,
  type JsonSchema,
  kindOf,
  type Members,
  object,
  oneOf,
  optional,
  readObject,
  required,
  schemaOf,
  text,
} from './reading.ts';
import { sinkBlock } from './sink.ts';
import { sourceBlock } from './source.ts';
import type { ConnectorDocument } from './types.ts';

export interface WrittenDocument {
  /** Without a password and without the broker's marks. */
  readonly document: ConnectorDocument;
  readonly password: PasswordChange;
}

const kind = oneOf('source', 'sink');
const instant = text((value) => (Number.isNaN(Date.parse(value)) ? 'must be a time' : null));
const deleting = object({ dropSlot: required(boolean), requestedAt: required(instant) });

/** What a read shows and a write throws away. */
const SHOWN_BACK = {
  updatedAt: dropped,
  resyncRequestedAt: dropped,
  deleting: dropped,
  status: dropped,
  state: dropped,
};

/** As somebody sends it. Throws DocumentFault. */
export function parseWritten(body: unknown, name: string): WrittenDocument {
  const faults = new Faults();
  const sameName = text((given) => (given === name ? null : `must be ${name}, as in the path`));
  const given = readObject(
    body,
    '',
    {
      ...blocks(body, name, writtenConnection),
      name: optional(sameName),
      ...SHOWN_BACK,
    },
    faults,
  );
  const document = assemble(given, body, name, faults);
  return { document, password: given.connection!.password };
}

/** JSON Schema of what `parseWritten` takes, as far as a schema can say it. */
export const WRITTEN_SCHEMA: JsonSchema = {
  title: 'ConnectorDocument',
  oneOf: (['source', 'sink'] as const).map((said) => ({
    ...schemaOf({
      kind: required(oneOf(said)),
      enabled: optional(boolean),
      connection: required(writtenConnection),
      ...(said === 'source' ? { source: required(sourceBlock('')) } : { sink: required(sinkBlock('')) }),
      ...SHOWN_BACK,
      name: optional(text(() => null)),
    }),
    title: said === 'source' ? 'SourceDocument' : 'SinkDocument',
  })),
};

/** As it is stored. Throws DocumentFault: it was stored by a broker with other rules, or by hand. */
export function parseStored(json: unknown, name: string): ConnectorDocument {
  const faults = new Faults();
  const given = readObject(
    json,
    '',
    {
      ...blocks(json, name, storedConnection),
      updatedAt: required(instant),
      resyncRequestedAt: optional(instant),
      deleting: optional(deleting),
    },
    faults,
  );
  const document = assemble(given, json, name, faults);
  const mark = given.deleting;
  return {
    ...document,
    updatedAt: given.updatedAt!,
    resyncRequestedAt: given.resyncRequestedAt ?? null,
    deleting: mark === undefined ? null : { dropSlot: mark.dropSlot!, requestedAt: mark.requestedAt! },
  };
}

/** The kind that it says; null when it says none. Good enough for a document that does not parse any more. */
export function kindOfDocument(json: unknown): 'source' | 'sink' | null {
  const said = isObject(json) ? json.kind : null;
  return said === 'source' || said === 'sink' ? said : null;
}

function blocks(body: unknown, name: string, connection: Check<ConnectionDraft>) {
  const said = kindOfDocument(body);
  // A block of the other kind is one fault, at `kind`, whatever is in it.
  return {
    kind: required(kind),
    enabled: optional(boolean),
    connection: required(connection),
    source: said === 'sink' ? dropped : optional(sourceBlock(name)),
    sink: said === 'source' ? dropped : optional(sinkBlock(name)),
  };
}

type Blocks = Members<ReturnType<typeof blocks>>;

/** Throws the first fault of all. */
function assemble(given: Blocks, body: unknown, name: string, faults: Faults): ConnectorDocument {
  if (!isObject(body)) throw new DocumentFault('document', `must be an object, not ${kindOf(body)}`);
  const has = (block: 'source' | 'sink') => body[block] !== undefined && body[block] !== null;
  const other = given.kind === 'source' ? 'sink' : 'source';
  if (given.kind !== undefined && has(other)) {
    faults.add('kind', `is ${given.kind}, so the document must not have the block ${other}`);
  } else if (given.kind !== undefined && !has(given.kind)) {
    faults.add('kind', `is ${given.kind}, so the document must have the block ${given.kind}`);
  }
  if (faults.first !== null) throw faults.first;
  const head = {
    name,
    enabled: given.enabled ?? true,
    connection: given.connection!.settings,
    updatedAt: '',
    resyncRequestedAt: null,
    deleting: null,
  };
  return given.kind === 'source'
    ? { ...head, kind: 'source', source: given.source! }
    : { ...head, kind: 'sink', sink: given.sink! };
}
