/** What narrows a list to one name, kept in the address. */
import { useEffect, useId, useState } from 'preact/hooks';
import { useSearch } from '../router.ts';

const QUIET_MS = 300;

/**
 * A parameter of the address that somebody types: it takes effect when the typing pauses, and leads back to the first page.
 */
export function useTyped(name: string): [text: string, type: (text: string) => void] {
  const [search, change] = useSearch();
  const current = search.get(name) ?? '';
  const [text, setText] = useState(current);
  useEffect(() => setText(current), [current]);
  useEffect(() => {
    if (text === current) return;
    const timer = setTimeout(
      () => change({ [name]: text, offset: null, after: null }, { replace: true }),
      QUIET_MS,
    );
    return () => clearTimeout(timer);
  }, [text]);
  return [text, setText];
}

interface NameFilterProps {
  label: string;
  /** The parameter of the address. */
  name: string;
  /** Names to offer. */
  offered?: readonly string[];
  placeholder?: string;
}

export function NameFilter({ label, name, offered = [], placeholder }: NameFilterProps) {
  const id = useId();
  const [text, setText] = useTyped(name);
  return (
    <label class="field">
      <span>{label}</span>
      <input
        type="search"
        value={text}
        placeholder={placeholder}
        list={`${id}-names`}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <datalist id={`${id}-names`}>
        {offered.map((each) => (
          <option key={each} value={each} />
        ))}
      </datalist>
    </label>
  );
}
