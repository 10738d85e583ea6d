/** A broker whose families can be read one by one. */
import assert from 'node:assert/strict';
import { Metrics } from '../../packages/broker/src/observability/metrics.ts';
import { registerEngine } from '../../packages/broker/src/start/engine.ts';
import { registerStatistics } from '../../packages/broker/src/start/statistics.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { type Live, type LiveOptions, openLive } from './live.ts';

// biome-ignore lint/suspicious/noExplicitAny: answers of twenty shapes, of which a test reads a few keys.
export type Json = Record<string, any>;

export interface Counted extends Live {
  get(path: string, headers?: Record<string, string>): Promise<Json>;
  /** The value of a family's line; undefined: there is no such line. */
  family(line: string): Promise<number | undefined>;
}

export async function openCounted(t: Cleanup, options: LiveOptions = {}): Promise<Counted> {
  const metrics = new Metrics();
  const live = await openLive(t, {
    alone: 'the families and counters of one process are read',
    ...options,
    server: { metrics, ...options.server },
  });
  registerEngine(metrics, live.broker);
  registerStatistics(metrics, live.broker);
  return Object.assign(live, {
    async get(path: string, headers: Record<string, string> = {}) {
      const { status, body } = await live.ask<Json>('GET', path, undefined, headers);
      assert.equal(status, 200, `${path}: ${JSON.stringify(body)}`);
      return body;
    },
    async family(line: string) {
      const text = await metrics.expose();
      const found = text.split('\n').find((each) => each.startsWith(`${line} `));
      return found === undefined ? undefined : Number(found.slice(line.length + 1));
    },
  });
}
