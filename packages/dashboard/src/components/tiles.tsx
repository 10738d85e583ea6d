/** Figures to take in at a glance, facts to look up, and words for a state. */
import type { ComponentChildren } from 'preact';

export type Tone = 'good' | 'warn' | 'bad';

interface TileProps {
  label: string;
  /** Formatted. */
  value: ComponentChildren;
  note?: ComponentChildren;
  tone?: Tone | undefined;
}

export function Tiles({ children }: { children: ComponentChildren }) {
  return <dl class="tiles">{children}</dl>;
}

export function Tile({ label, value, note, tone }: TileProps) {
  return (
    <div class="tile">
      <dt>{label}</dt>
      <dd class={tone ?? ''}>{value}</dd>
      {note !== undefined && <dd class="note">{note}</dd>}
    </div>
  );
}

/** How long the oldest message may wait before it is late, as it is for the broker. */
const LATE_SECONDS = 300;

/** Of a tile that tells how long the oldest message has waited. */
export function toneOfWait(seconds: number): Tone | undefined {
  return seconds > LATE_SECONDS ? 'warn' : undefined;
}

/** Names with what they stand for. */
export function Facts({ of }: { of: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

interface BadgeProps {
  tone?: Tone | 'accent' | undefined;
  children: ComponentChildren;
}

export function Badge({ tone, children }: BadgeProps) {
  return <span class={`badge ${tone ?? ''}`}>{children}</span>;
}
