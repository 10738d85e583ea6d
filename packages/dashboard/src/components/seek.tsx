/** Moves a group on a queue, or on one partition of it, and says before what that will mean. */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { ApiError } from '../api/client.ts';
import { type GroupPartition, type SeekTarget, seek } from '../api/groups.ts';
import { exact, fieldInstant, plural, whole } from '../format.ts';
import { Dialog, DialogEnd } from './dialog.tsx';
import { groupName, partitionName } from './messages.tsx';
import { toast } from './toasts.tsx';

type To = 'end' | 'beginning' | 'instant' | 'offset';

interface SeekDialogProps {
  group: string;
  queue: string;
  /** Null: all partitions of the queue. */
  partition: GroupPartition | null;
  /** Messages that it has not passed yet. */
  lag: number;
  partitions: number;
  onClose: (moved: boolean) => void;
}

export function SeekDialog({ group, queue, partition, lag, partitions, onClose }: SeekDialogProps) {
  const [to, setTo] = useState<To>('end');
  const [instant, setInstant] = useState(fieldInstant(Date.now() - 3_600_000));
  const [offset, setOffset] = useState(String(partition?.nextOffset ?? 0));
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const place =
    partition === null
      ? `all ${plural(partitions, 'partition')} of ${queue}`
      : `${queue}, partition ${partitionName(partition.partition)}`;

  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setError(undefined);
    try {
      const { partitionsUpdated, resumesAt } = await seek(
        group,
        queue,
        partition?.partition ?? null,
        targetOf(to, instant, offset),
      );
      toast(
        resumesAt === null
          ? `Moved ${groupName(group)} on ${plural(partitionsUpdated, 'partition')} of ${queue}.`
          : `Moved ${groupName(group)}: it goes on with offset ${whole(resumesAt)}.`,
      );
      return onClose(true);
    } catch (failure) {
      setError(failure as ApiError);
    }
    setBusy(false);
  };

  return (
    <Dialog title={`Move ${groupName(group)}`} onClose={() => onClose(false)}>
      <form onSubmit={submit}>
        <p>
          On <strong>{place}</strong>, where {plural(lag, 'message is', 'messages are')} left for it.
        </p>
        <fieldset class="choices">
          <legend>Where it goes on</legend>
          <Choice to="end" of={to} onTo={setTo}>
            At the end
          </Choice>
          <Choice to="beginning" of={to} onTo={setTo}>
            At the oldest message that is there
          </Choice>
          <Choice to="instant" of={to} onTo={setTo}>
            At
            <input
              type="datetime-local"
              class="inline"
              aria-label="Date and time, yours"
              step={1}
              required={to === 'instant'}
              disabled={to !== 'instant'}
              value={instant}
              onInput={(event) => setInstant(event.currentTarget.value)}
            />
          </Choice>
          {partition !== null && (
            <Choice to="offset" of={to} onTo={setTo}>
              At offset
              <input
                type="number"
                class="inline-number"
                aria-label="Offset"
                min={0}
                step={1}
                required={to === 'offset'}
                disabled={to !== 'offset'}
                value={offset}
                onInput={(event) => setOffset(event.currentTarget.value)}
              />
            </Choice>
          )}
        </fieldset>
        <div class="consequence" role="status">
          {consequence(to, instant, offset, lag, partition)}
          <p>Leases end, so acks of what is out for processing now are refused.</p>
        </div>
        <DialogEnd action="Move the group" danger busy={busy} error={error} onClose={() => onClose(false)} />
      </form>
    </Dialog>
  );
}

function Choice({
  to,
  of,
  onTo,
  children,
}: {
  to: To;
  of: To;
  onTo: (to: To) => void;
  children: ComponentChildren;
}) {
  return (
    <label>
      <input type="radio" name="to" checked={to === of} onChange={() => onTo(to)} />
      {children}
    </label>
  );
}

function consequence(to: To, instant: string, offset: string, lag: number, partition: GroupPartition | null) {
  if (to === 'end') {
    return (
      <p>
        {lag === 0
          ? 'It is at the end already, but for what comes meanwhile.'
          : `It never gets the ${plural(lag, 'message')} that ${lag === 1 ? 'is' : 'are'} left now, and goes on with what comes next.`}
      </p>
    );
  }
  if (to === 'beginning')
    return <p>It gets everything that is retained once more, what it has completed too.</p>;
  if (to === 'instant') {
    const ms = Date.parse(instant);
    return (
      <p>
        It goes on with what was stored at{' '}
        {Number.isNaN(ms) ? 'that time' : exact(new Date(ms).toISOString())} or after: what it completed since
        comes once more, what waits from before is skipped.
      </p>
    );
  }
  const next = partition!.nextOffset;
  const wanted = Number(offset);
  if (wanted === next) return <p>It is there already.</p>;
  return (
    <p>
      {wanted < next
        ? `It gets ${plural(next - wanted, 'message')} before its place once more, as far as they are retained.`
        : `It never gets ${plural(Math.min(wanted, partition!.endOffset) - next, 'message')} that ${wanted - next === 1 ? 'waits' : 'wait'} for it now.`}
    </p>
  );
}

function targetOf(to: To, instant: string, offset: string): SeekTarget {
  switch (to) {
    case 'end':
      return { toEnd: true };
    case 'beginning':
      return { toBeginning: true };
    case 'instant':
      return { timestamp: new Date(instant).toISOString() };
    default:
      return { offset: Number(offset) };
  }
}
