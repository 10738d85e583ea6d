/** Instants as documents and statuses have them: RFC 3339 in UTC, with microseconds. */

const MICROS_A_SECOND = 1_000_000;

export function formatInstant(micros: number): string {
  const second = Math.floor(micros / MICROS_A_SECOND);
  const text = new Date(second * 1000).toISOString().slice(0, -4);
  return `${text}${String(micros - second * MICROS_A_SECOND).padStart(6, '0')}Z`;
}

/** Null: not of that form. */
export function parseInstant(text: string): number | null {
  const match = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})Z$/.exec(text);
  const ms = match === null ? Number.NaN : Date.parse(`${match[1]}Z`);
  return Number.isNaN(ms) ? null : ms * 1000 + Number(match![2]);
}

/** This node's own clock. */
export function instantNow(): string {
  return formatInstant(Date.now() * 1000);
}
