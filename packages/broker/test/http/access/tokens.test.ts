/** Tokens of every kind against verifiers of every kind, and each rule at its edge. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TokenMemo } from '../../../src/http/access/token_memo.ts';
import {
  ALGORITHMS,
  type Algorithm,
  TokenVerifier,
  type VerifierOptions,
} from '../../../src/http/access/verifier.ts';
import { Fault } from '../../../src/http/errors.ts';
import { edPair, RULES, rsaPair, SECRET, type Signer, sign, signBytes } from './issuer.ts';

const NOW = 1_800_000_000;
const rsa = rsaPair();
const ed = edPair();

function verifier(over: Partial<VerifierOptions> = {}): TokenVerifier {
  return new TokenVerifier({
    algorithm: 'HS256',
    secret: SECRET,
    publicKey: null,
    jwks: null,
    claims: RULES,
    wallMs: () => NOW * 1000,
    ...over,
  });
}

/** The claims, or the sentence of the refusal with its status. */
async function outcome(of: TokenVerifier, token: string) {
  try {
    return await of.verify(token);
  } catch (error) {
    assert.ok(error instanceof Fault, String(error));
    return `${error.status} ${error.message}`;
  }
}

const SIGNERS: { readonly [alg: string]: Signer } = {
  HS256: SECRET,
  HS384: SECRET,
  HS512: SECRET,
  RS256: rsa,
  RS384: rsa,
  RS512: rsa,
  EdDSA: ed,
};

test('a token is taken exactly when its algorithm is one of those allowed', async () => {
  for (const algorithm of Object.keys(ALGORITHMS) as Algorithm[]) {
    for (const [alg, signer] of Object.entries(SIGNERS)) {
      const publicKey = alg === 'EdDSA' ? ed.pem : rsa.pem;
      const found = await outcome(verifier({ algorithm, publicKey }), await sign(alg, signer, { sub: 's' }));
      if ((ALGORITHMS[algorithm] as readonly string[]).includes(alg)) {
        assert.deepEqual(
          found,
          { sub: 's', roles: [], goodUntil: Number.POSITIVE_INFINITY },
          `${alg} ${algorithm}`,
        );
      } else assert.equal(found, '401 Unsupported token algorithm', `${alg} under ${algorithm}`);
    }
  }
  assert.deepEqual(
    Object.fromEntries(Object.entries(ALGORITHMS).map(([name, list]) => [name, list.length])),
    { HS256: 1, HS384: 1, HS512: 1, RS256: 3, RS384: 1, RS512: 1, EdDSA: 1, auto: 7 },
  );
});

test('what is no token, and what only looks like one', async () => {
  const good = await sign('HS256', SECRET, { role: 'admin' });
  const [header, payload, signature] = good.split('.') as [string, string, string];
  const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const cases: [string, string][] = [
    ['', '401 Bad token header'],
    ['x', '401 Bad token header'],
    ['a.b', '401 Bad token header'],
    ['a.b.c.d.e', '401 Bad token header'],
    [`${encode([])}.${payload}.${signature}`, '401 Bad token header'],
    [`${encode({})}.${payload}.${signature}`, '401 Bad token header'],
    [`${encode({ alg: 7 })}.${payload}.${signature}`, '401 Bad token header'],
    [`!!!.${payload}.${signature}`, '401 Bad token header'],
    [`${encode({ alg: 'HS256', crit: ['x'], x: 1 })}.${payload}.${signature}`, '401 Bad token header'],
    [`${encode({ alg: 'none' })}.${payload}.`, '401 Unsupported token algorithm'],
    [`${encode({ alg: 'hs256' })}.${payload}.${signature}`, '401 Unsupported token algorithm'],
    [`${encode({ alg: 'ES256' })}.${payload}.${signature}`, '401 Unsupported token algorithm'],
    [`${header}.${payload}.`, '401 Invalid token signature'],
    [`${header}.${payload}.${signature.slice(0, -3)}AAA`, '401 Invalid token signature'],
    [`${header}.${encode({ role: 'admin', sub: 'other' })}.${signature}`, '401 Invalid token signature'],
    [await sign('HS256', `${SECRET}!`, {}), '401 Invalid token signature'],
    [await signBytes('HS256', SECRET, 'no JSON'), '401 Bad token header'],
    [await signBytes('HS256', SECRET, '[]'), '401 Bad token header'],
    [await signBytes('HS256', SECRET, 'null'), '401 Bad token header'],
    [await signBytes('HS256', SECRET, Buffer.from([0x22, 0xff, 0x22])), '401 Bad token header'],
  ];
  for (const [token, expected] of cases) assert.equal(await outcome(verifier(), token), expected, token);
});

