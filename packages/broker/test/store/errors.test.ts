import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { EngineError, fromStore } from '../../src/engine/errors.ts';
import { fromServer, type ServerError, StoreError } from '../../src/store/errors.ts';
import { InvariantError, invariant } from '../../src/store/invariant.ts';

function answer(code: string, message = 'secret data'): ServerError {
  return Object.assign(new Error(message), {
    code,
    severity: 'ERROR',
    detail: 'Key (id)=(7)',
    hint: undefined,
  });
}

suite("the server's answers, sorted", () => {
  const CASES: readonly (readonly [sqlState: string, kind: string, code: string])[] = [
    ['22012', 'refused', 'sql'], // division by zero
    ['22021', 'refused', 'sql'], // a NUL character in text
    ['23505', 'refused', 'sql'], // unique violation
    ['42501', 'refused', 'sql'], // permission denied
    ['42P01', 'refused', 'sql'], // no such table
    ['0A000', 'refused', 'sql'], // feature not supported
    ['08P01', 'refused', 'sql'], // a wrong number of parameters
    ['P0001', 'refused', 'sql'], // raised by a procedure
    ['XX001', 'refused', 'sql'], // data corrupted
    ['40001', 'unavailable', 'sql'], // serialization failure
    ['40P01', 'unavailable', 'sql'], // deadlock
    ['55P03', 'unavailable', 'sql'], // lock timeout
    ['53100', 'unavailable', 'sql'], // disk full
    ['53200', 'unavailable', 'sql'], // out of memory
    ['53300', 'unavailable', 'sql'], // too many connections
    ['57P03', 'unavailable', 'sql'], // starting up
    ['58030', 'unavailable', 'sql'], // input/output error
    ['25006', 'unavailable', 'sql'], // read-only
    ['57014', 'unavailable', 'timeout'], // cancelled
  ];
  for (const [sqlState, kind, code] of CASES) {
    test(`${sqlState} is ${kind}`, () => {
      const error = fromServer(answer(sqlState));
      assert.deepEqual([error.kind, error.code, error.sqlState], [kind, code, sqlState]);
      assert.equal(error.detail, 'Key (id)=(7)');
    });
  }

  test('a plan that a change of the schema overtook is unavailable', () => {
    assert.equal(fromServer(answer('0A000', 'cached plan must not change result type')).kind, 'unavailable');
  });
});

suite('as the engine says it', () => {
  test('kinds are kept, codes are named, data is not shown', () => {
    const CASES: readonly (readonly [error: StoreError, kind: string, code: string])[] = [
      [new StoreError('unavailable', 'pool', 'no connection'), 'unavailable', 'pool'],
      [new StoreError('in_doubt', 'connection', 'lost'), 'in_doubt', 'database_connection'],
      [new StoreError('in_doubt', 'timeout', 'no answer'), 'in_doubt', 'database_timeout'],
      [fromServer(answer('23505')), 'refused', 'database_error'],
      [fromServer(answer('40P01')), 'unavailable', 'database_error'],
    ];
    for (const [error, kind, code] of CASES) {
      const said = fromStore(error);
      assert.deepEqual([said.kind, said.code, said.cause], [kind, code, error]);
      assert.doesNotMatch(said.message, /secret/);
    }
    assert.match(fromStore(fromServer(answer('23505'))).message, /SQLSTATE 23505/);
  });

  test('what is broken inside may have been noticed after a commit', () => {
    const broken = fromStore(new InvariantError('frame_count', { expected: 3, found: 2 }));
    assert.deepEqual([broken.kind, broken.code], ['in_doubt', 'invariant']);
    assert.equal(fromStore(new TypeError('x')).kind, 'in_doubt');
  });

  test('an error of the engine stays what it is', () => {
    const error = new EngineError('overloaded', 'overloaded', 'later', { retryAfterSeconds: 1 });
    assert.equal(fromStore(error), error);
  });
});

test('an invariant names its code and facts', () => {
  invariant(true, 'fine');
  assert.throws(() => invariant(0, 'hash_length', { bytes: 15, frames: 1n }), {
    name: 'InvariantError',
    code: 'hash_length',
    message: 'invariant hash_length broken: bytes=15 frames=1',
  });
});
