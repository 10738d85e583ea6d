/** Waiting for what tells nobody that it has come, as what another process does: looks again and again. */
import { setTimeout as sleep } from 'node:timers/promises';

/** Far longer than anything takes on a machine that has time. */
const WITHIN_MS = 90_000;
const LOOK_AGAIN_MS = 10;

/**
 * Answers what `look` found: anything but false, null or undefined. An exception counts as "not yet", since processes come
 * and go. Throws after `withinMs`, with `what` and the last exception.
 */
export async function until<T>(
  what: string | (() => string),
  look: () => T | Promise<T>,
  withinMs = WITHIN_MS,
): Promise<Exclude<T, false | null | undefined>> {
  const deadline = performance.now() + withinMs;
  for (;;) {
    let last: unknown = null;
    try {
      const found = await look();
      if (found !== false && found !== null && found !== undefined) {
        return found as Exclude<T, false | null | undefined>;
      }
    } catch (error) {
      last = error;
    }
    if (performance.now() > deadline) {
      const said = typeof what === 'string' ? what : what();
      throw new Error(`${said}: not within ${withinMs} ms${last === null ? '' : ` (${last})`}`, {
        cause: last,
      });
    }
    await sleep(LOOK_AGAIN_MS);
  }
}
