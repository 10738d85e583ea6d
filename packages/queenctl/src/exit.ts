/** How queenctl ends. These numbers are part of its interface: scripts branch on them. */
export const EXIT = {
  ok: { code: 0, meaning: 'done; also when nothing was there to be done' },
  failure: { code: 1, meaning: 'something failed, or some of several things' },
  usage: { code: 2, meaning: 'the command line or a file is wrong, or --yes is missing; nothing was sent' },
  notFound: { code: 3, meaning: 'there is no such queue, group, key, …' },
  refused: { code: 4, meaning: 'the broker refuses: a bad value, a condition that does not hold, a quota' },
  forbidden: { code: 5, meaning: 'no valid token, or one whose role may not do this' },
  unavailable: { code: 6, meaning: 'no broker answers, or it is overloaded; nothing was done' },
  inDoubt: { code: 7, meaning: 'nobody knows whether it was done: look before you repeat' },
  differs: { code: 8, meaning: 'apply --dry-run --exit-code: something would change' },
  interrupted: { code: 130, meaning: 'interrupted' },
} as const;

export type ExitName = keyof typeof EXIT;

/** An end that is foreseen: a sentence for whoever typed the command, and how the process ends. */
export class Failure extends Error {
  readonly exit: ExitName;
  /** What to do about it. */
  readonly hint: string | undefined;

  constructor(exit: ExitName, message: string, hint?: string) {
    super(message);
    this.name = 'Failure';
    this.exit = exit;
    this.hint = hint;
  }
}

export function usage(message: string, hint?: string): Failure {
  return new Failure('usage', message, hint);
}
