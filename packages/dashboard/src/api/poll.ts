/** Data that is asked for again and again while somebody looks. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { useStore } from '../store.ts';
import type { ApiError } from './client.ts';
import { tokenVersion } from './token.ts';

export interface Polled<T> {
  /** The newest answer; kept when a later call fails. Undefined: none yet. */
  data: T | undefined;
  /** Of the last call; undefined: it went well. */
  error: ApiError | undefined;
  /** When `data` came, milliseconds since 1970. */
  at: number | undefined;
  /** Asks at once. */
  refresh(): void;
}

const BACK_OFF_MS_MAX = 60_000;
const NOTHING = { data: undefined, error: undefined, at: undefined };

/**
 * Calls `ask` now and `everyMs` after each answer (0: once). A hidden tab does not ask; errors double the pause up to a
 * minute; leaving the page, or another `key`, aborts. The key stands for what is asked for: data of a former one is
 * dropped unless `keep` says that it may be shown until the new one is there (the next page of a table).
 */
export function usePoll<T>(
  key: string,
  ask: (signal: AbortSignal) => Promise<T>,
  { everyMs = 5_000, keep = false }: { everyMs?: number; keep?: boolean } = {},
): Polled<T> {
  type State = Pick<Polled<T>, 'data' | 'error' | 'at'> & { key: string };
  const [state, setState] = useState<State>({ ...NOTHING, key });
  const version = useStore(tokenVersion);
  const latest = useRef(ask);
  latest.current = ask;
  const now = useRef<() => void>(() => {});

  // Another token asks anew.
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let running: AbortController | undefined;
    let pauseMs = everyMs;
    let over = false;

    async function turn(): Promise<void> {
      clearTimeout(timer);
      running?.abort();
      const mine = new AbortController();
      running = mine;
      try {
        const data = await latest.current(mine.signal);
        if (mine.signal.aborted) return;
        pauseMs = everyMs;
        setState({ key, data, error: undefined, at: Date.now() });
      } catch (error) {
        if (mine.signal.aborted) return;
        pauseMs = Math.min(BACK_OFF_MS_MAX, Math.max(pauseMs, 1_000) * 2);
        setState((before) => {
          const kept = before.key === key || keep ? before : NOTHING;
          return { ...kept, key, error: error as ApiError };
        });
      }
      running = undefined;
      plan();
    }

    function plan(): void {
      if (over || everyMs === 0 || document.hidden) return;
      timer = setTimeout(turn, pauseMs);
    }

    function seen(): void {
      if (document.hidden) clearTimeout(timer);
      else if (everyMs > 0 && running === undefined) void turn();
    }

    now.current = () => void turn();
    document.addEventListener('visibilitychange', seen);
    void turn();
    return () => {
      over = true;
      clearTimeout(timer);
      running?.abort();
      document.removeEventListener('visibilitychange', seen);
    };
  }, [key, everyMs, keep, version]);

  const refresh = useCallback(() => now.current(), []);
  const shown = state.key === key || keep ? state : NOTHING;
  const { data, error, at } = shown;
  return { data, error, at, refresh };
}
