/** The issuer's keys over real HTTP: rotation, outage, an issuer that hangs, sends too much, or sends elsewhere. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { Jwks, type JwksOptions } from '../../../src/http/access/jwks.ts';
import { TokenVerifier } from '../../../src/http/access/verifier.ts';
import { Fault } from '../../../src/http/errors.ts';
import { FakeClock } from '../../hotlist/fake_clock.ts';
import { edPair, jwk, jwksServer, type Pair, RULES, rsaPair, sign } from './issuer.ts';

const [first, second] = [rsaPair(), rsaPair()] as const;
const ed = edPair();

async function rig(t: TestContext, over: Partial<JwksOptions> = {}) {
  const server = await jwksServer(t);
  const clock = new FakeClock();
  const logged: { message: string; err?: Error | undefined }[] = [];
  const note = (facts: object, message: string) =>
    void logged.push({ message, err: (facts as { err?: Error }).err });
  const jwks = new Jwks({
    url: server.url,
    refreshMs: 3_600_000,
    timeoutMs: 2_000,
    clock,
    log: { info: note, warn: note },
    ...over,
  });
  t.after(() => jwks.stop());
  const verifier = new TokenVerifier({
    algorithm: 'auto',
    secret: null,
    publicKey: null,
    jwks,
    claims: RULES,
  });
  const outcome = async (alg: string, signer: Pair, kid?: string) => {
    try {
      await verifier.verify(await sign(alg, signer, {}, kid === undefined ? {} : { kid }));
      return 'taken';
    } catch (error) {
      assert.ok(error instanceof Fault);
      return error.message;
    }
  };
  return { server, clock, jwks, logged, outcome, verifier };
}

test('keys by their id; an empty id means the first one; others are skipped', async (t) => {
  const { server, jwks, outcome } = await rig(t);
  server.publish([
    { kty: 'EC', crv: 'P-256', x: 'x', y: 'y', kid: 'ec' },
    { kty: 'oct', k: 'c2VjcmV0', kid: 'oct' },
    { kty: 'RSA', n: 'AQAB', e: 'AQAB', kid: 'tiny' },
    { kty: 'RSA', n: 7, kid: 'broken' },
    { kty: 'OKP', crv: 'X25519', x: 'x', kid: 'dh' },
    'nonsense',
    null as never,
    jwk(second, 'enc', { use: 'enc' }),
    jwk(first, 'a'),
    jwk(second, 'b'),
    jwk(ed, 'e'),
  ] as object[]);
  await jwks.refresh();
  assert.equal(jwks.size, 3);
  assert.equal(await outcome('RS256', first, 'a'), 'taken');
  assert.equal(await outcome('RS512', second, 'b'), 'taken');
  assert.equal(await outcome('EdDSA', ed, 'e'), 'taken');
  assert.equal(await outcome('EdDSA', ed), 'taken');
  assert.equal(await outcome('RS256', first), 'taken');
  assert.equal(await outcome('RS256', second, ''), 'Invalid token signature');
  assert.equal(await outcome('RS256', second, 'a'), 'Invalid token signature');
  assert.equal(await outcome('RS256', ed as Pair, 'x').catch(() => 'unsignable'), 'unsignable');
  assert.equal(await outcome('EdDSA', ed, 'a'), 'Unknown key ID', 'that id is a key of another kind');
});

test('a key that appears is found by one fetch, however many ask for it', async (t) => {
  const { server, clock, jwks, outcome } = await rig(t);
  server.publish([jwk(first, 'a')]);
  await jwks.refresh();
  assert.equal(server.requests, 1);
  server.publish([jwk(first, 'a'), jwk(second, 'b')]);
  const all = await Promise.all(Array.from({ length: 20 }, () => outcome('RS256', second, 'b')));
  assert.deepEqual(new Set(all), new Set(['taken']));
  assert.equal(server.requests, 2);
  // Strangers' ids: one fetch in five seconds, whatever they are.
  assert.equal(await outcome('RS256', second, 'c'), 'Unknown key ID');
  assert.equal(await outcome('RS256', second, 'd'), 'Unknown key ID');
  assert.equal(server.requests, 2);
  clock.advance(4_999);
  assert.equal(await outcome('RS256', second, 'c'), 'Unknown key ID');
  assert.equal(server.requests, 2);
  clock.advance(1);
  assert.equal(await outcome('RS256', second, 'c'), 'Unknown key ID');
  assert.equal(server.requests, 3);
});

test('a key that is taken away is not good any more after the next refresh', async (t) => {
  const { server, clock, jwks, outcome, verifier } = await rig(t);
  server.publish([jwk(first, 'a'), jwk(second, 'b')]);
  jwks.start();
  await jwks.refresh();
  const token = await sign('RS256', first, { sub: 's' }, { kid: 'a' });
  await verifier.verify(token);
  assert.ok(!(verifier.verify(token) instanceof Promise));
  // A refresh that brings the same keys, in the same order, forgets nothing.
  const { generation } = jwks;
  clock.advance(3_600_000);
  await jwks.refresh();
  assert.equal(server.requests, 2);
  assert.equal(jwks.generation, generation);
  assert.ok(!(verifier.verify(token) instanceof Promise));
  server.publish([jwk(second, 'b')]);
  clock.advance(3_600_000);
  await jwks.refresh();
  await assert.rejects(async () => verifier.verify(token), { code: 'token_key_unknown' });
  assert.equal(await outcome('RS256', second, 'b'), 'taken');
  // The same id with another key behind it.
  server.publish([jwk(first, 'b')]);
  await jwks.refresh();
  assert.equal(await outcome('RS256', second, 'b'), 'Invalid token signature');
  assert.equal(await outcome('RS256', first, 'b'), 'taken');
  jwks.stop();
  const asked = server.requests;
  clock.advance(10 * 3_600_000);
  assert.equal(server.requests, asked);
});

test('while the issuer is away, its keys stay good and strangers are refused', async (t) => {
  const { server, clock, jwks, logged, outcome } = await rig(t);
  server.publish([jwk(first, 'a')]);
  await jwks.refresh();
  const bad: Parameters<typeof server.publish>[0][] = [
    (_request, response) => response.destroy(),
    (_request, response) => void response.writeHead(500).end('{"keys":[]}'),
    (_request, response) => void response.end('<html>'),
    (_request, response) => void response.end('{"keys":{}}'),
    (_request, response) => void response.end('null'),
    (_request, response) => void response.writeHead(204).end(),
    (_request, response) => void response.writeHead(302, { location: '/moved' }).end(),
    (_request, response) => {
      // More than a mebibyte of valid JSON.
      response.end(`{"keys":[],"x":"${'x'.repeat(1024 * 1024)}"}`);
    },
    (_request, response) => {
      // Announced and not sent.
      response.writeHead(200, { 'content-length': '1000' });
      response.write('{"keys":[');
      response.destroy();
    },
  ];
  for (const [i, answer] of bad.entries()) {
    server.publish(answer);
    clock.advance(5_000);
    const before = server.requests;
    assert.equal(await outcome('RS256', second, `b${i}`), 'Unknown key ID');
    assert.equal(server.requests, before + 1, `redirects are not followed (${i})`);
    assert.equal(await outcome('RS256', first, 'a'), 'taken');
    assert.match(logged.at(-1)!.message, /could not be fetched/);
  }
  await server.stop();
  clock.advance(5_000);
  assert.equal(await outcome('RS256', second, 'z'), 'Unknown key ID');
  assert.equal(await outcome('RS256', first, 'a'), 'taken');
});

test('an issuer that hangs is waited for only so long, before its headers and in the middle of its body', async (t) => {
  const { server, clock, jwks, logged, outcome } = await rig(t, { timeoutMs: 1_000 });
  const silent = () => {};
  const trickling: Parameters<typeof server.publish>[0] = (_request, response) => {
    response.writeHead(200);
    const drip = setInterval(() => response.write(' '), 20);
    response.on('close', () => clearInterval(drip));
  };
  for (const answer of [silent, trickling]) {
    server.publish(answer);
    clock.advance(5_000);
    const started = performance.now();
    const asked = server.requests;
    const all = await Promise.all([1, 2, 3].map(() => outcome('RS256', first, 'a')));
    assert.deepEqual(all, ['Unknown key ID', 'Unknown key ID', 'Unknown key ID']);
    assert.equal(server.requests, asked + 1);
    assert.ok(performance.now() - started < 10_000);
    assert.match(logged.at(-1)!.message, /could not be fetched/);
  }
  // And it recovers.
  server.publish([jwk(first, 'a')]);
  clock.advance(5_000);
  assert.equal(await outcome('RS256', first, 'a'), 'taken');
  assert.equal(jwks.size, 1);
});
