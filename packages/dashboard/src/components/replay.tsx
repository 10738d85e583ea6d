/** Dead letters are pushed again: one, some, or all that a filter lets through. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from '../api/client.ts';
import { type DeadLetter, type DeadLetterFilter, type Destination, replay } from '../api/dead_letters.ts';
import { type ReplayTally, replayMatching } from '../api/replay_all.ts';
import { plural, whole } from '../format.ts';
import { Dialog } from './dialog.tsx';
import { TextField } from './field.tsx';
import { partitionName } from './messages.tsx';
import { ErrorNote } from './page.tsx';
import { toast } from './toasts.tsx';

export type ReplayOf =
  | { kind: 'some'; letters: readonly Pick<DeadLetter, 'id' | 'queue' | 'partition'>[] }
  | { kind: 'matching'; filter: DeadLetterFilter; total: number };

interface ReplayDialogProps {
  of: ReplayOf;
  /** `changed`: something was pushed. */
  onClose: (changed: boolean) => void;
}

export function ReplayDialog({ of, onClose }: ReplayDialogProps) {
  const count = of.kind === 'some' ? of.letters.length : of.total;
  const single = of.kind === 'some' && of.letters.length === 1;
  const [elsewhere, setElsewhere] = useState(false);
  const [queue, setQueue] = useState('');
  const [partition, setPartition] = useState('');
  const [tally, setTally] = useState<ReplayTally>();
  const [error, setError] = useState<ApiError>();
  const running = useRef<AbortController>(undefined);
  const [busy, setBusy] = useState(false);
  useEffect(() => () => running.current?.abort(), []);

  const close = () => onClose((tally?.moved ?? 0) > 0);
  const go = async (event: Event) => {
    event.preventDefault();
    if (busy) return;
    const to: Destination = elsewhere
      ? { queue: queue.trim() || null, partition: partition.trim() || null }
      : { queue: null, partition: null };
    setBusy(true);
    setError(undefined);
    setTally(undefined);
    const mine = new AbortController();
    running.current = mine;
    try {
      if (single) {
        const done = await replay(of.letters[0]!.id, to, mine.signal);
        if (done.result === 'moved') {
          toast(
            `Pushed into ${done.queue}, partition ${partitionName(done.partition)}, at offset ${done.replayedAs.offset}.`,
          );
          return onClose(true);
        }
        throw new ApiError(
          409,
          'duplicate',
          'The destination holds it already, so nothing was pushed and the dead letter is kept.',
        );
      }
      const done = await replayMatching(of, to, setTally, mine.signal);
      if (done.kept === 0 && !mine.signal.aborted) {
        toast(`${plural(done.moved, 'dead letter')} pushed again.`);
        return onClose(true);
      }
    } catch (failure) {
      if (!mine.signal.aborted) setError(failure as ApiError);
    }
    setBusy(false);
  };

  return (
    <Dialog
      title={single ? 'Replay this dead letter' : `Replay ${plural(count, 'dead letter')}`}
      onClose={close}
    >
      <form onSubmit={go}>
        <p>
          {single ? 'It is' : 'Each is'} pushed as a new message to the end of a partition, where every
          consumer group gets it, and is a dead letter no more. {!single && 'The oldest goes first. '}
        </p>
        <fieldset class="choices" disabled={busy}>
          <legend>Where to</legend>
          <label>
            <input type="radio" name="to" checked={!elsewhere} onChange={() => setElsewhere(false)} />
            {single
              ? `Where it came from: ${of.letters[0]!.queue}, partition ${partitionName(of.letters[0]!.partition)}`
              : 'Where each came from'}
          </label>
          <label>
            <input type="radio" name="to" checked={elsewhere} onChange={() => setElsewhere(true)} />
            Somewhere else
          </label>
        </fieldset>
        {elsewhere && (
          <div class="pair">
            <TextField
              label="Queue"
              value={queue}
              onValue={setQueue}
              disabled={busy}
              note="Empty: its own. One that is not there is made."
            />
            <TextField
              label="Partition"
              value={partition}
              onValue={setPartition}
              disabled={busy}
              note="Empty: of the same name."
            />
          </div>
        )}
        {tally !== undefined && <Progress tally={tally} count={count} running={busy} />}
        {error !== undefined && <ErrorNote error={error} />}
        <div class="actions">
          {busy && !single ? (
            <button type="button" class="button" onClick={() => running.current?.abort()}>
              Stop
            </button>
          ) : (
            <button type="button" class="button" onClick={close}>
              {tally === undefined ? 'Cancel' : 'Close'}
            </button>
          )}
          <button type="submit" class="button primary" disabled={busy}>
            {busy ? 'Working…' : 'Replay'}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Progress({ tally, count, running }: { tally: ReplayTally; count: number; running: boolean }) {
  const done = tally.moved + tally.kept + tally.gone;
  return (
    <div class="progress">
      <progress max={Math.max(count, done)} value={done} aria-label="Replayed" />
      <p role="status">
        {running ? '' : 'Stopped: '}
        {whole(tally.moved)} of {whole(Math.max(count, done))} pushed again
        {tally.gone > 0 && `, ${whole(tally.gone)} were gone already`}
        {tally.kept > 0 && `, ${whole(tally.kept)} kept`}.
      </p>
      {tally.reasons.length > 0 && (
        <ul>
          {tally.reasons.map(({ code, message, count: each }) => (
            <li key={code}>
              {whole(each)}: {message} <code>{code}</code>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
