/** What a verified token says, and whether that counts now. */

import { Fault, type FaultCode } from '../errors.ts';
import type { Role } from '../identity.ts';

export interface ClaimRules {
  /** How far the issuer's clock may be off, in seconds. */
  skewSeconds: number;
  /** `iss` must be this one; null: not looked at. */
  issuer: string | null;
  /** `aud` must be or contain this one; null: not looked at. */
  audience: string | null;
  /** The claim with one role as a string, and the one with an array of them. Top-level names. */
  roleClaim: string;
  rolesClaim: string;
  /** What each role is called in a token. */
  roleNames: { readonly [R in Role]: string };
}

export interface Claims {
  sub: string | null;
  roles: readonly Role[];
  /** Seconds since 1970 after which the token must be judged anew; infinity: never. */
  goodUntil: number;
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * Reads and checks the payload of a token whose signature is good. Throws the 401 of the first rule that is broken. A
 * claim of a wrong type breaks its rule: what cannot be understood is not in the caller's favour.
 */
export function readClaims(payload: Uint8Array, rules: ClaimRules, nowSeconds: number): Claims {
  const claims = parse(payload);
  const { skewSeconds } = rules;
  const expires = instant(claims, 'exp', 'token_expired');
  if (expires !== null && nowSeconds > expires + skewSeconds) throw new Fault('token_expired');
  const notBefore = instant(claims, 'nbf', 'token_not_yet_valid');
  if (notBefore !== null && nowSeconds + skewSeconds < notBefore) throw new Fault('token_not_yet_valid');
  const issuedAt = instant(claims, 'iat', 'token_issued_in_future');
  if (issuedAt !== null && issuedAt > nowSeconds + skewSeconds) throw new Fault('token_issued_in_future');
  if (rules.issuer !== null && own(claims, 'iss') !== rules.issuer) throw new Fault('token_issuer');
  if (rules.audience !== null && !contains(own(claims, 'aud'), rules.audience))
    throw new Fault('token_audience');
  const sub = own(claims, 'sub');
  return {
    sub: typeof sub === 'string' && sub !== '' ? sub : null,
    roles: rolesOf(claims, rules),
    goodUntil: expires === null ? Number.POSITIVE_INFINITY : expires + skewSeconds,
  };
}

function parse(payload: Uint8Array): object {
  let claims: unknown;
  try {
    claims = JSON.parse(utf8.decode(payload));
  } catch {
    throw new Fault('token_header');
  }
  if (typeof claims !== 'object' || claims === null || Array.isArray(claims)) throw new Fault('token_header');
  return claims;
}

function own(claims: object, name: string): unknown {
  return Object.hasOwn(claims, name) ? (claims as Record<string, unknown>)[name] : undefined;
}

/** Seconds since 1970, fractions allowed. Null: not there. */
function instant(claims: object, name: string, fault: FaultCode): number | null {
  const value = own(claims, name);
  if (value === undefined || value === null) return null;
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new Fault(fault);
  return value;
}

function contains(audience: unknown, wanted: string): boolean {
  return audience === wanted || (Array.isArray(audience) && audience.includes(wanted));
}

function rolesOf(claims: object, rules: ClaimRules): Role[] {
  const one = own(claims, rules.roleClaim);
  const many = own(claims, rules.rolesClaim);
  const names = new Set<unknown>(Array.isArray(many) ? many : []);
  if (typeof one === 'string') names.add(one);
  return (Object.keys(rules.roleNames) as Role[]).filter((role) => names.has(rules.roleNames[role]));
}
