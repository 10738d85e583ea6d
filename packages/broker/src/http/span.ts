/** What reads of statistics have in common: a time, and what narrows them. */
import type { Asked, PageWanted, QueueFilter } from '../engine/statistics/face.ts';
import { formatInstant } from '../log/instants.ts';
import { SEARCH_CHARACTERS_MAX } from './api/schemas.ts';
import { badQuery } from './errors.ts';
import { queryName } from './names.ts';
import type { PageSize, Query } from './query.ts';

const DAY_MICROS = 86_400_000_000;
/** As long as numbers may be kept. */
const DAYS_MAX = 3_650;

/** `from` and `to`, each optional. */
export function readSpan(query: Query): Asked {
  const fromMicros = query.instant('from');
  const toMicros = query.instant('to');
  const to = toMicros ?? Date.now() * 1000;
  if (fromMicros !== null && toMicros !== null && fromMicros > toMicros)
    throw badQuery('from', 'must not be after to');
  if (fromMicros !== null && to - fromMicros > DAYS_MAX * DAY_MICROS)
    throw badQuery('from', `must be at most ${DAYS_MAX} days before to`);
  return { fromMicros, toMicros };
}

/** `queue`, `namespace` (`ns`) and `task`; an empty one is none. */
export function readFilter(query: Query): QueueFilter {
  return {
    queue: filterName(query, 'queue'),
    namespace: filterName(query, 'namespace') ?? filterName(query, 'ns'),
    task: filterName(query, 'task'),
  };
}

export function filterName(query: Query, name: string): string | null {
  return query.text(name) === '' ? null : queryName(query, name);
}

/** One word of some; the first when it is not given. Another one is answered as `bad`. */
export function oneOf<W extends string>(
  query: Query,
  name: string,
  words: readonly W[],
): W | null | undefined {
  const text = query.text(name);
  if (text === null || text === '') return null;
  return words.find((word) => word === text);
}

/**
 * What a list shows of many rows: `search` (a part of a name), `sort`, one of `sorts` (the first unless given), `order`
 * (`asc` unless given), `limit` and `offset`.
 */
export function readPage<Sort extends string>(
  query: Query,
  sorts: readonly [Sort, ...Sort[]],
  size: PageSize,
): PageWanted<Sort> {
  const search = query.text('search') ?? '';
  if (search.length > SEARCH_CHARACTERS_MAX || search.includes('\0'))
    throw badQuery('search', `must have at most ${SEARCH_CHARACTERS_MAX} characters, and no NUL`);
  const sort = oneOf(query, 'sort', sorts);
  if (sort === undefined) throw badQuery('sort', `must be one of ${sorts.join(', ')}`);
  const order = oneOf(query, 'order', ['asc', 'desc']);
  if (order === undefined) throw badQuery('order', 'must be asc or desc');
  return {
    search: search === '' ? null : search,
    sort: sort ?? sorts[0],
    descending: order === 'desc',
    ...query.page(size),
  };
}

export function timeRange({ fromMicros, toMicros }: { fromMicros: number; toMicros: number }) {
  return { from: formatInstant(fromMicros), to: formatInstant(toMicros) };
}
