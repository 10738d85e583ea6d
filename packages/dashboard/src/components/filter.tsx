/** What narrows a list to one name, kept in the address. */
import { useEffect, useId, useState } from 'preact/hooks';
import { useSearch } from '../router.ts';

const QUIET_MS = 300;

interface NameFilterProps {
  label: string;
  /** The parameter of the address. */
  name: string;
  /** Names to offer. */
  offered?: readonly string[];
  placeholder?: string;
}

/** Takes effect when the typing pauses, and leads back to the first page. */
export function NameFilter({ label, name, offered = [], placeholder }: NameFilterProps) {
  const [search, change] = useSearch();
  const id = useId();
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
