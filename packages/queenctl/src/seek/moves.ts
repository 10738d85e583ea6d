import { type PartitionHead, type Queen, RefusedError, type SeekTarget } from '@queen-mq/client';

/** What a seek does in one partition. Offsets, and numbers of messages. */
export interface Move {
  readonly partition: string;
  /** Null: the group has no cursor there, and nobody knows where it would start. */
  readonly from: number | null;
  /** About where for an instant: delivery resumes at the beginning of the batch that holds this message. */
  readonly to: number;
  /** Never delivered, if it moves. */
  readonly skipped: number;
  /** Passed already, and to be delivered again. */
  readonly again: number;
  /** From there to the end. */
  readonly toCome: number;
}

export interface Where {
  readonly group: string;
  readonly queue: string;
  readonly partition: string | undefined;
}

/** What a seek would do, by partition. @throws RefusedError when there is no such queue or partition */
export async function movesOf(
  queen: Queen,
  { group, queue, partition }: Where,
  { to }: SeekTarget,
  signal: AbortSignal,
): Promise<Move[]> {
  const detail = (await queen.groups.inspect(group, { signal }))[queue];
  const lags = new Map(detail?.partitions.map((each) => [each.partition, each.offsetLag]) ?? []);
  const start = await startOf(queen, group, queue, signal);
  const moves: Move[] = [];
  for await (const page of headsOf(queen, queue, signal)) {
    const heads = partition === undefined ? page : page.filter(({ name }) => name === partition);
    if (heads.length === 0) continue;
    const targets = await targetsOf(queen, queue, heads, to, signal);
    const fresh = heads.filter(({ name }) => !lags.has(name));
    const starts =
      start === null || fresh.length === 0 ? [] : await targetsOf(queen, queue, fresh, start, signal);
    const startAt = new Map(fresh.map(({ name }, at) => [name, starts[at] ?? null]));
    heads.forEach((head, at) => {
      const lag = lags.get(head.name);
      const from = lag === undefined ? startAt.get(head.name)! : Math.max(head.logStart, endOf(head) - lag);
      moves.push(moveOf(head, from, targets[at]!));
    });
  }
  if (moves.length > 0) return moves;
  if (partition === undefined)
    throw new RefusedError('the queue has no partitions', { code: 'partition_not_found' });
  throw new RefusedError(`${queue} has no partition "${partition}"`, { code: 'partition_not_found' });
}

/** Where the group starts on partitions that it has no cursor on; null: it is not registered, its first pop decides. */
async function startOf(
  queen: Queen,
  group: string,
  queue: string,
  signal: AbortSignal,
): Promise<SeekTarget['to'] | null> {
  const groups = await queen.groups.list({ signal });
  const standing = groups.find(({ name, queueName }) => name === group && queueName === queue);
  return standing?.subscriptionMode === 'all' ? 'beginning' : (standing?.subscriptionTimestamp ?? null);
}

function endOf({ lastOffset }: PartitionHead): number {
  return lastOffset + 1;
}

function moveOf(head: PartitionHead, from: number | null, to: number): Move {
  return {
    partition: head.name,
    from,
    to,
    skipped: from === null ? 0 : Math.max(0, to - from),
    again: from === null ? 0 : Math.max(0, from - to),
    toCome: endOf(head) - to,
  };
}

async function targetsOf(
  queen: Queen,
  queue: string,
  heads: readonly PartitionHead[],
  to: SeekTarget['to'],
  signal: AbortSignal,
): Promise<number[]> {
  if (to === 'beginning') return heads.map(({ logStart }) => logStart);
  if (to === 'end') return heads.map(endOf);
  if (typeof to === 'number') return heads.map((head) => Math.min(endOf(head), Math.max(head.logStart, to)));
  const names = heads.map(({ name }) => name);
  const offsets = await queen.log.offsetsAt(queue, names, to, { signal });
  return heads.map((head, at) => offsets[at] ?? endOf(head));
}

async function* headsOf(
  queen: Queen,
  queue: string,
  signal: AbortSignal,
): AsyncGenerator<readonly PartitionHead[], void, undefined> {
  for (let after: string | undefined; ; ) {
    const page = await queen.log.changed(queue, { after, signal });
    yield page.partitions;
    if (page.next === null) return;
    after = page.next;
  }
}
