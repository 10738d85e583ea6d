import { useEffect, useState } from 'preact/hooks';
import { useIdentity } from '../api/identity.ts';
import { forgetToken } from '../api/token.ts';
import { Icon, Logo } from '../components/icons.tsx';
import { currentItem, NAVIGATION } from '../routes.ts';
import { setTheme, type Theme, useTheme } from '../theme.ts';

/** At the side; on a narrow screen behind a button at the top. */
export function Navigation({ path }: { path: string }) {
  const [open, setOpen] = useState(false);
  // Who went somewhere is done with the menu.
  useEffect(() => setOpen(false), [path]);
  const current = currentItem(path);
  return (
    <header style={{ display: 'contents' }}>
      <div class="bar">
        <Brand />
        <button
          type="button"
          class="button"
          aria-expanded={open}
          aria-controls="side"
          onClick={() => setOpen(!open)}
        >
          <Icon name={open ? 'close' : 'menu'} />
          Menu
        </button>
      </div>
      <div class="side" id="side" data-open={open}>
        <Brand />
        <nav aria-label="Pages">
          {NAVIGATION.map(({ title, items }) => (
            <div key={title ?? ''}>
              {title !== null && <h2>{title}</h2>}
              <ul>
                {items.map(({ text, to, icon }) => (
                  <li key={to}>
                    <a href={to} {...(to === current ? { 'aria-current': 'page' as const } : {})}>
                      <Icon name={icon} />
                      {text}
                    </a>
                  </li>
                ))}
              </ul>
            </div>
          ))}
        </nav>
        <div class="foot">
          <User />
          <ThemeChoice />
        </div>
      </div>
    </header>
  );
}

function Brand() {
  return (
    <a class="brand" href="/">
      <Logo />
      Queen
    </a>
  );
}

function User() {
  const identity = useIdentity();
  if (identity === null || identity.standalone) return null;
  return (
    <div class="line">
      <span class="break" style={{ flex: 1 }}>
        {identity.user.name ?? 'Nameless'}
        <br />
        <span class="muted">{identity.role ?? 'no role'}</span>
      </span>
      <button type="button" class="button small" onClick={forgetToken}>
        Sign out
      </button>
    </div>
  );
}

const THEMES: readonly (readonly [Theme, string])[] = [
  ['system', 'System'],
  ['light', 'Light'],
  ['dark', 'Dark'],
];

function ThemeChoice() {
  const theme = useTheme();
  return (
    <fieldset class="theme">
      <legend class="hidden-visually">Theme</legend>
      {THEMES.map(([value, text]) => (
        <label key={value}>
          <input
            type="radio"
            name="theme"
            value={value}
            checked={theme === value}
            onChange={() => setTheme(value)}
          />
          {text}
        </label>
      ))}
    </fieldset>
  );
}