test('a public key is never the secret of an HMAC, and one family is no other', async () => {
  for (const { pem } of [rsa, ed]) {
    const forged = await sign('HS256', pem, { role: 'admin' });
    assert.equal(
      await outcome(verifier({ algorithm: 'auto', secret: null, publicKey: pem }), forged),
      '500 HS secret not configured',
    );
    assert.equal(
      await outcome(verifier({ algorithm: 'RS256', publicKey: pem }), forged),
      '401 Unsupported token algorithm',
    );
    assert.equal(
      await outcome(verifier({ algorithm: 'auto', publicKey: pem }), forged),
      '401 Invalid token signature',
    );
  }
  const other = rsaPair();
  assert.equal(
    await outcome(verifier({ algorithm: 'RS256', publicKey: other.pem }), await sign('RS256', rsa, {})),
    '401 Invalid token signature',
  );
});

test('key material that is missing or bad is this side’s fault, and no bad PEM falls back to the JWKS', async () => {
  const jwks = {
    generation: 1,
    look: async () => rsa.publicKey,
  } as unknown as VerifierOptions['jwks'];
  const cases: [Partial<VerifierOptions>, string, Signer, string][] = [
    [{ algorithm: 'HS256', secret: null }, 'HS256', SECRET, '500 HS secret not configured'],
    [{ algorithm: 'RS256', publicKey: 'nonsense', jwks }, 'RS256', rsa, '500 invalid RSA public key PEM'],
    [{ algorithm: 'RS256', publicKey: ed.pem, jwks }, 'RS256', rsa, '500 invalid RSA public key PEM'],
    [{ algorithm: 'EdDSA', publicKey: 'nonsense', jwks }, 'EdDSA', ed, '500 invalid Ed public key PEM'],
    [{ algorithm: 'auto', publicKey: rsa.pem, jwks }, 'EdDSA', ed, '500 invalid Ed public key PEM'],
    [{ algorithm: 'auto', publicKey: null }, 'RS256', rsa, '401 Unknown key ID'],
  ];
  for (const [options, alg, signer, expected] of cases) {
    assert.equal(await outcome(verifier(options), await sign(alg, signer, {})), expected);
  }
  // The ends of lines written out, as an environment variable has them.
  const flat = rsa.pem.trim().replaceAll('\n', '\\n');
  const found = await outcome(
    verifier({ algorithm: 'RS256', publicKey: flat }),
    await sign('RS256', rsa, {}),
  );
  assert.equal((found as { sub: null }).sub, null);
});

test('times are judged with the skew, at their edges', async () => {
  const edges: [Record<string, unknown>, string | null][] = [
    [{ exp: NOW - 30 }, null],
    [{ exp: NOW - 31 }, 'Token has expired'],
    [{ exp: NOW - 30.5 }, 'Token has expired'],
    [{ exp: 'tomorrow' }, 'Token has expired'],
    [{ exp: null }, null],
    [{ nbf: NOW + 30 }, null],
    [{ nbf: NOW + 31 }, 'Token not yet valid'],
    [{ nbf: {} }, 'Token not yet valid'],
    [{ iat: NOW + 30 }, null],
    [{ iat: NOW + 31 }, 'Token issued in the future'],
    [{ iat: '0' }, 'Token issued in the future'],
    [{ iat: 0 }, null],
    // The first rule that is broken is the one that is told.
    [{ exp: 1, nbf: NOW + 99, iat: NOW + 99 }, 'Token has expired'],
  ];
  for (const [claims, expected] of edges) {
    const found = await outcome(verifier(), await sign('HS256', SECRET, claims));
    if (expected === null) assert.equal(typeof found, 'object', JSON.stringify(claims));
    else assert.equal(found, `401 ${expected}`, JSON.stringify(claims));
  }
  const strict = verifier({ claims: { ...RULES, skewSeconds: 0 } });
  assert.equal(await outcome(strict, await sign('HS256', SECRET, { exp: NOW - 1 })), '401 Token has expired');
  assert.equal(typeof (await outcome(strict, await sign('HS256', SECRET, { exp: NOW }))), 'object');
});

test('issuer and audience count when they are set', async () => {
  const both = verifier({ claims: { ...RULES, issuer: 'us', audience: 'queen' } });
  const cases: [Record<string, unknown>, string | null][] = [
    [{ iss: 'us', aud: 'queen' }, null],
    [{ iss: 'us', aud: ['x', 'queen'] }, null],
    [{ iss: 'them', aud: 'queen' }, 'Invalid token issuer'],
    [{ iss: ['us'], aud: 'queen' }, 'Invalid token issuer'],
    [{ aud: 'queen' }, 'Invalid token issuer'],
    [{ iss: 'us' }, 'Invalid token audience'],
    [{ iss: 'us', aud: 'x' }, 'Invalid token audience'],
    [{ iss: 'us', aud: [] }, 'Invalid token audience'],
    [{ iss: 'us', aud: 'queen2' }, 'Invalid token audience'],
  ];
  for (const [claims, expected] of cases) {
    const found = await outcome(both, await sign('HS256', SECRET, claims));
    if (expected === null) assert.equal(typeof found, 'object');
    else assert.equal(found, `401 ${expected}`, JSON.stringify(claims));
  }
  const token = await sign('HS256', SECRET, { iss: 'anybody', aud: 'anything' });
  assert.equal(typeof (await outcome(verifier(), token)), 'object');
});

