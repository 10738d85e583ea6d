/** The bars of a graph: how wide they are, and where they begin. Times in microseconds. */

export interface Range {
  fromMicros: number;
  toMicros: number;
  /** Width of a bar in minutes. */
  stepMinutes: number;
}

const MINUTE = 60_000_000;
const HOUR_MINUTES = 60;
const DAY_MINUTES = 24 * HOUR_MINUTES;

/** Wider the longer the time, so that no graph has more than some hundred bars for the times that people look at. */
export function stepFor(micros: number): number {
  const minutes = micros / MINUTE;
  if (minutes <= HOUR_MINUTES) return 1;
  if (minutes <= 6 * HOUR_MINUTES) return 5;
  if (minutes <= DAY_MINUTES) return 15;
  if (minutes <= 7 * DAY_MINUTES) return HOUR_MINUTES;
  return 6 * HOUR_MINUTES;
}

/** @param spanMinutes the time before `to` when no `from` is given. */
export function rangeOf(
  asked: { fromMicros: number | null; toMicros: number | null },
  nowMicros: number,
  spanMinutes = HOUR_MINUTES,
): Range {
  const toMicros = asked.toMicros ?? nowMicros;
  const fromMicros = asked.fromMicros ?? toMicros - spanMinutes * MINUTE;
  return { fromMicros, toMicros, stepMinutes: stepFor(toMicros - fromMicros) };
}

/** Where the bar begins that holds the instant: at a multiple of its width since 1970. */
export function barStart(stepMinutes: number, atMicros: number): number {
  const step = stepMinutes * MINUTE;
  return Math.floor(atMicros / step) * step;
}

/** The beginnings of all bars of the range. */
export function barStarts({ fromMicros, toMicros, stepMinutes }: Range): number[] {
  const starts: number[] = [];
  const step = stepMinutes * MINUTE;
  for (let at = barStart(stepMinutes, fromMicros); at <= toMicros; at += step) starts.push(at);
  return starts;
}
