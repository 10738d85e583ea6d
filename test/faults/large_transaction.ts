/** One transaction of very many rows, whose broker is killed in the middle of it; and how much memory brokers take for it. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { BrokerProcess } from '../kit/broker.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import type { Upstream } from '../kit/upstream.ts';
import type { Chance } from './seed.ts';
import { killed, SourceScene } from './source_scene.ts';

const BUNDLE = 1_000;

/** The most that a broker had resident, in MiB, among the one that was killed and the one that went on. */
export async function largeTransaction(
  t: Cleanup & { diagnostic(text: string): void },
  server: Upstream,
  rows: number,
  chance: Chance,
): Promise<number> {
  const scene = await SourceScene.open(t, server);
  await scene.upstream.sql(`ALTER TABLE t ADD COLUMN pad text NOT NULL DEFAULT repeat('x', 500)`);
  const at = chance.integer(Math.ceil((rows / BUNDLE) * 0.3), Math.floor((rows / BUNDLE) * 0.6));
  const doomed = await scene.broker(`source.committed:kill:${at}`);
  await scene.create(doomed, { maxBundleMessages: BUNDLE });
  await scene.reaches(doomed, 'streaming');
  const first = watchMemory(doomed);
  await scene.insertAtOnce(rows);
  await killed(doomed);
  const heir = await scene.broker();
  const from = performance.now();
  const second = watchMemory(heir);
  await scene.assertAllOnce(heir, 60_000 + rows);
  const seconds = (performance.now() - from) / 1_000;
  const peaks = [await first.stop(), await second.stop()];
  t.diagnostic(
    `${rows} rows, killed after ${at} bundles of ${BUNDLE}: peaks of ${peaks} MiB resident, ${seconds.toFixed(1)} s to the end`,
  );
  assert.ok(Math.min(...peaks) > 0);
  await heir.stop();
  return Math.max(...peaks);
}

function watchMemory({ pid, ended }: BrokerProcess): { stop(): Promise<number> } {
  let peak = 0;
  let on = true;
  void ended.then(() => {
    on = false;
  });
  const watching = (async () => {
    while (on) {
      peak = Math.max(peak, residentPeak(pid));
      await sleep(50);
    }
  })();
  return {
    async stop() {
      on = false;
      await watching;
      return peak;
    },
  };
}

/** MiB; 0 when the process is no more. */
function residentPeak(pid: number): number {
  try {
    const match = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return Math.round(Number(match?.[1] ?? 0) / 1024);
  } catch {
    return 0;
  }
}
