import type { KvOutcome, KvAnswer as StepAnswer } from '../../store/kv.ts';
import type { KvAnswer, KvOperation, KvReason, KvResult } from './operations.ts';

/** What the caller hears, by the index of each operation. */
export function renderAnswer(outcome: KvOutcome, operations: readonly KvOperation[]): KvAnswer {
  const { failed, answers } = outcome;
  if (failed !== null) {
    const { reason, version, value } = answers[failed.step]!;
    const precondition = {
      failedIndex: failed.step,
      reason: reason as KvReason,
      version: version ?? 0,
      value,
    };
    return { ok: false, precondition };
  }
  return { ok: true, results: operations.map((operation, i) => resultOf(operation, answers[i]!)) };
}

function resultOf(operation: KvOperation, answer: StepAnswer): KvResult {
  switch (operation.op) {
    case 'get':
      return {
        op: 'get',
        key: operation.key,
        entry: answer.done
          ? {
              key: operation.key,
              value: answer.value,
              version: answer.version!,
              expiresAtMicros: answer.expiresAtMicros,
              updatedAtMicros: answer.updatedAtMicros!,
            }
          : null,
      };
    case 'getMany': {
      const there = new Set(answer.omitted);
      for (const row of answer.rows) there.add(row.key);
      const missing = [...new Set(operation.keys)].filter((key) => !there.has(key));
      return { op: 'getMany', rows: answer.rows, missing, truncated: answer.truncated };
    }
    case 'getPrefix': {
      const nextAfter = answer.truncated ? answer.rows.at(-1)!.key : null;
      return { op: 'getPrefix', rows: answer.rows, truncated: answer.truncated, nextAfter };
    }
    default:
      return {
        op: operation.op,
        key: operation.key,
        applied: answer.done,
        value: answer.done && 'value' in operation ? operation.value : answer.value,
        version: answer.version ?? 0,
        reason: answer.reason as KvReason | null,
      };
  }
}
