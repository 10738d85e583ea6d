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

/** A group's name as a link to it; consumers without a group have no page. */
export function Group({ name }: { name: string }) {
  if (name === WITHOUT_GROUP) return <span class="muted">without a group</span>;
  return <a href={`/groups/${encodeURIComponent(name)}`}>{name}</a>;
}

export const queuePath = (queue: string) => `/queues/${encodeURIComponent(queue)}`;
export const partitionPath = (queue: string, partition: string) =>
  `${queuePath(queue)}/partitions/${encodeURIComponent(partition)}`;
export const messagePath = (partitionId: string, transactionId: string) =>
  `/messages/${encodeURIComponent(partitionId)}/${encodeURIComponent(transactionId)}`;

/** The beginning of a payload, on one line. */
export function Glimpse({ text }: { text: string }) {
  return <code class="glimpse">{text.slice(0, 160).replace(/\s+/g, ' ')}</code>;
}
