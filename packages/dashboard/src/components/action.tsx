/** Buttons for what changes something: those who may not see them, and are told why they do not work. */
import type { ComponentChildren } from 'preact';
import { useRights } from '../api/identity.ts';

interface ActionProps {
  /** What the broker asks of the caller. */
  needs: 'write' | 'admin';
  onClick: () => void;
  danger?: boolean;
  primary?: boolean;
  small?: boolean;
  /** Submits the form that it stands in. */
  submit?: boolean;
  /** When the text alone would not say what it is about. */
  label?: string;
  children: ComponentChildren;
}

const ROLES = { write: 'read-write or admin', admin: 'admin' } as const;

export function Action({
  needs,
  onClick,
  danger,
  primary,
  small,
  submit = false,
  label,
  children,
}: ActionProps) {
  const allowed = useRights()[needs];
  const looks = [danger && 'danger', primary && 'primary', small && 'small'].filter(Boolean).join(' ');
  return (
    <button
      type={submit && allowed ? 'submit' : 'button'}
      class={`button ${allowed ? looks : small ? 'small' : ''}`}
      aria-disabled={!allowed}
      title={allowed ? undefined : `This needs the role ${ROLES[needs]}`}
      aria-label={label}
      onClick={() => allowed && onClick()}
    >
      {children}
    </button>
  );
}
