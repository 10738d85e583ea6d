/** Keys and values. Values are JSON text from end to end. */
import { get, post } from './client.ts';
import type { RawJson } from './json_text.ts';

export interface Namespace {
  namespace: string;
  /** Expired ones that are not swept yet among them. */
  keys: number;
}

export const listNamespaces = async (signal: AbortSignal): Promise<Namespace[]> =>
  (await get<{ namespaces: Namespace[] }>('/api/v1/resources/kv/namespaces', { signal })).namespaces;

export interface Entry {
  key: string;
  value: RawJson;
  version: number;
  /** Null: it stays. */
  expiresAt: string | null;
  updatedAt: string;
}

export interface EntryPage {
  rows: Entry[];
  /** Null: this is the last page. */
  nextAfter: string | null;
}

/** By key, in byte order. */
export const listEntries = (
  namespace: string,
  page: { prefix: string; after: string; limit: number },
  signal?: AbortSignal,
) =>
  post<EntryPage>('/api/v1/resources/kv/list', {
    body: { namespace, ...page, after: page.after === '' ? null : page.after },
    raw: ['value'],
    signal,
  });

/** Null: there is none. By a list, since its own path cannot hold every key (a browser takes `..` away). */
export async function getEntry(namespace: string, key: string, signal?: AbortSignal): Promise<Entry | null> {
  const { rows } = await listEntries(namespace, { prefix: key, after: '', limit: 1 }, signal);
  return rows[0]?.key === key ? rows[0] : null;
}

export type Life = { forever: true } | { ttlSeconds: number };

export interface Written {
  /** False: another version lives there, and nothing was written. */
  applied: boolean;
  /** Of what lives there now, or was deleted; 0: nothing does. */
  version: number;
  value: RawJson;
}

/** Writes if `expect` is the version that lives there; 0: if nothing does. `value` is valid JSON text, and sent as it is. */
export async function putEntry(
  at: { namespace: string; key: string },
  value: string,
  life: Life,
  expect: number,
): Promise<Written> {
  const head = JSON.stringify({ op: 'put', ns: at.namespace, key: at.key, expect, ...life }).slice(0, -1);
  return first(
    await post<Results>('/api/v1/kv', { text: `{"operations":[${head},"value":${value}}]}`, raw: ['value'] }),
  );
}

export async function deleteEntry(at: { namespace: string; key: string }, expect: number): Promise<Written> {
  const operation = { op: 'delete', ns: at.namespace, key: at.key, expect };
  return first(await post<Results>('/api/v1/kv', { body: { operations: [operation] }, raw: ['value'] }));
}

interface Results {
  results: Written[];
}

const first = ({ results }: Results): Written => results[0]!;
