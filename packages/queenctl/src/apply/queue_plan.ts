import { type Queen, RefusedError } from '@queen-mq/client';
import { usage } from '../exit.ts';
import { changesBetween } from './changes.ts';
import type { Manifest } from './documents.ts';
import type { Plan } from './plan.ts';
import { checkOption, QUEUE_DEFAULTS, unusual } from './queue_options.ts';

type Options = Record<string, unknown>;

/** @throws Failure for what is no option of a queue, before anything is asked or sent */
export function checkQueue({ spec, where, name }: Manifest): void {
  for (const [option, value] of Object.entries(spec)) {
    const fault = checkOption(option, value);
    if (fault !== null) throw usage(`${where}: Queue ${name}: ${fault}`);
  }
}

/**
 * How a queue becomes as its manifest wants it. What the manifest does not name goes back to its default, as the broker
 * has it for `"mode": "replace"`; with `merge` it stays.
 */
export async function queuePlan(
  queen: Queen,
  { name, spec }: Manifest,
  merge: boolean,
  signal: AbortSignal,
): Promise<Plan> {
  const current = await optionsOf(queen, name, signal);
  const named: Options = Object.fromEntries(
    Object.entries(spec).map(([option, value]) => [
      option,
      value ?? QUEUE_DEFAULTS[option as keyof typeof QUEUE_DEFAULTS],
    ]),
  );
  const wanted: Options = { ...(merge && current !== null ? current : QUEUE_DEFAULTS), ...named };
  // A queue that is new differs from nothing; what is not usual about it is worth a look.
  const changes = changesBetween(
    current === null ? {} : known(current),
    current === null ? unusual(wanted) : known(wanted),
  );
  return {
    action: current === null ? 'create' : changes.length > 0 ? 'change' : 'none',
    changes,
    resends: false,
    async apply() {
      const { options, ignored, namespace, task } = await queen
        .queue(name)
        .configure(spec, { replace: !merge, signal });
      const made: Options = { ...options, namespace, task };
      const other = Object.keys(named).filter((option) => made[option] !== wanted[option]);
      return [
        ...ignored.map((option) => `${option} is stored and has no effect`),
        ...other.map((option) => `${option} became ${JSON.stringify(made[option])}`),
      ];
    },
  };
}

/** Null: there is no such queue. */
async function optionsOf(queen: Queen, name: string, signal: AbortSignal): Promise<Options | null> {
  try {
    return (await queen.queue(name).partitions({ limit: 1, signal })).queue.options;
  } catch (error) {
    if (error instanceof RefusedError && error.code === 'queue_not_found') return null;
    throw error;
  }
}

/** Without what a newer broker has and this program does not know. */
function known(options: Options): Options {
  return Object.fromEntries(Object.keys(QUEUE_DEFAULTS).map((option) => [option, options[option]]));
}
