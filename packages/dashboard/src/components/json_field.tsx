/** A field for JSON text, which stays as it is typed. */
import { useId } from 'preact/hooks';
import { described, FieldNote } from './field.tsx';

/** What is wrong with the text; null: it is JSON. */
export function jsonFault(text: string): string | null {
  if (text.trim() === '') return 'JSON is missing: a text stands in double quotes, nothing is null';
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return (error as Error).message.replace(/^.*JSON\.parse: /, '');
  }
}

interface JsonFieldProps {
  label: string;
  text: string;
  onText: (text: string) => void;
  fault?: string | null | undefined;
  note?: string | undefined;
  /** Lines. */
  rows?: number;
}

export function JsonField({ label, text, onText, fault, note, rows = 10 }: JsonFieldProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        value={text}
        rows={rows}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        {...described(id, note, fault)}
        onInput={(event) => onText(event.currentTarget.value)}
      />
      <FieldNote id={id} note={note} fault={fault} />
    </div>
  );
}
