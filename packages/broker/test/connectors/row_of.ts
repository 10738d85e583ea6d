import { Buffer } from 'node:buffer';
import type { Tuple } from '../../src/connectors/postgres/replication/pgoutput.ts';
import { rowOfBytes } from '../../src/connectors/postgres/source/rows.ts';

/** A row of texts, as a query returns it. */
export function rowOf(values: readonly (string | null)[]): Tuple {
  const all = Buffer.from(values.join(''));
  let at = 0;
  return rowOfBytes(
    values.map((value) => {
      if (value === null) return null;
      const from = at;
      at += Buffer.byteLength(value);
      return all.subarray(from, at);
    }),
  );
}
