/** Numbers that the broker keeps no history of: a line of what was seen while the page was open. */
import { useEffect, useState } from 'preact/hooks';
import type { Polled } from '../api/poll.ts';
import { Chart } from './chart.tsx';

const KEPT_MS = 60 * 60_000;

interface Sample {
  atMs: number;
  values: readonly (number | null)[];
}

/** By what is watched: a page that is left and opened again goes on with its line. */
const kept = new Map<string, readonly Sample[]>();
const WATCHED_MAX = 50;

interface ObservedProps<T> {
  /** Names what is watched. */
  id: string;
  title: string;
  labels: readonly string[];
  of: Polled<T>;
  /** One number for each label; null: unknown just now. */
  values: (data: T) => readonly (number | null)[];
  format: (value: number) => string;
}

export function Observed<T>({ id, title, labels, of, values, format }: ObservedProps<T>) {
  const [samples, setSamples] = useState<readonly Sample[]>(kept.get(id) ?? []);
  const { data, at, error } = of;
  useEffect(() => {
    if (data === undefined || at === undefined || error !== undefined) return;
    const before = kept.get(id) ?? [];
    const next = [
      ...before.filter(({ atMs }) => at - atMs < KEPT_MS && atMs !== at),
      { atMs: at, values: values(data) },
    ];
    kept.delete(id);
    kept.set(id, next);
    const oldest = kept.keys().next();
    if (kept.size > WATCHED_MAX && !oldest.done) kept.delete(oldest.value);
    setSamples(next);
  }, [id, at]);
  if (samples.length < 2)
    return <p class="muted">The line begins with the next look, some seconds from now.</p>;
  return (
    <Chart
      title={title}
      times={samples.map(({ atMs }) => new Date(atMs).toISOString())}
      series={labels.map((label, index) => ({
        label,
        values: samples.map((sample) => sample.values[index] ?? null),
      }))}
      format={format}
    />
  );
}
