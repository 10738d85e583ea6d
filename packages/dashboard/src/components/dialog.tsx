/** Dialogs on the browser's own: it keeps the focus inside, closes on Escape, and gives the focus back. */
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import type { ApiError } from '../api/client.ts';
import { store, useStore } from '../store.ts';
import { ErrorNote } from './page.tsx';

interface DialogProps {
  title: string;
  onClose: () => void;
  /** For what people write in. */
  wide?: boolean;
  children: ComponentChildren;
}

/** Open as long as it is rendered. */
export function Dialog({ title, onClose, wide = false, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const opener = document.activeElement;
    const element = dialog.current!;
    element.showModal();
    return () => {
      element.close();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={wide ? 'wide' : ''}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <div class="inside">
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

interface DialogEndProps {
  /** The verb on the button. */
  action: string;
  danger?: boolean;
  /** False: something is to be given first. */
  ready?: boolean;
  /** It is being done. */
  busy: boolean;
  error: ApiError | undefined;
  /** Does it. Without, the button submits the form that it stands in. */
  onAction?: () => void;
  /** What stands on the button that does nothing. */
  leave?: string;
  onClose: () => void;
}

/** The end of a dialog: what went wrong, the way out, and the button that does it. */
export function DialogEnd({
  action,
  danger = false,
  ready = true,
  busy,
  error,
  onAction,
  leave = 'Cancel',
  onClose,
}: DialogEndProps) {
  return (
    <>
      {error !== undefined && <ErrorNote error={error} />}
      <div class="actions">
        <button type="button" class="button" onClick={onClose}>
          {leave}
        </button>
        <button
          type={onAction === undefined ? 'submit' : 'button'}
          class={`button primary ${danger ? 'danger' : ''}`}
          disabled={!ready || busy}
          onClick={onAction}
        >
          {busy ? 'Working…' : action}
        </button>
      </div>
    </>
  );
}

export interface Question {
  title: string;
  body: ComponentChildren;
  /** The verb on the button. */
  action: string;
  /** It cannot be undone. */
  danger?: boolean;
  /** Must be typed before the button works: for what destroys much. */
  typed?: string;
  /** Does it. The dialog waits, and stays open with the error when it rejects. */
  run?: () => Promise<unknown>;
}

interface Asked extends Question {
  answer: (yes: boolean) => void;
}

const asked = store<Asked | null>(null);

/** Asks. True: yes, and `run` went well. */
export function confirm(question: Question): Promise<boolean> {
  asked.get()?.answer(false);
  return new Promise((resolve) => {
    const mine: Asked = {
      ...question,
      answer(yes) {
        // What is done after it was given up takes no later question away.
        if (asked.get() === mine) asked.set(null);
        resolve(yes);
      },
    };
    asked.set(mine);
  });
}

/** Where questions appear; once, in the shell. */
export function Questions() {
  const question = useStore(asked);
  return question === null ? null : <QuestionDialog key={question.title} {...question} />;
}

function QuestionDialog({ title, body, action, danger = false, typed, run, answer }: Asked) {
  const [text, setText] = useState('');
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const ready = typed === undefined || text === typed;
  const go = async () => {
    if (!ready || busy) return;
    setBusy(true);
    setError(undefined);
    try {
      await run?.();
      answer(true);
    } catch (failure) {
      setError(failure as ApiError);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={() => answer(false)}>
      <div>{body}</div>
      {typed !== undefined && (
        <label class="field">
          <span>
            Type <code>{typed}</code> to go on
          </span>
          <input
            value={text}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setText(event.currentTarget.value)}
            onKeyDown={(event) => event.key === 'Enter' && void go()}
          />
        </label>
      )}
      <DialogEnd
        action={action}
        danger={danger}
        ready={ready}
        busy={busy}
        error={error}
        onAction={() => void go()}
        onClose={() => answer(false)}
      />
    </Dialog>
  );
}
