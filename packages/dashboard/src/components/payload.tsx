/** JSON as it was sent, to the last digit. */
import { useMemo, useState } from 'preact/hooks';
import { indented, type RawJson } from '../api/json_text.ts';
import { bytes, whole } from '../format.ts';
import { Copy } from './copy.tsx';

/** Characters that are shown without being asked for: more makes the page slow. */
const SHOWN_CHARACTERS = 200_000;

/** `what` names it: "payload". */
export function Payload({ json, what = 'payload' }: { json: RawJson; what?: string }) {
  const [pretty, setPretty] = useState(true);
  const [all, setAll] = useState(false);
  const { text } = json;
  const cut = !all && text.length > SHOWN_CHARACTERS;
  const shown = cut ? text.slice(0, SHOWN_CHARACTERS) : text;
  const tokens = useMemo(() => (pretty ? indented(shown) : null), [pretty, shown]);
  const size = useMemo(() => new TextEncoder().encode(text).length, [text]);
  return (
    <div class="payload">
      <div class="tools">
        <span>{bytes(size)}</span>
        <button
          type="button"
          class="button quiet small"
          aria-pressed={!pretty}
          onClick={() => setPretty(!pretty)}
        >
          As sent
        </button>
        <Copy text={text} what={what} />
      </div>
      <pre tabIndex={0} class="wrap" role="region" aria-label={`${what}, as JSON`}>
        {tokens === null
          ? shown
          : tokens.map(({ kind, text: token }, index) =>
              kind === 'mark' ? (
                token
              ) : (
                // The text never changes under its tokens.
                <span key={index} class={`json-${kind}`}>
                  {token}
                </span>
              ),
            )}
        {cut && '…'}
      </pre>
      {cut && (
        <div class="tools">
          <span>The first {whole(SHOWN_CHARACTERS)} characters are shown.</span>
          <button type="button" class="button small" onClick={() => setAll(true)}>
            Show everything
          </button>
        </div>
      )}
    </div>
  );
}
