/**
 * The answers to statements that were sent one behind the other. When one fails, those behind it fail for its sake: the first
 * failure is the one that counts, and nothing is thrown before all have been answered.
 */
export async function all<T>(answers: readonly Promise<T>[]): Promise<T[]> {
  const { values, failed } = await settle(answers);
  if (failed !== null) throw failed.error;
  return values;
}

export interface Failed {
  /** Which of them. */
  readonly index: number;
  readonly error: unknown;
}

/** The same without throwing: what came before the first failure, and that. */
export async function settle<T>(
  answers: readonly Promise<T>[],
): Promise<{ values: T[]; failed: Failed | null }> {
  const settled = await Promise.allSettled(answers);
  const values: T[] = [];
  for (const [index, answer] of settled.entries()) {
    if (answer.status === 'rejected') return { values, failed: { index, error: answer.reason } };
    values.push(answer.value);
  }
  return { values, failed: null };
}
