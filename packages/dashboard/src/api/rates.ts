/** From counts by bar to messages a second. */
interface Bars {
  timeRange: { from: string; to: string };
  bucketMinutes: number;
  buckets: readonly string[];
}

/**
 * The newest bar is still filling, so it counts for the time that has passed in it; one younger than ten seconds is left
 * out, since a moment's count would look like a rate. A bar that nobody wrote down is 0: nothing happened.
 */
export function perSecond(bars: Bars, counts: readonly (number | null)[]): (number | null)[] {
  const end = Date.parse(bars.timeRange.to);
  return counts.map((count, index) => {
    const seconds = Math.min(bars.bucketMinutes * 60, (end - Date.parse(bars.buckets[index]!)) / 1000);
    return seconds < 10 ? null : (count ?? 0) / seconds;
  });
}
