/** A document as JSON: the stored form with the sealed password, and the form that is shown, without any. */
import { printTable } from './names.ts';
import type { ConnectionSettings, ConnectorDocument, SinkSettings, SourceSettings } from './types.ts';

/** What `parseStored` reads. */
export function renderStored(document: ConnectorDocument): Record<string, unknown> {
  const { passwordSealed } = document.connection;
  return {
    ...renderBlocks(document, passwordSealed === null ? {} : { passwordSealed }),
    ...marks(document),
  };
}

/** What the API shows. Neither the password nor its sealed form are in it. */
export function renderShown(document: ConnectorDocument): Record<string, unknown> {
  const passwordSet = document.connection.passwordSealed !== null;
  return { name: document.name, ...renderBlocks(document, { passwordSet }), ...marks(document) };
}

function renderBlocks(document: ConnectorDocument, password: object): Record<string, unknown> {
  const { kind, enabled, connection } = document;
  return {
    kind,
    enabled,
    connection: renderConnection(connection, password),
    ...(document.kind === 'source'
      ? { source: renderSource(document.source) }
      : { sink: renderSink(document.sink) }),
  };
}

function marks({ updatedAt, resyncRequestedAt, deleting }: ConnectorDocument) {
  return {
    updatedAt,
    ...(resyncRequestedAt === null ? {} : { resyncRequestedAt }),
    ...(deleting === null ? {} : { deleting }),
  };
}

function renderConnection(connection: ConnectionSettings, password: object) {
  const { host, port, database, user, sslMode, sslRootCert, connectTimeoutMs } = connection;
  return {
    host,
    port,
    database,
    user,
    ...password,
    sslMode,
    ...(sslRootCert === null ? {} : { sslRootCert }),
    connectTimeoutMs,
  };
}

function renderSource({ tables, ...rest }: SourceSettings) {
  const rendered = tables.map(({ schema, table, queue, partitionBy }) => ({
    table: printTable({ schema, table }),
    queue,
    partitionBy,
  }));
  return { tables: rendered, ...rest };
}

function renderSink(sink: SinkSettings) {
  const { schema, table, key, statement, params, metadata, progressTable, ...rest } = sink;
  return {
    ...rest,
    table: printTable({ schema, table }),
    ...(key === null ? {} : { key }),
    ...(statement === null ? {} : { statement, params }),
    ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
    progressTable: printTable(progressTable),
  };
}
