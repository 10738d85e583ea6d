/** What runs through a queue or all of them, and how old it is when it is delivered: two charts side by side. */
import { perSecond } from '../api/rates.ts';
import { duration, rate } from '../format.ts';
import { Chart } from './chart.tsx';
import { Card } from './page.tsx';

type Line = readonly (number | null)[];

interface TrafficProps {
  /** Of what. */
  note: string;
  bars: Parameters<typeof perSecond>[0];
  /** Messages of each bar, by what they are called. */
  counts: Readonly<Record<string, Line>>;
  /** Milliseconds. */
  avgLagMs: Line;
  maxLagMs: Line;
}

export function Traffic({ note, bars, counts, avgLagMs, maxLagMs }: TrafficProps) {
  return (
    <div class="columns">
      <Card title="Throughput" note={note}>
        <div class="inside">
          <Chart
            title="Throughput"
            times={bars.buckets}
            series={Object.entries(counts).map(([label, line]) => ({ label, values: perSecond(bars, line) }))}
            format={rate}
          />
        </div>
      </Card>
      <Card title="Lag at delivery" note="How old messages were when a consumer got them">
        <div class="inside">
          <Chart
            title="Lag at delivery"
            times={bars.buckets}
            series={[
              { label: 'Mean', values: seconds(avgLagMs) },
              { label: 'Largest', values: seconds(maxLagMs) },
            ]}
            format={duration}
          />
        </div>
      </Card>
    </div>
  );
}

const seconds = (line: Line) => line.map((ms) => (ms === null ? null : ms / 1000));
