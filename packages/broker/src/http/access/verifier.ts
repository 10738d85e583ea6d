/**
 * From the text of a token to what it proves. In this order: the header can be read, its algorithm is one of those that
 * the operator allows, there is a key for it, the signature is good, the claims count now. The algorithm comes from
 * the token but only chooses among what is allowed, and each family has its own kind of key: a public key can never
 * serve as the secret of an HMAC.
 */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { compactVerify, decodeProtectedHeader } from 'jose';
import { Fault } from '../errors.ts';
import { type ClaimRules, type Claims, readClaims } from './claims.ts';
import type { Jwks, KeyType } from './jwks.ts';
import { TokenMemo } from './token_memo.ts';

const HMAC = ['HS256', 'HS384', 'HS512'] as const;
const RSA = ['RS256', 'RS384', 'RS512'] as const;

/** By JWT_ALGORITHM: what a token's own `alg` may be. */
export const ALGORITHMS = {
  HS256: ['HS256'],
  HS384: ['HS384'],
  HS512: ['HS512'],
  RS256: RSA,
  RS384: ['RS384'],
  RS512: ['RS512'],
  EdDSA: ['EdDSA'],
  auto: [...HMAC, ...RSA, 'EdDSA'],
} as const satisfies Record<string, readonly string[]>;

export type Algorithm = keyof typeof ALGORITHMS;

export interface VerifierOptions {
  algorithm: Algorithm;
  /** For the HS family. */
  secret: string | null;
  /** PEM; decides for the RS family and EdDSA even when it is bad. */
  publicKey: string | null;
  jwks: Jwks | null;
  claims: ClaimRules;
  /** Milliseconds since 1970. */
  wallMs?: () => number;
  memo?: TokenMemo;
}

export class TokenVerifier {
  readonly #options: VerifierOptions;
  readonly #allowed: ReadonlySet<string>;
  readonly #secret: Uint8Array | null;
  readonly #pem: KeyObject | null;
  readonly #memo: TokenMemo;

  constructor(options: VerifierOptions) {
    this.#options = options;
    this.#allowed = new Set(ALGORITHMS[options.algorithm]);
    this.#secret = options.secret === null ? null : Buffer.from(options.secret, 'utf8');
    this.#pem = options.publicKey === null ? null : readPem(options.publicKey);
    this.#memo = options.memo ?? new TokenMemo();
  }

  /** The tokens that need no signature check at the moment. */
  get remembered(): number {
    return this.#memo.size;
  }

  /** Throws, or rejects with, the Fault that tells what is wrong. At once for a token that was verified before. */
  verify(token: string): Claims | Promise<Claims> {
    const known = this.#memo.get(token, this.#generation, this.#nowSeconds());
    return known ?? this.#verify(token);
  }

  get #generation(): number {
    return this.#options.jwks?.generation ?? 0;
  }

  async #verify(token: string): Promise<Claims> {
    const { alg, kid } = readHeader(token);
    if (!this.#allowed.has(alg)) throw new Fault('token_algorithm');
    // Taken before the key is looked for: when the keys change meanwhile, nobody can say that this one is among them.
    const generation = this.#generation;
    const key = await this.#key(alg, kid);
    let payload: Uint8Array;
    try {
      ({ payload } = await compactVerify(token, key, { algorithms: [alg] }));
    } catch (error) {
      throw verifyFault(error);
    }
    const claims = readClaims(payload, this.#options.claims, this.#nowSeconds());
    this.#memo.set(token, claims, generation);
    return claims;
  }

  async #key(alg: string, kid: string): Promise<KeyObject | Uint8Array> {
    if (alg.startsWith('HS')) {
      if (this.#secret === null) throw new Fault('auth_secret_missing');
      return this.#secret;
    }
    const type: KeyType = alg === 'EdDSA' ? 'OKP' : 'RSA';
    if (this.#options.publicKey !== null) {
      const fits = this.#pem?.asymmetricKeyType === (type === 'OKP' ? 'ed25519' : 'rsa');
      if (!fits) throw new Fault(type === 'OKP' ? 'auth_ed_key_bad' : 'auth_rsa_key_bad');
      return this.#pem!;
    }
    const key = (await this.#options.jwks?.look(kid, type)) ?? null;
    if (key === null) throw new Fault('token_key_unknown');
    return key;
  }

  #nowSeconds(): number {
    return (this.#options.wallMs ?? Date.now)() / 1000;
  }
}

function readHeader(token: string): { alg: string; kid: string } {
  let header: Record<string, unknown>;
  try {
    if (token.split('.').length !== 3) throw new Error('not three parts');
    header = decodeProtectedHeader(token) as Record<string, unknown>;
  } catch {
    throw new Fault('token_header');
  }
  const { alg, kid } = header;
  if (typeof alg !== 'string') throw new Fault('token_header');
  return { alg, kid: typeof kid === 'string' ? kid : '' };
}

/** What the library refused: a token that it cannot take apart, or a signature that is not the key's. */
function verifyFault(error: unknown): Fault {
  const { code } = error as { code?: unknown };
  if (code === 'ERR_JWS_INVALID' || code === 'ERR_JOSE_NOT_SUPPORTED') {
    return new Fault('token_header', { cause: error });
  }
  return new Fault('token_signature', { cause: error });
}

/** Null: not a public key (or a certificate) in PEM. */
export function readPem(pem: string): KeyObject | null {
  try {
    // In an environment variable the ends of the lines are often written out.
    return createPublicKey(pem.replaceAll('\\n', '\n'));
  } catch {
    return null;
  }
}
