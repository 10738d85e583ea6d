/**
 * Checks that stay on in production. What they guard is the data: a broken one fails the request it was
 * found in, with a code that can be searched for and the facts that were seen, and nothing is written or
 * handed out on top of it.
 */
export class InvariantError extends Error {
  /** Stable, machine readable, snake case. */
  readonly code: string;
  readonly facts: Readonly<Record<string, unknown>>;

  constructor(code: string, facts: Readonly<Record<string, unknown>> = {}) {
    super(`invariant ${code} broken: ${describe(facts)}`);
    this.name = 'InvariantError';
    this.code = code;
    this.facts = facts;
  }
}

/** Throws an InvariantError unless `condition` holds. `facts` go into the message: never put payloads in it. */
export function invariant(
  condition: unknown,
  code: string,
  facts: Readonly<Record<string, unknown>> = {},
): asserts condition {
  if (!condition) throw new InvariantError(code, facts);
}

function describe(facts: Readonly<Record<string, unknown>>): string {
  const parts = Object.entries(facts).map(([key, value]) => `${key}=${String(value)}`);
  return parts.length === 0 ? 'no facts' : parts.join(' ');
}
