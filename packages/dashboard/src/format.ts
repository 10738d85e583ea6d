/** How numbers, sizes and times are written. */

const WHOLE = new Intl.NumberFormat('en');
const COMPACT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const RELATIVE = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });
const CLOCK = new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
});
const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const EXACT = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

/** `12,345`. An en dash where there is no number. */
export function whole(value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : WHOLE.format(value);
}

/** `12.3K` from ten thousand on, for tiles and axes. */
export function compact(value: number): string {
  return Math.abs(value) < 10_000 ? WHOLE.format(Math.round(value * 100) / 100) : COMPACT.format(value);
}

/** Messages a second. */
export function rate(value: number): string {
  if (value === 0) return '0/s';
  if (value < 0.01) return '<0.01/s';
  return `${value < 10 ? Math.round(value * 100) / 100 : compact(Math.round(value))}/s`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let left = value;
  while (left >= 1024 && unit < units.length - 1) {
    left /= 1024;
    unit++;
  }
  return `${unit === 0 || left >= 100 ? Math.round(left) : Math.round(left * 10) / 10} ${units[unit]}`;
}

/** A span of time, in at most two units: `3 min 20 s`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds === 0) return '0 s';
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${Math.round(seconds * 10) / 10} s`;
  let left = Math.round(seconds);
  const parts: string[] = [];
  for (const [unit, size] of [
    ['d', 86_400],
    ['h', 3_600],
    ['min', 60],
    ['s', 1],
  ] as const) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) parts.push(`${count} ${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.join(' ');
}

/** `3 min. ago`. */
export function relative(iso: string, nowMs = Date.now()): string {
  const seconds = (Date.parse(iso) - nowMs) / 1000;
  const size = Math.abs(seconds);
  if (size < 5) return 'now';
  if (size < 60) return RELATIVE.format(Math.round(seconds), 'second');
  if (size < 3_600) return RELATIVE.format(Math.round(seconds / 60), 'minute');
  if (size < 86_400) return RELATIVE.format(Math.round(seconds / 3_600), 'hour');
  return RELATIVE.format(Math.round(seconds / 86_400), 'day');
}

/** To the millisecond, with the day unless it is today: for lists of what happened one after another. */
export function moment(iso: string, now = new Date()): string {
  const at = new Date(iso);
  const time = CLOCK.format(at);
  return at.toDateString() === now.toDateString() ? time : `${DAY.format(at)}, ${time}`;
}

/** In the reader's own time zone, to the second. */
export function exact(iso: string): string {
  return EXACT.format(new Date(iso));
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${whole(count)} ${count === 1 ? one : many}`;
}

/** As a field for date and time wants it: in the reader's own time zone, to the second. */
export function fieldInstant(ms: number): string {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
