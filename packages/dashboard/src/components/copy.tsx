import { useState } from 'preact/hooks';
import { Icon } from './icons.tsx';
import { toast } from './toasts.tsx';

/** Copies `text`; `what` names it for those who cannot see what it stands beside. */
export function Copy({ text, what }: { text: string; what: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await write(text);
      setDone(true);
      setTimeout(() => setDone(false), 1_500);
    } catch {
      toast('The browser did not allow to copy.', 'bad');
    }
  };
  return (
    <button type="button" class="copy" aria-label={done ? `Copied ${what}` : `Copy ${what}`} onClick={copy}>
      <Icon name={done ? 'done' : 'copy'} />
    </button>
  );
}

/** Text in the fixed font with a button beside it. */
export function Copyable({ text, what }: { text: string; what: string }) {
  return (
    <span class="copyable">
      <code>{text}</code>
      <Copy text={text} what={what} />
    </span>
  );
}

/** The clipboard is only there over HTTPS and on this machine; elsewhere the old way does. */
async function write(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'hidden-visually';
  document.body.append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  if (!copied) throw new Error('not copied');
}
