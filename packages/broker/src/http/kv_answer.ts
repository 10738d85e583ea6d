/** What KV operations came to, as JSON text: stored values are spliced in as they are. */
import type { KvEntry, KvListing, KvPrecondition, KvResult } from '../engine/kv/operations.ts';
import { formatInstant } from '../log/instants.ts';

/** A larger value that stood in the way is not sent along. */
const LOST_VALUE_BYTES_MAX = 4096;

/** The members of a result, without braces. */
export function kvMembers(result: KvResult): string {
  switch (result.op) {
    case 'get': {
      const { entry, key } = result;
      if (entry === null) return `"op":"get","found":false,"key":${JSON.stringify(key)}`;
      return `"op":"get","found":true,${entryMembers(entry)}`;
    }
    case 'getMany':
      return `"op":"getMany","rows":${entryList(result.rows)},"missing":${JSON.stringify(result.missing)},"truncated":${result.truncated}`;
    case 'getPrefix':
      return `"op":"getPrefix","rows":${entryList(result.rows)},"truncated":${result.truncated},"nextAfter":${JSON.stringify(result.nextAfter)}`;
    default: {
      const { op, key, applied, value, version, reason } = result;
      const members = `"op":"${op}","applied":${applied},"key":${JSON.stringify(key)},"value":${value},"version":${version}`;
      return reason === null ? members : `${members},"reason":"${reason}"`;
    }
  }
}

/** What stood in the way of a required write. */
export function preconditionMembers(lost: Pick<KvPrecondition, 'reason' | 'version' | 'value'>): string {
  const members = `"kvReason":"${lost.reason}","version":${lost.version}`;
  const large = lost.value !== null && Buffer.byteLength(lost.value) > LOST_VALUE_BYTES_MAX;
  return large ? members : `${members},"value":${lost.value}`;
}

export function renderListing({ rows, truncated, nextAfter, bytes }: KvListing): string {
  const list = rows.map((row) => `{${entryMembers(row)},"expired":${row.expired}}`).join(',');
  return `{"rows":[${list}],"truncated":${truncated},"nextAfter":${JSON.stringify(nextAfter)},"bytes":${bytes}}`;
}

function entryList(rows: readonly KvEntry[]): string {
  return `[${rows.map((row) => `{${entryMembers(row)}}`).join(',')}]`;
}

function entryMembers({ key, value, version, expiresAtMicros, updatedAtMicros }: KvEntry): string {
  const expires = expiresAtMicros === null ? 'null' : `"${formatInstant(expiresAtMicros)}"`;
  const shown = value === null ? '' : `"value":${value},`;
  return `"key":${JSON.stringify(key)},${shown}"version":${version},"expiresAt":${expires},"updatedAt":"${formatInstant(updatedAtMicros)}"`;
}
