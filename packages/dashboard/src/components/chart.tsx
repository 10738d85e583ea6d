/**
 * Lines over time. The drawing is for eyes; beside it stand the newest values, a sentence that says how each line runs,
 * and the same numbers as a table.
 */

import { useEffect, useId, useMemo, useRef, useState } from 'preact/hooks';
import type uPlot from 'uplot';
import { exact } from '../format.ts';
import { useColourChanges } from '../theme.ts';

export interface Series {
  label: string;
  /** As many as there are times; null: nothing is known. */
  values: readonly (number | null)[];
}

interface ChartProps {
  title: string;
  /** ISO instants, oldest first. */
  times: readonly string[];
  series: readonly Series[];
  format: (value: number) => string;
  /** Pixels. */
  height?: number;
  /** Steps of the axis are powers of two: for bytes. */
  binary?: boolean;
}

const COLOURS = ['--series-1', '--series-2', '--series-3', '--series-4'];

export function Chart({ title, times, series, format, height = 180, binary = false }: ChartProps) {
  const id = useId();
  const [open, setOpen] = useState(false);
  const [pointed, setPointed] = useState<number | null>(null);
  const index = pointed ?? times.length - 1;
  return (
    <figure class="chart" aria-labelledby={id}>
      <figcaption id={id} class="hidden-visually">
        {title}. {series.map((each) => sentence(each, format)).join(' ')}
      </figcaption>
      <ul class="legend" aria-hidden="true">
        {series.map(({ label, values }, line) => (
          <li key={label}>
            <i style={{ background: `var(${COLOURS[line % COLOURS.length]})` }} />
            {label} <b>{written(values[index], format)}</b>
          </li>
        ))}
        {pointed !== null && times[index] !== undefined && <li class="muted">{exact(times[index])}</li>}
      </ul>
      <Plot
        times={times}
        series={series}
        format={format}
        height={height}
        binary={binary}
        onPoint={setPointed}
      />
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>Values</summary>
        {open && <Values title={title} times={times} series={series} format={format} />}
      </details>
    </figure>
  );
}

function written(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? '–' : format(value);
}

function sentence({ label, values }: Series, format: (value: number) => string): string {
  const known = values.filter((value): value is number => value !== null);
  if (known.length === 0) return `${label}: no values.`;
  const last = known[known.length - 1]!;
  return `${label}: now ${format(last)}, between ${format(Math.min(...known))} and ${format(Math.max(...known))}.`;
}

function Values({ title, times, series, format }: Omit<ChartProps, 'height' | 'binary'>) {
  return (
    <div class="values" tabIndex={0} role="region" aria-label={`Values of ${title}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {series.map(({ label }) => (
              <th key={label} scope="col">
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {times
            .map((time, index) => (
              <tr key={time}>
                <th scope="row">{exact(time)}</th>
                {series.map(({ label, values }) => (
                  <td key={label}>{written(values[index], format)}</td>
                ))}
              </tr>
            ))
            .reverse()}
        </tbody>
      </table>
    </div>
  );
}

interface PlotProps extends Required<Omit<ChartProps, 'title'>> {
  onPoint: (index: number | null) => void;
}

function Plot({ times, series, format, height, binary, onPoint }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const colours = useColourChanges();
  const data = useMemo(() => dataOf(times, series), [times, series]);
  const newest = useRef({ data, format, onPoint });
  newest.current = { data, format, onPoint };
  const shape = series.map(({ label }) => label).join('\n');

  // Drawn anew when its lines or colours change; data is set below.
  useEffect(() => {
    let gone = false;
    let sizes: ResizeObserver | undefined;
    void import('./plot.ts').then(({ plot }) => {
      const element = place.current;
      if (gone || element === null) return;
      const drawn = plot(element, {
        labels: series.map(({ label }) => label),
        colours: COLOURS,
        height,
        binary,
        data: newest.current.data,
        format: (value) => newest.current.format(value),
        onPoint: (index) => newest.current.onPoint(index),
      });
      chart.current = drawn;
      sizes = new ResizeObserver(() => drawn.setSize({ width: element.clientWidth, height }));
      sizes.observe(element);
    });
    return () => {
      gone = true;
      sizes?.disconnect();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [shape, colours, height]);

  useEffect(() => {
    chart.current?.setData(data as uPlot.AlignedData);
  }, [data]);

  return <div class="plot" ref={place} aria-hidden="true" style={{ minHeight: `${height}px` }} />;
}

function dataOf(times: readonly string[], series: readonly Series[]): (number | null)[][] {
  return [times.map((time) => Date.parse(time) / 1000), ...series.map(({ values }) => [...values])];
}
