/** What pages that show messages have in common. */
import type { MessageStatus } from '../api/messages.ts';
import { Badge, type Tone } from './tiles.tsx';

const STATUSES: Record<MessageStatus, readonly [string, Tone | 'accent' | undefined]> = {
  pending: ['Pending', undefined],
  processing: ['Processing', 'accent'],
  completed: ['Completed', 'good'],
  dead_letter: ['Dead letter', 'bad'],
};

export function Status({ of }: { of: MessageStatus }) {
  const [text, tone] = STATUSES[of];
  return <Badge tone={tone}>{text}</Badge>;
}

/** Pops without a group share a cursor, which the broker calls by this name. */
const WITHOUT_GROUP = '__QUEUE_MODE__';
/** Timers that could not be fired are dead letters of a group that nobody is in. */
const TIMERS = '__timer__';

/** What people call the group. */
export function groupName(group: string): string {
  if (group === WITHOUT_GROUP) return 'without a group';
  return group === TIMERS ? 'timers that could not be fired' : group;
}

export const groupPath = (group: string) => `/groups/${encodeURIComponent(group)}`;

/** A group's name as a link to it. */
export function Group({ name }: { name: string }) {
  return name === TIMERS ? <span>{groupName(name)}</span> : <a href={groupPath(name)}>{groupName(name)}</a>;
}

/** A partition's name as a link to it. */
export function PartitionLink({ queue, partition }: { queue: string; partition: string }) {
  return <a href={partitionPath(queue, partition)}>{partitionName(partition)}</a>;
}

/** What people see of a partition's name, which may be empty. */
export const partitionName = (partition: string) => (partition === '' ? '(empty name)' : partition);

export const queuePath = (queue: string) => `/queues/${encodeURIComponent(queue)}`;
export const partitionPath = (queue: string, partition: string) =>
  `${queuePath(queue)}/partitions/${encodeURIComponent(partition)}`;
/** The dead letters of a queue, or of one group on it. */
export const deadLettersPath = (queue: string, group?: string) =>
  `/dlq?queue=${encodeURIComponent(queue)}${group === undefined ? '' : `&group=${encodeURIComponent(group)}`}`;
export const messagePath = (partitionId: string, transactionId: string) =>
  `/messages/${encodeURIComponent(partitionId)}/${encodeURIComponent(transactionId)}`;

/** The beginning of a payload, on one line. */
export function Glimpse({ text }: { text: string }) {
  return <code class="glimpse">{text.slice(0, 160).replace(/\s+/g, ' ')}</code>;
}
