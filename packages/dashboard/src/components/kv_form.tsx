/** Writes an entry, and only over the version that was seen. */
import { useState } from 'preact/hooks';
import type { ApiError } from '../api/client.ts';
import { indented, type RawJson } from '../api/json_text.ts';
import { type Entry, type Life, putEntry, type Written } from '../api/kv.ts';
import { whole } from '../format.ts';
import { Dialog, DialogEnd } from './dialog.tsx';
import { TextField } from './field.tsx';
import { JsonField, jsonFault } from './json_field.tsx';
import { Payload } from './payload.tsx';

export interface EntryPlace {
  namespace: string;
  key: string;
}

interface EntryFormProps {
  /** Names that are given already. */
  place: Partial<EntryPlace>;
  /** What is edited; null: a new entry. */
  entry: Entry | null;
  onClose: () => void;
  onWritten: (place: EntryPlace, version: number) => void;
}

export function EntryForm({ place, entry, onClose, onWritten }: EntryFormProps) {
  const [namespace, setNamespace] = useState(place.namespace ?? '');
  const [key, setKey] = useState(place.key ?? '');
  const [text, setText] = useState(() => (entry === null ? '' : written(entry.value)));
  const [stays, setStays] = useState(entry === null || entry.expiresAt === null);
  const [seconds, setSeconds] = useState(entry === null ? '3600' : secondsLeft(entry));
  const [fault, setFault] = useState<string | null>(null);
  const [error, setError] = useState<ApiError>();
  const [lost, setLost] = useState<Written>();
  const [busy, setBusy] = useState(false);
  const [expect, setExpect] = useState(entry?.version ?? 0);

  const write = async (over: number) => {
    const wrong = jsonFault(text);
    setFault(wrong);
    if (wrong !== null || busy) return;
    const life: Life = stays ? { forever: true } : { ttlSeconds: Number(seconds) };
    setBusy(true);
    setError(undefined);
    setLost(undefined);
    try {
      const result = await putEntry({ namespace, key }, text, life, over);
      if (result.applied) return onWritten({ namespace, key }, result.version);
      setLost(result);
      setExpect(over);
    } catch (failure) {
      setError(failure as ApiError);
    }
    setBusy(false);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void write(expect);
  };

  return (
    <Dialog title={entry === null ? 'New entry' : `Edit ${key}`} wide onClose={onClose}>
      <form onSubmit={submit}>
        {entry === null && (
          <div class="pair">
            <TextField
              label="Namespace"
              value={namespace}
              onValue={setNamespace}
              required
              readOnly={place.namespace !== undefined}
            />
            <TextField label="Key" value={key} onValue={setKey} required readOnly={place.key !== undefined} />
          </div>
        )}
        <JsonField
          label="Value (JSON)"
          text={text}
          onText={setText}
          fault={fault}
          note={
            entry === null
              ? 'It is written only if nothing is there yet.'
              : `It is written only if version ${expect} is still the current one.`
          }
        />
        <fieldset class="choices">
          <legend>Life</legend>
          <label>
            <input type="radio" name="life" checked={stays} onChange={() => setStays(true)} />
            Stays until it is deleted
          </label>
          <label>
            <input type="radio" name="life" checked={!stays} onChange={() => setStays(false)} />
            Expires after
            <input
              type="number"
              class="inline-number"
              aria-label="Seconds"
              min={1}
              step={1}
              required={!stays}
              disabled={stays}
              value={seconds}
              onInput={(event) => setSeconds(event.currentTarget.value)}
            />
            seconds
          </label>
        </fieldset>
        {lost !== undefined && (
          <Conflict
            lost={lost}
            expected={expect}
            onTake={() => {
              setText(written(lost.value));
              setExpect(lost.version);
              setLost(undefined);
            }}
            onOverwrite={() => void write(lost.version)}
          />
        )}
        <DialogEnd action={entry === null ? 'Create' : 'Save'} busy={busy} error={error} onClose={onClose} />
      </form>
    </Dialog>
  );
}

interface ConflictProps {
  lost: Written;
  expected: number;
  onTake: () => void;
  onOverwrite: () => void;
}

function Conflict({ lost, expected, onTake, onOverwrite }: ConflictProps) {
  const gone = lost.version === 0;
  return (
    <div class="conflict" role="alert">
      <p>
        <strong>Nothing was written.</strong>{' '}
        {gone
          ? `Version ${whole(expected)} was deleted, or expired, meanwhile.`
          : expected === 0
            ? `There is an entry under this key already, at version ${whole(lost.version)}.`
            : `Somebody changed it meanwhile: it is at version ${whole(lost.version)} now, not ${whole(expected)}.`}
      </p>
      {!gone && <Payload json={lost.value} what="value that is there" />}
      <div class="actions">
        {!gone && (
          <button type="button" class="button small" onClick={onTake}>
            Edit version {whole(lost.version)} instead
          </button>
        )}
        <button type="button" class="button small" onClick={onOverwrite}>
          {gone ? 'Create it anew' : `Write mine over version ${whole(lost.version)}`}
        </button>
      </div>
    </div>
  );
}

/** With line breaks, for people; every digit stays. */
function written(value: RawJson): string {
  return indented(value.text)
    .map(({ text }) => text)
    .join('');
}

function secondsLeft({ expiresAt }: Entry): string {
  if (expiresAt === null) return '3600';
  return String(Math.max(1, Math.round((Date.parse(expiresAt) - Date.now()) / 1000)));
}
