/** How far back a page looks: part of its address, so that a link shows the same. */
import { useSearch } from '../router.ts';

const RANGES = { '1h': 1, '6h': 6, '24h': 24, '7d': 168 } as const;
type RangeName = keyof typeof RANGES;

const TEXTS: Record<RangeName, string> = {
  '1h': 'Last hour',
  '6h': 'Last 6 hours',
  '24h': 'Last 24 hours',
  '7d': 'Last 7 days',
};

/** A range that is longer than its bars allow, be it by the way to the broker, gets bars of five times the width. */
const SHORTER_MS = 60_000;

/** The chosen range, and where it begins as an instant for the broker; null: an hour ago, which is the broker's own choice. */
export function useRange(): { name: RangeName; from: () => string | null } {
  const [search] = useSearch();
  const asked = search.get('range');
  const name = asked !== null && Object.hasOwn(RANGES, asked) ? (asked as RangeName) : '1h';
  const from = () =>
    name === '1h' ? null : new Date(Date.now() - RANGES[name] * 3_600_000 + SHORTER_MS).toISOString();
  return { name, from };
}

export function RangeChoice() {
  const [, change] = useSearch();
  const { name } = useRange();
  return (
    <select
      aria-label="Range of time"
      style={{ width: 'auto' }}
      value={name}
      onChange={({ currentTarget: { value } }) =>
        change({ range: value === '1h' ? null : value }, { replace: true })
      }
    >
      {(Object.keys(RANGES) as RangeName[]).map((each) => (
        <option key={each} value={each}>
          {TEXTS[each]}
        </option>
      ))}
    </select>
  );
}
