/** Instants between integers (microseconds since 1970, UTC) and ISO 8601, on the wire and in documents of connectors. */

let memoSecond = Number.NaN;
let memoText = '';

/** `2026-07-30T11:02:44.512873Z`. Neighbours in one answer mostly share their second, hence the memo. */
export function formatInstant(micros: number): string {
  const second = Math.floor(micros / 1_000_000);
  if (second !== memoSecond) {
    memoText = new Date(second * 1000).toISOString().slice(0, -4);
    memoSecond = second;
  }
  return `${memoText}${String(micros - second * 1_000_000).padStart(6, '0')}Z`;
}

export function formatInstantOrNull(micros: number | null): string | null {
  return micros === null ? null : formatInstant(micros);
}

const ISO =
  /^(\d{4})-(\d{2})-(\d{2})(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s*([Zz]|[+\- ]\d{2}(?::?\d{2})?)?)?$/;

/**
 * Microseconds since 1970 of an ISO 8601 instant (years 1000 to 9999), or null when the text is none. Without a zone it is UTC. A blank
 * stands for the `+` of an offset: that is what an unescaped plus in a query string turns into.
 */
export function parseInstant(text: string): number | null {
  const match = ISO.exec(text.trim());
  if (match === null) return null;
  const [, year, month, day, hour = '0', minute = '0', second = '0', fraction = '', zone = 'Z'] = match;
  if (Number(year) < 1000) return null;
  const midnight = Date.UTC(Number(year), Number(month) - 1, Number(day));
  const date = new Date(midnight);
  if (date.getUTCMonth() !== Number(month) - 1 || date.getUTCDate() !== Number(day)) return null;
  if (Number(hour) > 24 || Number(minute) > 59 || Number(second) > 60) return null;
  if (Number(hour) === 24 && Number(minute) + Number(second) > 0) return null;
  const offsetMinutes = zoneMinutes(zone);
  if (offsetMinutes === null) return null;
  const seconds = (Number(hour) * 60 + Number(minute) - offsetMinutes) * 60 + Number(second);
  return midnight * 1000 + seconds * 1_000_000 + Number(fraction.slice(0, 6).padEnd(6, '0'));
}

/** Held within what a number says exactly (the years 1685 to 2255): beyond them lies nothing that could be meant. */
export function storableInstant(micros: number): number {
  const most = Number.MAX_SAFE_INTEGER - 1;
  return Math.min(most, Math.max(-most, micros));
}

function zoneMinutes(zone: string): number | null {
  if (zone === 'Z' || zone === 'z') return 0;
  const hours = Number(zone.slice(1, 3));
  const minutes = Number(zone.slice(3).replace(':', '') || '0');
  if (hours > 23 || minutes > 59) return null;
  return (zone[0] === '-' ? -1 : 1) * (hours * 60 + minutes);
}
