/**
 * The partition of a row: its key values as printed. One column stands as it is; several are joined by a vertical bar, with
 * bars and backslashes inside them escaped, and NULL as `\N`. So two rows meet in one partition only if their
 * values are printed alike; of one column alone, the text `\N` and NULL share one.
 */
import { createHash } from 'node:crypto';
import { nameFault } from '../../../log/names.ts';

/** The partition of a source that keeps the order of a whole table. */
export const SINGLE_PARTITION = 'all';

const BYTES_MAX = 128;
const DIGEST_DIGITS = 32;

/** `values`: the texts of the columns, null for NULL; at least one. */
export function partitionName(values: readonly (string | null)[]): string {
  const name =
    values.length === 1
      ? (values[0] ?? '\\N')
      : values.map((value) => value?.replaceAll(/[\\|]/g, '\\$&') ?? '\\N').join('|');
  // Every row must find a partition, whatever its key holds.
  return Buffer.byteLength(name) > BYTES_MAX || nameFault(name, '') !== null
    ? `~${createHash('sha256').update(name).digest('hex').slice(0, DIGEST_DIGITS)}`
    : name;
}
