/** Somebody who signs tokens, and who publishes keys over HTTP when asked. */
import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { CompactSign, SignJWT } from 'jose';
import type { ClaimRules } from '../../../src/http/access/claims.ts';

export const SECRET = 'a secret of at least sixty-four bytes, so that every algorithm of the family likes it';

export interface Pair {
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
  readonly pem: string;
}

function pair(publicKey: KeyObject, privateKey: KeyObject): Pair {
  return { publicKey, privateKey, pem: publicKey.export({ type: 'spki', format: 'pem' }).toString() };
}

export function rsaPair(modulusLength = 2048): Pair {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength });
  return pair(publicKey, privateKey);
}

export function edPair(): Pair {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  return pair(publicKey, privateKey);
}

export type Signer = string | Pair;

/** A token with exactly these claims. */
export function sign(
  alg: string,
  by: Signer,
  claims: Record<string, unknown> = {},
  header: Record<string, unknown> = {},
): Promise<string> {
  const key = typeof by === 'string' ? Buffer.from(by) : createPrivateKey(exported(by));
  return new SignJWT(claims).setProtectedHeader({ alg, ...header }).sign(key);
}

/** A token around any bytes. */
export function signBytes(alg: string, by: Signer, bytes: string | Uint8Array): Promise<string> {
  const key = typeof by === 'string' ? Buffer.from(by) : createPrivateKey(exported(by));
  return new CompactSign(Buffer.from(bytes as string)).setProtectedHeader({ alg }).sign(key);
}

function exported({ privateKey }: Pair) {
  return privateKey.export({ type: 'pkcs8', format: 'pem' });
}

export const RULES: ClaimRules = {
  skewSeconds: 30,
  issuer: null,
  audience: null,
  roleClaim: 'role',
  rolesClaim: 'roles',
  roleNames: {
    admin: 'admin',
    'read-write': 'read-write',
    'read-only': 'read-only',
    'write-only': 'write-only',
  },
};

/** The JWK of a pair, as an issuer publishes it. */
export function jwk({ publicKey }: Pair, kid: string, more: object = {}): object {
  return { ...publicKey.export({ format: 'jwk' }), kid, use: 'sig', ...more };
}

export interface JwksServer {
  url: string;
  /** What is published from now on; a function answers by itself. */
  publish(keys: object[] | ((request: IncomingMessage, response: ServerResponse) => void)): void;
  /** Requests so far. */
  requests: number;
  /** Nobody listens any more. */
  stop(): Promise<void>;
}

export async function jwksServer(t: { after(fn: () => unknown): void }): Promise<JwksServer> {
  let answer: (request: IncomingMessage, response: ServerResponse) => void = () => {};
  const server = createServer((request, response) => {
    published.requests++;
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const published: JwksServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks.json`,
    requests: 0,
    publish(keys) {
      answer =
        typeof keys === 'function'
          ? keys
          : (_request, response) => {
              response.setHeader('content-type', 'application/json');
              response.end(JSON.stringify({ keys }));
            };
    },
    stop: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  published.publish([]);
  t.after(() => published.stop());
  return published;
}
