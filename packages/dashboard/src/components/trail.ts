/** Pages by cursor, kept in the address: where this one begins. The way that one came is remembered beside it. */
import { useRef } from 'preact/hooks';
import { useSearch } from '../router.ts';

export interface Trail {
  /** '': the first page. */
  after: string;
  /** For CursorPager. */
  trail: readonly string[];
  onTrail: (trail: readonly string[]) => void;
}

export function useTrail(): Trail {
  const [search, change] = useSearch();
  const after = search.get('after') ?? '';
  const walked = useRef<readonly string[]>(['']);
  // The browser's own buttons lead along the way too; a link may lead to a page in the middle.
  const at = walked.current.indexOf(after);
  walked.current = at >= 0 ? walked.current.slice(0, at + 1) : ['', after];
  return {
    after,
    trail: walked.current,
    onTrail(next) {
      walked.current = next;
      change({ after: next[next.length - 1] });
    },
  };
}
