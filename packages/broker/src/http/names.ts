/** The checks of names, as faults of a path segment or a query parameter. */
import { nameFault } from '../log/names.ts';
import { badQuery, Fault } from './errors.ts';
import type { Query } from './query.ts';
import { decodeSegment } from './target.ts';

/** A name in the path, as it was sent. `field` is what the 400 calls it. */
export function pathName(segment: string, field: string): string {
  return checkedName(decodeSegment(segment, field), field);
}

/** A name in the path of a route whose segments were decoded. `field` is what the 400 calls it. */
export function checkedName(name: string, field: string): string {
  const fault = nameFault(name, field);
  if (fault !== null) throw new Fault('bad_name', { message: fault, field });
  return name;
}

/** A name in the query. Null: not sent, or sent empty. */
export function queryName(query: Query, name: string): string | null {
  const value = query.text(name);
  if (value === null || value === '') return null;
  const fault = nameFault(value, name);
  if (fault !== null) throw badQuery(name, fault);
  return value;
}
