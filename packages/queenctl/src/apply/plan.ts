import type { Change } from './changes.ts';

/** What has to be done to make one thing as its manifest wants it. */
export interface Plan {
  readonly action: 'create' | 'change' | 'none';
  readonly changes: readonly Change[];
  /** Something is sent although nothing differs that can be seen: a password. */
  readonly resends: boolean;
  /** Does it. @returns what the broker had to say about it */
  apply(): Promise<string[]>;
}
