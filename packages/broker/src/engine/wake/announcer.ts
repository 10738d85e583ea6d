/**
 * What the writing paths tell the rest of the broker (and the peers) about work that became available. All
 * calls are synchronous, cheap and never throw: an announcement is a hint. A lost one costs a parked consumer
 * about a second, never a message.
 */

/** One partition that a committed append touched. */
export interface Announcement {
  tenant: string;
  queue: string;
  partitionId: number;
  /** The partition's `last_offset` after the append. */
  lastOffset: number;
}

export interface Announcer {
  /** After the commit of a push, or of anything else that appended. */
  pushed(list: readonly Announcement[]): void;
  /**
   * An ack released a lease or left a backlog: the partition may be claimed again by `group`.
   * @param committed the group's cursor after the ack, where the caller knows it: with it a completed batch
   *   of a partition without more work costs no empty claim. Leave it out after a failed or retried batch.
   */
  released(partitionId: number, group: string, committed?: number): void;
  /** Drops everything that is remembered about the queue, here and at the peers. */
  queueDeleted(tenant: string, queue: string): void;
}
