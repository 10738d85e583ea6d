/** What a list shows, kept in the address: what is searched for, the order, the page. */
import { useSearch } from '../router.ts';
import { useTyped } from './filter.tsx';
import type { Sorting } from './table.tsx';

export interface ListState {
  search: string;
  sort: string;
  order: 'asc' | 'desc';
  offset: number;
  limit: number;
}

/** How many rows the page skips: whole, and not below 0, whatever the address says. */
export function useOffset(): [offset: number, onOffset: (offset: number) => void] {
  const [search, change] = useSearch();
  const offset = Number(search.get('offset') ?? 0);
  return [
    Number.isSafeInteger(offset) && offset > 0 ? offset : 0,
    (next) => change({ offset: next === 0 ? null : next }),
  ];
}

/**
 * @param sort what the list is ordered by unless the address says otherwise
 * @param first in which order it begins
 */
export function useList(
  sort: string,
  limit = 50,
  first: 'asc' | 'desc' = 'asc',
): ListState & { sorting: Sorting; onOffset: (offset: number) => void } {
  const [search, change] = useSearch();
  const by = search.get('sort') ?? sort;
  // Another column begins upwards, whatever this one does.
  const usual = (column: string) => (column === sort ? first : 'asc');
  const descending = (search.get('order') ?? usual(by)) === 'desc';
  const [offset, onOffset] = useOffset();
  return {
    search: search.get('search') ?? '',
    sort: by,
    order: descending ? 'desc' : 'asc',
    offset,
    limit,
    sorting: {
      by,
      descending,
      change: (next, down) => {
        const order = down ? 'desc' : 'asc';
        change({
          sort: next === sort ? null : next,
          order: order === usual(next) ? null : order,
          offset: null,
        });
      },
    },
    onOffset,
  };
}

interface SearchBoxProps {
  label: string;
  /** The parameter of the address. */
  name?: string;
}

export function SearchBox({ label, name = 'search' }: SearchBoxProps) {
  const [text, setText] = useTyped(name);
  return (
    <input
      type="search"
      class="search"
      aria-label={label}
      placeholder={label}
      value={text}
      spellcheck={false}
      onInput={(event) => setText(event.currentTarget.value)}
    />
  );
}
