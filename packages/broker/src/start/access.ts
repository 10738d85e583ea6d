import type { Config } from '../config.ts';
import { systemClock } from '../engine/clock.ts';
import { type AccessControl, createAccess } from '../http/access/access.ts';
import { Jwks } from '../http/access/jwks.ts';
import { readPem, TokenVerifier } from '../http/access/verifier.ts';
import type { Log } from '../observability/log.ts';

export interface OpenedAccess {
  control: AccessControl;
  /** For people: who may do what. */
  description: string;
  stop(): void;
}

/** Who may do what, as the environment has it; begins to fetch the issuer's keys. */
export function openAccess(config: Config, log: Log): OpenedAccess {
  const { auth, security } = config;
  const tenancy = security.tenancyHeader;
  const { skipPaths } = auth;
  if (!auth.enabled) {
    return {
      control: createAccess({ verifier: null, skipPaths, tenancy }),
      description: 'no authentication: whoever reaches the port may do everything (JWT_ENABLED turns it on)',
      stop() {},
    };
  }
  const jwks =
    auth.jwksUrl === null
      ? null
      : new Jwks({
          url: auth.jwksUrl,
          refreshMs: auth.jwksRefreshSeconds * 1000,
          timeoutMs: auth.jwksTimeoutMs,
          clock: systemClock,
          log,
        });
  if (auth.publicKey !== null && readPem(auth.publicKey) === null) {
    log.error({}, 'JWT_PUBLIC_KEY is no public key in PEM: tokens that need it are answered with an error');
  }
  const verifier = new TokenVerifier({
    algorithm: auth.algorithm,
    secret: auth.secret === null || auth.secret.trim() === '' ? null : auth.secret,
    publicKey: auth.publicKey,
    jwks,
    claims: {
      skewSeconds: auth.clockSkewSeconds,
      issuer: auth.issuer,
      audience: auth.audience,
      roleClaim: auth.roleClaim,
      rolesClaim: auth.rolesClaim,
      roleNames: {
        admin: auth.roleAdmin,
        'read-write': auth.roleReadWrite,
        'read-only': auth.roleReadOnly,
        'write-only': auth.roleWriteOnly,
      },
    },
  });
  jwks?.start();
  return {
    control: createAccess({ verifier, skipPaths, tenancy }),
    description: `tokens (${auth.algorithm})`,
    stop: () => jwks?.stop(),
  };
}
