import { Buffer } from 'node:buffer';
import type { Tuple } from '../../src/connectors/postgres/replication/pgoutput.ts';
import { rowOfBytes } from '../../src/connectors/postgres/source/rows.ts';

/** The cells of a row as a session returns their bytes: all in one piece of memory. */
export function cellsOf(values: readonly (string | null)[]): (Buffer | null)[] {
  const all = Buffer.from(values.join(''));
  let at = 0;
  return values.map((value) => {
    if (value === null) return null;
    const from = at;
    at += Buffer.byteLength(value);
    return all.subarray(from, at);
  });
}

/** A row of texts, as a query returns it. */
export function rowOf(values: readonly (string | null)[]): Tuple {
  return rowOfBytes(cellsOf(values));
}
