import type { Values } from './settings.ts';

/** Who may do what: what of it cannot work together, and what somebody should know who has set it. */

type Access = Pick<Values, 'auth' | 'security'>;

/** A setup that would keep everybody out, or that would protect nothing, does not start. */
export function accessFaults({ auth, security }: Access): string[] {
  const faults: string[] = [];
  if (auth.enabled) {
    const { algorithm } = auth;
    const secret = hasSecret({ auth });
    const publicKeys = auth.publicKey !== null || auth.jwksUrl !== null;
    if (usesSecret(algorithm) && !secret && !publicKeys) {
      faults.push(
        `JWT_ENABLED with JWT_ALGORITHM=${algorithm} needs a key: set JWT_SECRET, JWT_PUBLIC_KEY or JWT_JWKS_URL`,
      );
    }
    if (!usesSecret(algorithm) && !publicKeys) {
      faults.push(
        `JWT_ENABLED with JWT_ALGORITHM=${algorithm} needs a key: set JWT_PUBLIC_KEY or JWT_JWKS_URL`,
      );
    }
  }
  if (security.tenancyHeader && !security.trustedProxy) {
    faults.push(
      'QUEEN_TENANCY_HEADER needs QUEEN_KV_TRUSTED_PROXY=true: a header that any caller can set is no boundary',
    );
  }
  return faults;
}

export function accessWarnings({ auth, security }: Access, bindAddress: string): string[] {
  const warnings: string[] = [];
  if (!auth.enabled && !isLoopback(bindAddress)) {
    warnings.push(`without authentication, whoever reaches ${bindAddress} can read and empty every queue`);
  }
  if (auth.enabled && usesSecret(auth.algorithm)) {
    if (!hasSecret({ auth }) && auth.algorithm !== 'auto')
      warnings.push(
        `JWT_ALGORITHM=${auth.algorithm} takes only tokens signed with JWT_SECRET, which is not set`,
      );
    else if (hasSecret({ auth }) && Buffer.byteLength(auth.secret!) < 32)
      warnings.push('JWT_SECRET is shorter than 32 bytes: whoever sees a token can guess it');
  }
  const open = auth.enabled
    ? auth.skipPaths.filter((path) => /^\/(api|streams|internal)(\/|$)/.test(path))
    : [];
  if (open.length > 0) warnings.push(`JWT_SKIP_PATHS lets everybody use ${open.join(', ')}`);
  if (security.trustedProxy && !security.tenancyHeader)
    warnings.push('QUEEN_KV_TRUSTED_PROXY means nothing without QUEEN_TENANCY_HEADER');
  return warnings;
}

/** Reachable from this machine alone. */
export function isLoopback(address: string): boolean {
  return /^(127\.|::1$|localhost$)/.test(address);
}

/** One that consists of nothing is none, as compose files and shells write it. */
function hasSecret({ auth }: Pick<Access, 'auth'>): boolean {
  return auth.secret !== null && auth.secret.trim() !== '';
}

function usesSecret(algorithm: Access['auth']['algorithm']): boolean {
  return algorithm === 'auto' || algorithm.startsWith('HS');
}
