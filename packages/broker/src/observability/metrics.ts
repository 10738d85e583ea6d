/**
 * The registry behind /metrics/prometheus. It pulls: a module keeps plain numbers and registers a callback that
 * reads them, so a hot path pays an addition and nothing else, and no module imports the metrics library.
 */
import { Counter, Gauge, Registry } from 'prom-client';
import { FAMILIES, type Family, type FamilyName } from './families.ts';

export interface Sample {
  labels: Record<string, string>;
  value: number;
}

/** What a source may answer: the value of a family without labels, samples, or null for "not known now". */
export type Reading = number | readonly Sample[] | null;
export type Source = () => Reading | Promise<Reading>;

/** A source that has not answered by then is left out of the scrape. */
const SOURCE_TIMEOUT_MS = 2_000;

export class Metrics {
  readonly #sources = new Map<FamilyName, Source>();

  /** Registers where a family's values come from; a later call for the same family replaces the source. */
  source(name: FamilyName, read: Source): void {
    this.#sources.set(name, read);
  }

  /** Registers several sources at once. */
  sources(table: { readonly [K in FamilyName]?: Source }): void {
    for (const [name, read] of Object.entries(table)) this.source(name as FamilyName, read);
  }

  /**
   * The exposition in Prometheus' text format 0.0.4. A family whose source throws, answers null or takes too long
   * is left out: the rest stays readable while the database is away.
   */
  async expose(): Promise<string> {
    const read = [...this.#sources].map(async ([name, source]) => ({ name, reading: await settled(source) }));
    const registry = new Registry();
    for (const { name, reading } of await Promise.all(read)) {
      if (reading !== null) fill(registry, name, FAMILIES[name], reading);
    }
    return registry.metrics();
  }
}

async function settled(source: Source): Promise<Reading> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(resolve, SOURCE_TIMEOUT_MS, null);
  });
  try {
    const reading = source();
    return reading instanceof Promise ? await Promise.race([reading, late]) : reading;
  } catch {
    return null;
  } finally {
    clearTimeout(timer);
  }
}

function fill(registry: Registry, name: string, family: Family, reading: number | readonly Sample[]): void {
  const settings = { name, help: family.help, labelNames: [...family.labels], registers: [registry] };
  const samples = typeof reading === 'number' ? [{ labels: {}, value: reading }] : reading;
  const metric = family.type === 'counter' ? new Counter(settings) : new Gauge(settings);
  if (samples.length === 0) metric.reset();
  for (const { labels, value } of samples) {
    if (Number.isFinite(value)) metric.inc(labels, value);
  }
}