test('roles and sub come from where the operator says', async () => {
  const roles = async (of: TokenVerifier, claims: Record<string, unknown>) =>
    (await of.verify(await sign('HS256', SECRET, claims))).roles;
  const plain = verifier();
  assert.deepEqual(await roles(plain, { role: 'admin' }), ['admin']);
  assert.deepEqual(await roles(plain, { roles: ['read-only', 'write-only'] }), ['read-only', 'write-only']);
  assert.deepEqual(await roles(plain, { role: 'read-only', roles: ['write-only', 7, null] }), [
    'read-only',
    'write-only',
  ]);
  for (const claims of [
    {},
    { role: ['admin'] },
    { roles: 'admin' },
    { role: 'Admin' },
    { role: 'superuser' },
    { roles: [['admin']] },
    { nested: { role: 'admin' } },
  ]) {
    assert.deepEqual(await roles(plain, claims), [], JSON.stringify(claims));
  }
  const own = verifier({
    claims: {
      ...RULES,
      roleClaim: 'https://queen/role',
      rolesClaim: 'toString',
      roleNames: { ...RULES.roleNames, admin: 'root', 'read-only': 'root' },
    },
  });
  assert.deepEqual(await roles(own, { 'https://queen/role': 'root' }), ['admin', 'read-only']);
  assert.deepEqual(await roles(own, { role: 'admin', toString: ['read-write'] }), ['read-write']);
  assert.deepEqual(await roles(own, {}), []);
  const sub = async (claims: Record<string, unknown>) =>
    (await plain.verify(await sign('HS256', SECRET, claims))).sub;
  assert.equal(await sub({ sub: 'alice' }), 'alice');
  for (const claims of [{}, { sub: '' }, { sub: 7 }, { sub: null }]) assert.equal(await sub(claims), null);
});

test('a token that was verified answers at once, until it expires or the keys change', async () => {
  let now = NOW;
  const jwks = { generation: 1, key: rsa.publicKey, looks: 0 };
  const of = verifier({
    algorithm: 'RS256',
    wallMs: () => now * 1000,
    jwks: {
      get generation() {
        return jwks.generation;
      },
      look: async () => {
        jwks.looks++;
        return jwks.key;
      },
    } as unknown as VerifierOptions['jwks'],
  });
  const token = await sign('RS256', rsa, { exp: NOW + 60, sub: 's' });
  const first = of.verify(token);
  assert.ok(first instanceof Promise);
  const claims = await first;
  assert.equal(of.verify(token), claims, 'no promise: no signature is checked');
  // One other character is another token. Not the last one, of which only some bits count.
  const other = token.at(-20) === 'A' ? 'B' : 'A';
  const forged = `${token.slice(0, -20)}${other}${token.slice(-19)}`;
  assert.equal(await outcome(of, forged), '401 Invalid token signature');
  now = NOW + 90;
  assert.equal(of.verify(token), claims, 'within the skew');
  now = NOW + 90.5;
  assert.equal(await outcome(of, token), '401 Token has expired');
  now = NOW;
  await of.verify(token);
  // The issuer took the key away: what it signed is not good any longer.
  jwks.generation++;
  jwks.key = rsaPair().publicKey;
  assert.equal(await outcome(of, token), '401 Invalid token signature');
  assert.equal(await outcome(of, token), '401 Invalid token signature');
  assert.equal(of.remembered, 0);
});

test('keys that change while a signature is checked: nothing is remembered', async () => {
  const jwks = { generation: 1 };
  const of = verifier({
    algorithm: 'RS256',
    jwks: {
      get generation() {
        return jwks.generation;
      },
      look: async () => {
        queueMicrotask(() => jwks.generation++);
        return rsa.publicKey;
      },
    } as unknown as VerifierOptions['jwks'],
  });
  const token = await sign('RS256', rsa, {});
  await of.verify(token);
  assert.ok(of.verify(token) instanceof Promise);
});

test('the memory of tokens is bounded by their number and by their text', () => {
  const claims = { sub: null, roles: [], goodUntil: 10 };
  const few = new TokenMemo(3, 1_000);
  for (const token of ['a', 'b', 'c', 'd']) few.set(token, claims, 0);
  assert.equal(few.size, 3);
  assert.equal(few.get('a', 0, 1), null, 'the oldest went');
  assert.equal(few.get('d', 0, 1), claims);
  assert.equal(few.get('d', 1, 1), null, 'other keys');
  assert.equal(few.get('c', 0, 11), null, 'expired');
  assert.equal(few.size, 1);
  const short = new TokenMemo(100, 10);
  short.set('12345678', claims, 0);
  short.set('abcd', claims, 0);
  assert.equal(short.get('12345678', 0, 1), null);
  assert.equal(short.get('abcd', 0, 1), claims);
  short.set('longer than all there is', claims, 0);
  assert.equal(short.size, 0);
  for (let i = 0; i < 1_000; i++) short.set(`t${i}`, claims, 0);
  assert.ok(short.size <= 5);
});
