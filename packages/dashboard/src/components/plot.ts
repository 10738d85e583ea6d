/** The drawing of a chart, in a file of its own that is loaded when a chart is shown. */
import 'uplot/dist/uPlot.min.css';
import UPlot from 'uplot';

interface PlotOptions {
  labels: readonly string[];
  /** Names of custom properties, in turn. */
  colours: readonly string[];
  height: number;
  /** Seconds since 1970, then the values of each line. */
  data: (number | null)[][];
  format: (value: number) => string;
  /** Steps of the axis are powers of two: for bytes. */
  binary: boolean;
  /** The place under the pointer; null: it has left. */
  onPoint: (index: number | null) => void;
}

export function plot(element: HTMLElement, options: PlotOptions): UPlot {
  const colour = (name: string) => resolved(element, name);
  const axis = {
    stroke: colour('--text-2'),
    font: `11px ${getComputedStyle(element).fontFamily}`,
    grid: { stroke: colour('--line'), width: 1 },
    ticks: { show: false },
  };
  return new UPlot(
    {
      width: element.clientWidth,
      height: options.height,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { time: true }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
      axes: [
        {
          ...axis,
          space: 70,
          size: 28,
          values: (_, splits) => splits.map((at) => clock(at, spanOf(splits))),
        },
        {
          ...axis,
          size: 62,
          ...(options.binary ? { incrs: BINARY_STEPS } : {}),
          space: 34,
          values: (_, splits) => splits.map((value) => options.format(value)),
        },
      ],
      series: [
        {},
        ...options.labels.map((label, index) => {
          const stroke = colour(options.colours[index % options.colours.length]!);
          const dash = index < 2 ? [] : [6, 3];
          const fill = options.labels.length === 1 ? `color-mix(in srgb, ${stroke} 12%, transparent)` : '';
          return {
            label,
            stroke,
            dash,
            fill,
            width: 1.75,
            points: { show: true, size: 5, fill: stroke, filter: lonely },
            spanGaps: false,
          };
        }),
      ],
      hooks: { setCursor: [({ cursor }) => options.onPoint(cursor.idx ?? null)] },
    },
    options.data as UPlot.AlignedData,
    element,
  );
}

const BINARY_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** A value between two unknown ones is no line: it is shown as a dot. */
const lonely: UPlot.Series.Points.Filter = (chart, line) => {
  const values = chart.data[line]!;
  const unknown = (index: number) => values[index] === null || values[index] === undefined;
  return [...values.keys()].filter((index) => !unknown(index) && unknown(index - 1) && unknown(index + 1));
};

const TIME = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const SECONDS = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

function spanOf(seconds: readonly number[]): number {
  return (seconds[seconds.length - 1] ?? 0) - (seconds[0] ?? 0);
}

/** The time of day, to the second where the axis spans minutes; the day where it spans several. */
function clock(seconds: number, span: number): string {
  const format = span > 36 * 3_600 ? DAY : span < 600 ? SECONDS : TIME;
  return format.format(new Date(seconds * 1000));
}

/** The colour that a custom property has here and now: a canvas knows neither var() nor light-dark(). */
function resolved(element: HTMLElement, name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
