/** Line drawings of 24 by 24, without a name of their own: the text beside them says what they are. */
const PATHS = {
  overview: 'M3 12h4l3-8 4 16 3-8h4',
  queues: 'M4 6h16M4 12h16M4 18h10',
  messages: 'M4 5h16v11H9l-5 4z',
  groups:
    'M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20c.6-3.6 3-5.5 6.500-5.500s5.900 1.900 6.500 5.500M16 4.500a3.500 3.500 0 0 1 0 6.500M18 15c2 .8 3.200 2.500 3.500 5',
  dead: 'M12 4 2.500 20h19zM12 10v4.500M12 17.200v.3',
  kv: 'M15 9a4.500 4.500 0 1 0-4.300 4.500L4 20v-3l1.500-1.500M14.500 8.500h.01',
  timers: 'M12 21a8 8 0 1 0 0-16 8 8 0 0 0 0 16zM12 9v4l2.500 2.500M9.500 2.500h5',
  connectors: 'M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4',
  brokers: 'M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01',
  database:
    'M12 10c4.400 0 8-1.300 8-3s-3.600-3-8-3-8 1.300-8 3 3.600 3 8 3zM4 7v10c0 1.700 3.600 3 8 3s8-1.300 8-3V7M4 12c0 1.700 3.600 3 8 3s8-1.300 8-3',
  menu: 'M4 7h16M4 12h16M4 17h16',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  done: 'M5 12.500l4.500 4.500L19 7',
  close: 'M6 6l12 12M18 6 6 18',
  search: 'M10.500 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13zM15.500 15.500 20 20',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg
      viewBox="0 0 24 24"
      width="16"
      height="16"
      fill="none"
      stroke="currentColor"
      stroke-width="1.8"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Logo() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <path fill="currentColor" d="M7 21 5 8l6.500 5L16 5l4.500 8L27 8l-2 13zM7 23.500h18v3H7z" />
    </svg>
  );
}
