import type { Output } from '../output/output.ts';
import type { Column } from '../output/table.ts';

/** Prints the first of many, and says when there are more. @param limit 0: all */
export async function limited<T>(
  out: Output,
  items: AsyncIterable<T>,
  limit: number,
  columns: readonly Column<T>[],
  none: string,
): Promise<void> {
  const rows: T[] = [];
  let more = false;
  for await (const item of items) {
    more = limit > 0 && rows.length === limit;
    if (more) break;
    rows.push(item);
  }
  out.rows(rows, columns, none);
  if (more) out.note(`the first ${limit}; --limit 0 shows all`);
}
