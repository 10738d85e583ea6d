/**
 * What all workers of a sink share: the checks of the target, and the work as the table is now. The checks are made at the start,
 * now and then, and after errors that a change of the table would explain.
 */
import type { SinkSettings } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import type { SqlSession } from '../session/types.ts';
import { ensureProgressTable } from './progress_table.ts';
import { checkStatement } from './statement_check.ts';
import { readTarget, type Target } from './target.ts';
import { type Work, workOf } from './work.ts';

export class Workshop {
  readonly #settings: SinkSettings;
  readonly #dial: () => Promise<SqlSession>;
  #target: Target | null = null;
  #work: Work | null = null;
  #checking: Promise<void> | null = null;

  constructor(settings: SinkSettings, dial: () => Promise<SqlSession>) {
    this.#settings = settings;
    this.#dial = dial;
  }

  /** As of the last check, which there must have been. */
  get work(): Work {
    return this.#work!;
  }

  /** Throws ConnectorFault. Calls while a check is under way share it. */
  check(): Promise<void> {
    this.#checking ??= this.#check().finally(() => {
      this.#checking = null;
    });
    return this.#checking;
  }

  async #check(): Promise<void> {
    const session = await this.#dial();
    try {
      const target = this.#settings.mode === 'sql' ? null : await readTarget(session, this.#settings);
      await ensureProgressTable(session, this.#settings);
      if (target === null) await checkStatement(session, this.#settings);
      const same = this.#work !== null && this.#target?.fingerprint === target?.fingerprint;
      if (!same) this.#work = workOf(this.#settings, target);
      this.#target = target;
    } finally {
      await session.close();
    }
  }
}

/** Of a check in between: the sink cannot go on, as against a database that is away for now. */
export function isFinding(error: unknown): boolean {
  return error instanceof ConnectorFault && FINDINGS.has(error.code);
}

const FINDINGS = new Set(['table_missing', 'no_key', 'metadata_column', 'statement', 'progress_table']);
