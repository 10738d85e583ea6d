/**
 * What a push answers when its flush failed. The two kinds are never mixed up, in words neither: after `unavailable`
 * nothing was written; after `in doubt` the message may be stored, and sending it again with the same transactionId
 * tells (`duplicate` with its id, inside the window).
 */
import type { Frame } from '../../log/frame.ts';
import type { EngineError } from '../errors.ts';

export interface FailedFrames {
  readonly tenant: string;
  readonly queue: string;
  readonly partition: string;
  /** In order. Ids and transactionIds are those that the answer names. */
  readonly frames: readonly Frame[];
  readonly error: EngineError;
}

/**
 * Where frames go that the database did not take. Resolves when they are kept (the answer says `buffered` then), rejects
 * when they are not (`failed`). The lane stays busy until it settles, so what is pushed later cannot overtake.
 */
export type Spill = (failed: FailedFrames) => Promise<void>;

export function failureText(error: EngineError): string {
  switch (error.kind) {
    case 'in_doubt':
      return `in doubt: ${error.message}; it may have been stored, send it again with the same transactionId`;
    case 'refused':
      return error.code === 'encryption_required' ? error.message : `refused: ${error.message}`;
    default:
      return `unavailable: ${error.message}; nothing was written, send it again`;
  }
}
