import { statSync } from 'node:fs';

/**
 * The account that the server's processes run under. PostgreSQL refuses to run as root, so a broker started
 * by root gives its children another one; no account is created for that.
 */
export interface Account {
  uid: number;
  gid: number;
  /** The account differs from the broker's own. */
  switched: boolean;
}

/** `nobody`: on every Linux, and initdb insists on an account that the system knows by name. */
const NOBODY = 65_534;

/**
 * Root keeps to the owner of an existing database directory, so that one which an ordinary user has started
 * goes on working under root without a change of owner; a new one belongs to `nobody`.
 *
 * @param cluster the database directory; need not exist.
 */
export function serverAccount(cluster: string): Account {
  const uid = process.getuid?.() ?? -1;
  const gid = process.getgid?.() ?? -1;
  if (uid !== 0) return { uid, gid, switched: false };
  const owner = statSync(cluster, { throwIfNoEntry: false });
  if (owner !== undefined && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid, switched: true };
  return { uid: NOBODY, gid: NOBODY, switched: true };
}

/** Spawn options that run a program under the account. */
export function asAccount(account: Account): { uid?: number; gid?: number } {
  return account.switched ? { uid: account.uid, gid: account.gid } : {};
}
