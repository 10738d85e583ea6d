import { useState } from 'preact/hooks';
import { ApiError, errorOf } from '../api/client.ts';
import { setToken, tokenWanted } from '../api/token.ts';
import { Dialog } from '../components/dialog.tsx';
import { useStore } from '../store.ts';

/** Asks for a token when the broker wants one, and keeps only what the broker accepts. */
export function TokenPrompt() {
  const why = useStore(tokenWanted);
  return why === null ? null : <Prompt why={why} />;
}

function Prompt({ why }: { why: string }) {
  const [text, setText] = useState('');
  const [fault, setFault] = useState<string>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    const given = text.trim();
    if (given === '' || busy) return;
    setBusy(true);
    try {
      await check(given);
      setToken(given);
    } catch (error) {
      setFault((error as ApiError).message);
      setBusy(false);
    }
  };
  return (
    <Dialog title="This broker asks for a token" onClose={() => tokenWanted.set(null)}>
      <form onSubmit={submit}>
        <label class="field">
          <span>Access token (JWT)</span>
          <textarea
            value={text}
            spellcheck={false}
            autocomplete="off"
            required
            aria-describedby="token-note"
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <small id="token-note" class={fault === undefined ? '' : 'fault'} role="status">
            {fault ?? `${why}. It is kept in this tab until you close it.`}
          </small>
        </label>
        <div class="actions">
          <button type="button" class="button" onClick={() => tokenWanted.set(null)}>
            Not now
          </button>
          <button type="submit" class="button primary" disabled={busy}>
            Use it
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Rejects with what the broker says against the token. */
async function check(given: string): Promise<void> {
  const headers = new Headers();
  try {
    headers.set('authorization', `Bearer ${given}`);
  } catch {
    throw new ApiError(0, 'not_a_token', 'This is not a token: it has characters that none has.');
  }
  const answer = await fetch('/auth/me', { headers }).catch(() => {
    throw new ApiError(0, 'unreachable', 'The broker does not answer.');
  });
  if (!answer.ok) throw errorOf(answer, await answer.text());
}
