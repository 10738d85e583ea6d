/** A line of text with its label, and beneath it what is wrong with it or good to know. */
import { useId } from 'preact/hooks';

interface TextFieldProps {
  label: string;
  value: string;
  onValue: (value: string) => void;
  note?: string | undefined;
  fault?: string | null | undefined;
  required?: boolean;
  readOnly?: boolean;
  disabled?: boolean;
  pattern?: string;
}

export function TextField({ label, value, onValue, note, fault, ...rest }: TextFieldProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        value={value}
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        {...described(id, note, fault)}
        onInput={(event) => onValue(event.currentTarget.value)}
        {...rest}
      />
      <FieldNote id={id} note={note} fault={fault} />
    </div>
  );
}

/** Attributes of the field that a FieldNote belongs to. */
export function described(id: string, note: string | undefined, fault: string | null | undefined) {
  const said = fault ?? note;
  return { 'aria-invalid': fault != null, ...(said == null ? {} : { 'aria-describedby': `${id}-note` }) };
}

interface FieldNoteProps {
  /** Of the field. */
  id: string;
  note?: string | undefined;
  fault?: string | null | undefined;
}

export function FieldNote({ id, note, fault }: FieldNoteProps) {
  const said = fault ?? note;
  if (said == null) return null;
  return (
    <small id={`${id}-note`} {...(fault == null ? {} : { class: 'fault', role: 'alert' as const })}>
      {said}
    </small>
  );
}
