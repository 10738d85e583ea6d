/** Schedules a timer, or replaces one that is pending. */
import { useState } from 'preact/hooks';
import type { ApiError } from '../api/client.ts';
import { payloadText, schedule, type Timer, type TimerResult } from '../api/timers.ts';
import { fieldInstant } from '../format.ts';
import { Dialog, DialogEnd } from './dialog.tsx';
import { TextField } from './field.tsx';
import { JsonField, jsonFault } from './json_field.tsx';

const UNITS = { seconds: 1_000, minutes: 60_000, hours: 3_600_000, days: 86_400_000 } as const;
type Unit = keyof typeof UNITS;

interface TimerFormProps {
  /** What is given already. */
  queue?: string;
  /** What is replaced; null: a new one. */
  timer: (Timer & { payload: string }) | null;
  onClose: () => void;
  onScheduled: (place: { queue: string; timerKey: string }, result: TimerResult) => void;
}

export function TimerForm({ queue: given, timer, onClose, onScheduled }: TimerFormProps) {
  const [kept] = useState(() => (timer === null ? '' : payloadText(timer)));
  const [queue, setQueue] = useState(timer?.queue ?? given ?? '');
  const [timerKey, setTimerKey] = useState(timer?.timerKey ?? '');
  const [partition, setPartition] = useState(timer?.partition ?? 'Default');
  const [txn, setTxn] = useState(timer?.txn ?? '');
  const [text, setText] = useState(kept ?? '');
  const [absolute, setAbsolute] = useState(timer !== null);
  const [amount, setAmount] = useState('10');
  const [unit, setUnit] = useState<Unit>('minutes');
  const [instant, setInstant] = useState(
    fieldInstant(timer === null ? Date.now() + UNITS.hours : Date.parse(timer.deliverAt)),
  );
  const [fault, setFault] = useState<string | null>(null);
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);

  const submit = async (event: Event) => {
    event.preventDefault();
    const wrong = jsonFault(text);
    setFault(wrong);
    if (wrong !== null || busy) return;
    const delayMs = absolute ? Date.parse(instant) - Date.now() : Math.round(Number(amount) * UNITS[unit]);
    setBusy(true);
    setError(undefined);
    try {
      const named = txn === '' ? `${timerKey}-${unlikeOthers()}` : txn;
      const result = await schedule({ queue, timerKey, partition, delayMs, txn: named, payload: text });
      return onScheduled({ queue, timerKey }, result);
    } catch (failure) {
      setError(failure as ApiError);
    }
    setBusy(false);
  };

  return (
    <Dialog title={timer === null ? 'Schedule a message' : `Reschedule ${timerKey}`} wide onClose={onClose}>
      <form onSubmit={submit}>
        {timer === null && (
          <div class="pair">
            <TextField
              label="Queue"
              value={queue}
              onValue={setQueue}
              required
              readOnly={given !== undefined}
            />
            <TextField
              required
              label="Key"
              value={timerKey}
              onValue={setTimerKey}
              note="One timer is pending for it at most."
            />
          </div>
        )}
        <fieldset class="choices">
          <legend>When</legend>
          <label>
            <input type="radio" name="when" checked={!absolute} onChange={() => setAbsolute(false)} />
            In
            <input
              type="number"
              class="inline-number"
              aria-label="How many"
              min={0}
              step="any"
              required={!absolute}
              disabled={absolute}
              value={amount}
              onInput={(event) => setAmount(event.currentTarget.value)}
            />
            <select
              class="inline"
              aria-label="Unit"
              disabled={absolute}
              value={unit}
              onChange={(event) => setUnit(event.currentTarget.value as Unit)}
            >
              {Object.keys(UNITS).map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
          <label>
            <input type="radio" name="when" checked={absolute} onChange={() => setAbsolute(true)} />
            At
            <input
              type="datetime-local"
              class="inline"
              aria-label="Date and time, yours"
              step={1}
              required={absolute}
              disabled={!absolute}
              value={instant}
              onInput={(event) => setInstant(event.currentTarget.value)}
            />
          </label>
        </fieldset>
        <JsonField
          label="Payload (JSON)"
          text={text}
          onText={setText}
          fault={fault}
          rows={8}
          note={
            kept === null ? 'The pending one is stored compressed or encrypted: write it again.' : undefined
          }
        />
        <div class="pair">
          <TextField label="Partition" value={partition} onValue={setPartition} />
          <TextField
            label="Transaction id of the message"
            value={txn}
            onValue={setTxn}
            note="Empty: one is made of the key."
          />
        </div>
        <DialogEnd
          action={timer === null ? 'Schedule' : 'Reschedule'}
          leave="Close"
          busy={busy}
          error={error}
          onClose={onClose}
        />
      </form>
    </Dialog>
  );
}

/** Not crypto.randomUUID: that is only there over HTTPS and on this machine. */
function unlikeOthers(): string {
  return [...crypto.getRandomValues(new Uint8Array(6))]
    .map((each) => each.toString(16).padStart(2, '0'))
    .join('');
}
