/** `npm run bench`: every workload once against a broker of its own, and a report. See README.md. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { describe, markdown, type Report } from './report.ts';
import { Rig } from './rig.ts';
import type { Scale, Workload } from './workload.ts';
import { copyLag } from './workloads/copy_lag.ts';
import { floor } from './workloads/floor.ts';
import { groupLag } from './workloads/group_lag.ts';
import { idle } from './workloads/idle.ts';
import { kv } from './workloads/kv.ts';
import { latency } from './workloads/latency.ts';
import { memory } from './workloads/memory.ts';
import { partitions } from './workloads/partitions.ts';
import { popAck } from './workloads/pop_ack.ts';
import { push } from './workloads/push.ts';
import { singlePush } from './workloads/single_push.ts';
import { sinks } from './workloads/sinks.ts';
import { source } from './workloads/source.ts';
import { timers } from './workloads/timers.ts';
import { transactions } from './workloads/transactions.ts';

const WORKLOADS: readonly Workload[] = [
  singlePush,
  floor,
  push,
  popAck,
  latency,
  transactions,
  kv,
  timers,
  source,
  sinks,
  copyLag,
  idle,
  memory,
  partitions,
  groupLag,
];

const USAGE = `npm run bench -- [--quick] [--json] [--write] [--minutes n] [--only name]...
  --quick      short measurements and fewer of them, about a minute in all
  --json       prints the report as JSON instead of a table
  --write      writes the table into bench/README.md as well
  --minutes n  length of the memory workload (10; a second with --quick)
  --only name  only this workload: ${WORKLOADS.map((workload) => workload.name).join(', ')}`;

const README = join(import.meta.dirname, 'README.md');
const TABLE = /(<!-- results -->\n)[\s\S]*(<!-- end of results -->)/;

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    write: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
    minutes: { type: 'string' },
    only: { type: 'string', multiple: true },
  },
});

function scaleOf(): Scale {
  const minutes = values.minutes === undefined ? (values.quick ? 1 / 60 : 10) : Number(values.minutes);
  if (!(minutes > 0)) throw new Error(`--minutes must be above 0, not ${values.minutes}`);
  return values.quick
    ? { quick: true, seconds: 0.3, warmUpSeconds: 0.1, rounds: 1, minutes }
    : { quick: false, seconds: 6, warmUpSeconds: 2, rounds: 7, minutes };
}

async function measure(rig: Rig, scale: Scale, wanted: readonly Workload[]): Promise<Report> {
  const report: Report = {
    date: new Date().toISOString(),
    mode: scale.quick ? 'quick' : 'full',
    machine: rig.machine,
    workloads: [],
  };
  for (const workload of wanted) {
    const begun = performance.now();
    report.workloads.push(describe(workload, await workload.run(rig, scale)));
    process.stderr.write(`${workload.name}: ${((performance.now() - begun) / 1000).toFixed(1)} s\n`);
  }
  return report;
}

async function main(): Promise<void> {
  if (values.help) {
    console.log(USAGE);
    return;
  }
  const scale = scaleOf();
  const only = values.only;
  const wanted = WORKLOADS.filter((workload) => only === undefined || only.includes(workload.name));
  if (wanted.length === 0) throw new Error(`no such workload\n${USAGE}`);
  const rig = await Rig.start();
  // Interrupted, it leaves neither a server nor a directory behind.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => void rig.stop().finally(() => process.exit(1)));
  }
  let report: Report;
  try {
    report = await measure(rig, scale, wanted);
  } catch (error) {
    process.stderr.write(`${rig.broker.logs().slice(-4000)}\n`);
    throw error;
  } finally {
    await rig.stop();
  }
  const text = markdown(report);
  console.log(values.json ? JSON.stringify(report, null, 2) : text);
  if (values.write) writeFileSync(README, readFileSync(README, 'utf8').replace(TABLE, `$1\n${text}\n\n$2`));
}

await main();
