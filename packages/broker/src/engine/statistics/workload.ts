/** Who does how much: sums and lines of a graph a key, from the rows that the database gives. */
import type { WorkloadBar, WorkloadKey } from '../../store/analytics.ts';
import { barStart, barStarts, type Range } from './bars.ts';

export type WorkloadBy = 'namespace' | 'task' | 'queue';

type Line = (number | null)[];

/** Each as long as the bars; null where nothing was written down. */
export interface WorkloadSeries {
  push: Line;
  pop: Line;
  popEmpty: Line;
  ackFailed: Line;
  parked: Line;
  avgLagMs: Line;
  maxLagMs: Line;
}

export interface WorkloadRow {
  sums: WorkloadKey;
  series: WorkloadSeries;
}

export interface Workload {
  range: Range;
  by: WorkloadBy;
  /** Beginnings of the bars. */
  buckets: number[];
  rows: WorkloadRow[];
  /** Keys in all; `rows` has the busiest. */
  matches: number;
  /** The whole tenant, whatever was filtered. */
  tenant: WorkloadRow;
}

/** Empty lines for each key, filled from the bars. */
export function seriesOf(
  range: Range,
  keys: readonly string[],
  bars: readonly WorkloadBar[],
): Map<string, WorkloadSeries> {
  const starts = barStarts(range);
  const first = barStart(range.stepMinutes, range.fromMicros);
  const width = range.stepMinutes * 60_000_000;
  const lines = new Map(keys.map((key) => [key, emptySeries(starts.length)]));
  for (const bar of bars) {
    const series = lines.get(bar.key);
    const at = Math.round((bar.bucketMicros - first) / width);
    if (series === undefined || at < 0 || at >= starts.length) continue;
    series.push[at] = bar.push;
    series.pop[at] = bar.pop;
    series.popEmpty[at] = bar.popEmpty;
    series.ackFailed[at] = bar.ackFailed;
    series.parked[at] = tenth(bar.parked);
    series.avgLagMs[at] = meanMs(bar);
    series.maxLagMs[at] = maxMs(bar);
  }
  return lines;
}

export interface Lag {
  lagCount: number;
  lagSumMicros: number;
  lagMaxMicros: number;
}

/** Milliseconds; null when nothing was delivered. */
export function meanMs({ lagCount, lagSumMicros }: Lag): number | null {
  return lagCount === 0 ? null : Math.round(lagSumMicros / lagCount / 100) / 10;
}

export function maxMs({ lagCount, lagMaxMicros }: Lag): number | null {
  return lagCount === 0 ? null : Math.round(lagMaxMicros / 100) / 10;
}

export function tenth(value: number): number {
  return Math.round(value * 10) / 10;
}

function emptySeries(length: number): WorkloadSeries {
  const line = (): Line => new Array<null>(length).fill(null);
  return {
    push: line(),
    pop: line(),
    popEmpty: line(),
    ackFailed: line(),
    parked: line(),
    avgLagMs: line(),
    maxLagMs: line(),
  };
}
