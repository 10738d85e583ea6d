/** Light, dark, or as the system has it. */
import { store, useStore } from './store.ts';

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'queen.theme';
const chosen = store<Theme>('system');
/** Grows when the colours change, for what is painted with them (charts). */
const changes = store(0);

export function startTheme(): void {
  const kept = localStorage.getItem(KEY);
  apply(kept === 'light' || kept === 'dark' ? kept : 'system');
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => changes.set(changes.get() + 1));
}

export function setTheme(theme: Theme): void {
  if (theme === 'system') localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme);
  apply(theme);
}

function apply(theme: Theme): void {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  chosen.set(theme);
  changes.set(changes.get() + 1);
}

export const useTheme = (): Theme => useStore(chosen);
export const useColourChanges = (): number => useStore(changes);
