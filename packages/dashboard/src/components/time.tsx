import { exact, moment, relative } from '../format.ts';
import { store, useStore } from '../store.ts';

/** One clock for all times on the page. */
const now = store(Date.now());
setInterval(() => now.set(Date.now()), 5_000);

/** `3 min. ago`, with the exact instant on hover and for a screen reader's title. Null: an en dash. */
export function Ago({ at }: { at: string | null | undefined }) {
  const nowMs = useStore(now);
  if (at === null || at === undefined) return <>–</>;
  return (
    <time dateTime={at} title={exact(at)}>
      {relative(at, nowMs)}
    </time>
  );
}

/** The time of day, to the millisecond; the whole instant on hover. For lists. */
export function Moment({ at }: { at: string }) {
  return (
    <time dateTime={at} title={at}>
      {moment(at)}
    </time>
  );
}

/** The exact instant, and how far it is from now. */
export function ExactAgo({ at }: { at: string }) {
  return (
    <>
      <Exact at={at} />, <Ago at={at} />
    </>
  );
}

/** The exact instant, to the second, in the reader's time zone; the full precision on hover. */
export function Exact({ at }: { at: string | null | undefined }) {
  if (at === null || at === undefined) return <>–</>;
  return (
    <time dateTime={at} title={at}>
      {exact(at)}
    </time>
  );
}
