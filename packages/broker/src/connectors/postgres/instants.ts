import { formatInstant } from '../../log/instants.ts';

/** This node's own clock, for statuses: RFC 3339 in UTC, with microseconds. */
export function instantNow(): string {
  return formatInstant(Date.now() * 1000);
}
