/**
 * The token, where the broker asks for one. It is kept for the tab and no longer, under the name that the broker's own
 * sign-in page uses too.
 */
import { type Store, store } from '../store.ts';

const KEY = 'queen.token';

/** Why a token is asked for; null: it is not. */
export const tokenWanted: Store<string | null> = store(null);
/** Grows with each new token, so that what failed for want of one is asked again. */
export const tokenVersion: Store<number> = store(0);

export function token(): string | null {
  return sessionStorage.getItem(KEY);
}

/** The broker refused the token that was sent. Nobody is asked while another one was given meanwhile. */
export function askForToken(refused: string | null, why: string): void {
  if (refused === token()) tokenWanted.set(why);
}

export function setToken(value: string): void {
  sessionStorage.setItem(KEY, value);
  tokenWanted.set(null);
  tokenVersion.set(tokenVersion.get() + 1);
}

export function forgetToken(): void {
  sessionStorage.removeItem(KEY);
  tokenVersion.set(tokenVersion.get() + 1);
}
