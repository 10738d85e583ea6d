/** Who looks at the page, and what the broker lets them do. */
import { type Store, store, useStore } from '../store.ts';
import { get } from './client.ts';

export type Role = 'admin' | 'read-write' | 'write-only' | 'read-only';

export interface Identity {
  /** The broker asks nobody who they are. */
  standalone: boolean;
  role: Role | null;
  roles: Role[];
  user: { id: string | null; name: string | null };
}

const identity: Store<Identity | null> = store(null);

/** Asks the broker. Leaves what is known when it cannot say. */
export async function learnIdentity(): Promise<void> {
  try {
    identity.set(await get<Identity>('/auth/me'));
  } catch {
    // A 401 has asked for a token; without an answer the pages say so.
  }
}

export function useIdentity(): Identity | null {
  return useStore(identity);
}

export interface Rights {
  /** Replay, seek, retry, KV, timers. */
  write: boolean;
  /** Delete, maintenance, connectors. */
  admin: boolean;
}

/** What to offer. The broker decides; this only spares people a button that it would refuse. */
export function useRights(): Rights {
  const known = useIdentity();
  if (known === null) return { write: false, admin: false };
  const admin = known.roles.includes('admin');
  return { admin, write: admin || known.roles.includes('read-write') };
}
