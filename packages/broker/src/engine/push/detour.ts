/**
 * The way around the database: what cannot be stored now is kept on this broker's disk and stored later. The push path
 * knows no more of it than this.
 */
import type { Frame } from '../../log/frame.ts';

/** Messages of one lane, in order, to be kept together or not at all. */
export interface Detoured {
  readonly tenant: string;
  readonly queue: string;
  readonly partition: string;
  /** Of the lane. */
  readonly key: string;
  /** Ids and transactionIds are those that the answer names. Payloads in the clear. */
  readonly frames: readonly Frame[];
  /** The queue stores encrypted payloads. Null: nobody could look. */
  readonly encrypts: boolean | null;
}

export type Way = 'log' | 'spool';

export interface Detour {
  /**
   * Where the next messages of a lane go. `log`: to the database. What is ahead of them on disk is stored before that is
   * answered, so they overtake nothing. Never rejects.
   */
  way(key: string): Way | Promise<Way>;
  /**
   * Resolves when they are kept, and then the answer says `buffered`; rejects with an EngineError when they are not. The lane
   * is busy until it settles.
   * @param failed a flush failed, rather than nobody tried
   */
  keep(messages: Detoured, failed: boolean): Promise<void>;
}
