import { EngineError } from '../engine/errors.ts';
import { ClientGone } from './body.ts';
import { Fault, type FaultCode } from './errors.ts';

/**
 * The faults of a family of routes whose answers have one of its codes as `error`, never a sentence: its clients go by it.
 */
export class CodedFaults {
  readonly #codes: ReadonlySet<string>;
  readonly #failed: FaultCode;
  readonly #unavailable: string;

  /**
   * @param codes codes of the engine that the wire has a status for
   * @param failed the fault of everything else
   * @param unavailable what the client hears then
   */
  constructor(codes: readonly FaultCode[], failed: FaultCode, unavailable: FaultCode) {
    this.#codes = new Set(codes);
    this.#failed = failed;
    this.#unavailable = unavailable;
  }

  /** The answer to anything thrown by a route. */
  of(error: unknown): Fault | ClientGone {
    if (error instanceof Fault || error instanceof ClientGone) return error;
    if (!(error instanceof EngineError)) return this.fault(this.#failed, 'internal error', { cause: error });
    const { code, reason, message, field, retryAfterSeconds } = error;
    if (this.#codes.has(code)) {
      return this.fault(code as FaultCode, message, { reason, cause: error, field, retryAfterSeconds });
    }
    const why = error.kind === 'in_doubt' ? 'in_doubt' : code;
    return this.fault(this.#failed, message, { reason: why, cause: error, field });
  }

  fault(
    code: FaultCode,
    sentence: string,
    more: {
      reason?: string | undefined;
      cause?: unknown;
      field?: string | undefined;
      retryAfterSeconds?: number | undefined;
    },
  ): Fault {
    const error = code === this.#failed ? this.#unavailable : code;
    const { reason, ...rest } = more;
    const extra = { ...(reason === undefined ? {} : { reason }), message: sentence };
    return new Fault(code, { message: error, code: error, ...rest, extra });
  }
}
