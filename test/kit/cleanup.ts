/** A test context, or anything else that runs hooks at its end. */
export interface Cleanup {
  after(fn: () => Promise<void>): void;
}

const stacks = new WeakMap<Cleanup, (() => Promise<void> | void)[]>();

/**
 * Runs `work` when the test ends, last registered first: what came up later stands on what came up before it.
 * (The runner's own hooks go in the order in which they were registered.) All of them run, and the first
 * error is thrown.
 */
export function atEnd(t: Cleanup, work: () => Promise<void> | void): void {
  const known = stacks.get(t);
  if (known !== undefined) {
    known.push(work);
    return;
  }
  const stack = [work];
  stacks.set(t, stack);
  t.after(async () => {
    const errors: unknown[] = [];
    for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
      try {
        await next();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
  });
}
