/** A table of what the broker lists as a whole: narrowed by a part of the name, in pages, both kept in the address. */
import type { VNode } from 'preact';
import { useSearch } from '../router.ts';
import { NameFilter } from './filter.tsx';
import { useOffset } from './list.tsx';
import { Empty } from './page.tsx';
import { type Column, PagedTable } from './table.tsx';

const LIMIT = 50;

interface WholeListProps<Row> {
  caption: string;
  columns: readonly Column<Row>[];
  all: readonly Row[];
  nameOf: (row: Row) => string;
  /** Of what it lists: `connector`. */
  noun: string;
  /** Instead of a table when there is nothing at all. */
  none: VNode;
}

export function WholeList<Row>({ caption, columns, all, nameOf, noun, none }: WholeListProps<Row>) {
  const [search] = useSearch();
  const [offset, onOffset] = useOffset();
  const wanted = search.get('search') ?? '';
  const found = all.filter((row) => nameOf(row).includes(wanted));
  return (
    <>
      {(all.length > LIMIT || wanted !== '') && (
        <div class="filters">
          <NameFilter label="Part of the name" name="search" />
        </div>
      )}
      <PagedTable
        caption={caption}
        columns={columns}
        rows={found.slice(offset, offset + LIMIT)}
        id={nameOf}
        empty={all.length === 0 ? none : <Empty title={`No ${noun} is like that`} />}
        noun={noun}
        offset={offset}
        limit={LIMIT}
        total={found.length}
        onOffset={onOffset}
      />
    </>
  );
}
