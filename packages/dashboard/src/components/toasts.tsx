/** Short news of what was done, which a screen reader hears too. */
import { store, useStore } from '../store.ts';
import { Icon } from './icons.tsx';

interface Toast {
  id: number;
  text: string;
  tone: 'good' | 'bad';
}

const SHOWN_MS = 6_000;
const toasts = store<readonly Toast[]>([]);
let lastId = 0;

/** Shows a sentence for some seconds; a bad one stays until it is closed. */
export function toast(text: string, tone: 'good' | 'bad' = 'good'): void {
  const id = ++lastId;
  toasts.set([...toasts.get(), { id, text, tone }]);
  if (tone === 'good') setTimeout(() => close(id), SHOWN_MS);
}

function close(id: number): void {
  toasts.set(toasts.get().filter((each) => each.id !== id));
}

export function Toasts() {
  const shown = useStore(toasts);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.map(({ id, text, tone }) => (
        <div key={id} class={`toast ${tone}`}>
          <span>{text}</span>
          <button type="button" class="copy" aria-label="Close" onClick={() => close(id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
