import { setTimeout } from 'node:timers/promises';
import { AbortedError, type Connector, type Health, RefusedError } from '@queen-mq/client';
import type { Command } from 'commander';
import { type Call, does } from '../call.ts';
import { explain } from '../explain.ts';
import { durationMs } from '../input/values.ts';
import { type Column, facts, table } from '../output/table.ts';
import { count, duration } from '../output/text.ts';
import { examples } from './examples.ts';

interface Standing {
  readonly url: string;
  readonly state: 'healthy' | 'unhealthy' | 'unreachable';
  readonly version: string | null;
  readonly database: string | null;
  readonly error: string | null;
}

const COLUMNS: readonly Column<Standing>[] = [
  { title: 'BROKER', of: ({ url }) => url },
  { title: 'STATE', of: ({ state }) => state },
  { title: 'VERSION', of: ({ version }) => version },
  { title: 'DATABASE', of: ({ database }) => database },
  { title: 'ERROR', of: ({ error }) => error, cut: true },
];
const LOOK_EVERY_MS = 250;

export function statusCommands(program: Command): void {
  const health = program
    .command('health')
    .description('whether each broker answers and reaches its database')
    .option('--wait <time>', 'look again until all are healthy, for so long', durationMs, 0)
    .action(does<{ wait: number }>(healthOf));
  examples(health, [
    ['queenctl health --url http://queen-1:6632,http://queen-2:6632'],
    ['queenctl health --wait 60s -q', 'in a script that starts a broker'],
  ]);

  program
    .command('status')
    .description('everything on one page: brokers, messages, groups that are behind, connectors, switches')
    .action(does(statusOf));
}

async function healthOf(call: Call<{ wait: number }>): Promise<void> {
  const { out, options, signal } = call;
  const until = performance.now() + options.wait;
  const look = lookerAt(call);
  let standings = await look();
  while (standings.some(({ state }) => state !== 'healthy') && performance.now() < until) {
    await setTimeout(LOOK_EVERY_MS, undefined, { signal });
    standings = await look();
  }
  out.rows(standings, COLUMNS, '');
  if (standings.every(({ state }) => state === 'unreachable')) call.ends('unavailable');
  else if (standings.some(({ state }) => state !== 'healthy')) call.ends('failure');
}

/** What asks each broker by itself, once. */
function lookerAt(call: Call): () => Promise<Standing[]> {
  const retry = { retries: 0, overloadedRetries: 0 };
  const brokers = call.urls.map((url) => ({ url, queen: call.client({ urls: [url], retry }) }));
  const ask = async ({ url, queen }: (typeof brokers)[number]): Promise<Standing> => {
    try {
      const health: Health = await queen.admin.health({ signal: call.signal });
      const state = health.healthy ? 'healthy' : 'unhealthy';
      return { url, state, version: health.version, database: health.database, error: null };
    } catch (error) {
      if (error instanceof TypeError || error instanceof AbortedError) throw error;
      return { url, state: 'unreachable', version: null, database: null, error: explain(error).sentence };
    }
  };
  return () => Promise.all(brokers.map(ask));
}

interface Overview {
  readonly queues: number;
  readonly partitions: number;
  readonly messages: {
    readonly total: number;
    readonly pending: number;
    readonly processing: number;
    readonly deadLetter: number;
  };
  readonly throughput: { readonly ingestedPerSecond: number; readonly processedPerSecond: number };
  readonly statsAge: number;
}

const BEHIND_SHOWN = 5;

async function statusOf(call: Call): Promise<void> {
  const { queen, out, signal } = call;
  const brokers = await lookerAt(call)();
  // With none of them there, this says why.
  const overview = (await queen.admin.overview({ signal })) as unknown as Overview;
  const [groups, connectors, maintenance, switches] = await Promise.all([
    queen.groups.list({ signal }),
    queen.connectors.list({ signal }),
    forAdmins(() => queen.admin.maintenance({ signal })),
    forAdmins(() => queen.admin.switches({ signal })),
  ]);
  const behind = groups
    .filter(({ totalLag }) => totalLag > 0)
    .sort((one, other) => other.totalLag - one.totalLag);
  out.one(
    { brokers, overview, groupsBehind: behind, connectors: connectors.map(brief), maintenance, switches },
    () => {
      const { messages, throughput } = overview;
      const parts = [
        table(brokers, COLUMNS, out.width),
        facts([
          ['queues', overview.queues],
          ['partitions', overview.partitions],
          ['messages', messages.total],
          ['pending', messages.pending],
          ['leased', messages.processing],
          ['dead letters', messages.deadLetter],
          ['stored', `${throughput.ingestedPerSecond}/s over five minutes`],
          ['processed', `${throughput.processedPerSecond}/s over five minutes`],
          ['counted', overview.statsAge < 0 ? 'not yet' : `${duration(overview.statsAge)} ago`],
        ]),
        behind.length === 0
          ? 'No group is behind.\n'
          : table(behind.slice(0, BEHIND_SHOWN), [
              { title: 'GROUP BEHIND', of: ({ name }) => name },
              { title: 'QUEUE', of: ({ queueName }) => queueName },
              { title: 'LAG', of: ({ totalLag }) => totalLag, right: true },
              { title: 'OLDEST', of: ({ maxTimeLag }) => duration(maxTimeLag), right: true },
            ]),
      ];
      if (behind.length > BEHIND_SHOWN) parts.push(`… and ${behind.length - BEHIND_SHOWN} more\n`);
      if (connectors.length > 0) {
        const failing = connectors.filter(({ status }) => status?.phase === 'error');
        parts.push(
          `${count(connectors.length, 'connector')}${failing.length === 0 ? '' : `, in trouble: ${failing.map(({ name }) => name).join(', ')}`}\n`,
        );
      }
      const off = [
        maintenance?.maintenanceMode === true ? 'pushes wait on disk (maintenance)' : '',
        maintenance?.popMaintenanceMode === true ? 'pops get nothing (maintenance)' : '',
        switches?.kvEnabled === false ? 'keys are switched off' : '',
        switches?.timersScheduleEnabled === false ? 'timers cannot be scheduled' : '',
        switches?.timersFireEnabled === false ? 'timers do not fire' : '',
      ].filter((part) => part !== '');
      if (off.length > 0) parts.push(`${out.colour('yellow', `Switched: ${off.join('; ')}`)}\n`);
      return parts.join('\n');
    },
  );
  if (brokers.some(({ state }) => state !== 'healthy')) call.ends('failure');
}

function brief({ name, kind, status }: Connector) {
  return { name, kind, phase: status?.phase ?? null, error: status?.error ?? null };
}

/** Null for those who may not ask. */
async function forAdmins<T>(ask: () => Promise<T>): Promise<T | null> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof RefusedError && error.status === 403) return null;
    throw error;
  }
}
