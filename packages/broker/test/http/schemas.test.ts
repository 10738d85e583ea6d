/**
 * The schemas of the document against what reads requests. Bodies: for whatever lies around the documented example, and around
 * random instances, a schema and the route must agree. Query parameters: each that is declared is read, and as it says.
 *
 * The fake broker stands where the database would be; the engine's checks are the real ones.
 */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import fc from 'fast-check';
import { checkCursor, checkOperations as checkKv, checkNamespace } from '../../src/engine/kv/check.ts';
import { OPERATIONS_MAX, RIDING_OPERATIONS_MAX } from '../../src/engine/kv/kv.ts';
import {
  checkKey,
  checkQueue,
  checkText,
  checkOperations as checkTimers,
  PREFIX_BYTES_MAX,
  TIMER_KEY_BYTES_MAX,
} from '../../src/engine/timers/check.ts';
import type { TimerOperation } from '../../src/engine/timers/face.ts';
import { INT_MAX, INT_MIN } from '../../src/engine/types.ts';
import { FakeBroker } from './fake_broker.ts';
import { OpenApi as Document, type OpenApi, type ShownOperation, type ShownParameter } from './open_api.ts';
import { neighbours, type Shape, valuesOf } from './schema_values.ts';
import { openWire, type Wire } from './wire.ts';

const LIMITS = { keysMax: 1024, valueBytesMax: 1024 * 1024, pageMax: 1000 };
const PAYLOAD = { payloadBytesMax: 1024 * 1024 };
const RUNS = 5;
/** Of each random instance; around an example all are tried. */
const NEIGHBOURS = 6;

let wire: Wire;
let api: OpenApi;
const ends: (() => unknown)[] = [];

before(async () => {
  const broker = new FakeBroker();
  const kv = { ...LIMITS, operationsMax: OPERATIONS_MAX, prefixes: true };
  const riding = { ...LIMITS, operationsMax: RIDING_OPERATIONS_MAX, prefixes: false };
  const { onKv, onTransaction } = broker;
  broker.onKv = async (request) => {
    checkKv(request.operations, kv, 'client', 'operations');
    return onKv(request);
  };
  broker.onTransaction = async (request) => {
    checkKv(request.kv, riding, 'client', 'kv');
    checkTimers(request.timers, PAYLOAD, 'timers');
    return onTransaction(request);
  };
  const { listing } = broker;
  broker.kvList = async ({ namespace, prefix, after }) => {
    checkNamespace(namespace, 'namespace');
    checkCursor(prefix, 'prefix');
    if (after !== null) checkCursor(after, 'after');
    return listing;
  };
  broker.timers = {
    apply: async ({ operations }: { operations: readonly TimerOperation[] }) => {
      checkTimers(operations, PAYLOAD, 'operations');
      return operations.map(({ queue, timerKey }) => ({
        status: 'absent',
        queue,
        timerKey,
        transactionId: null,
        messageId: null,
        dueAtMicros: null,
      }));
    },
    list: async (_tenant: string, queue: string, page: { prefix: string; after: string | null }) => {
      checkQueue(queue, 'queue');
      checkText(page.prefix, PREFIX_BYTES_MAX, 'timers_bad_prefix', 'prefix');
      if (page.after !== null) checkText(page.after, TIMER_KEY_BYTES_MAX, 'timers_bad_after', 'after');
      return { rows: [], truncated: false, nextAfter: null };
    },
    queues: async (_tenant: string, { after }: { after: string | null }) => {
      if (after !== null && after !== '') checkQueue(after, 'after');
      return { queues: [], nextAfter: null };
    },
    peek: async (_tenant: string, queue: string, timerKey: string) => {
      checkQueue(queue, 'queue');
      checkKey(timerKey, 'timerKey');
      return null;
    },
  } as never;
  wire = await openWire({ after: (end) => ends.push(end) }, { broker });
  api = new Document((await (await fetch(`${wire.url}/openapi.json`)).json()) as Record<string, unknown>);
});

test.after(async () => {
  for (const end of ends) await end();
});

const placed = (path: string) => path.replaceAll(/\{\w+\}/g, 'x');

async function ask(method: string, target: string, body?: unknown) {
  const response = await fetch(wire.url + target, {
    method,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  const { status } = response;
  const isJson = response.headers.get('content-type')?.startsWith('application/json') === true;
  return { status, answer: isJson && text !== '' ? JSON.parse(text) : text };
}

/** What the fake broker lacks is a 500: the request was read. */
const refused = (status: number) => status === 400 || status === 413;

/** A refusal has the shape and the code that are documented for its status. */
function checkRefusal(
  at: string,
  operation: ShownOperation,
  status: number,
  answer: Record<string, unknown>,
): void {
  const shown = operation.responses[status];
  assert.ok(shown !== undefined, `${at}: ${status} is not documented: ${JSON.stringify(answer)}`);
  const response = api.resolve(shown);
  const { schema } = response.content!['application/json']!;
  assert.deepEqual(api.faultsOf(schema, answer), [], `${at}: ${JSON.stringify(answer)}`);
  const codes = response['x-queen-codes']!;
  const told = [answer.code, answer.error, answer.reason === 'bad_request' ? 'bad_body' : answer.reason];
  assert.ok(
    told.some((code) => codes.includes(String(code))),
    `${at}: ${JSON.stringify(answer)} has none of ${codes}`,
  );
}

function withBodies() {
  return api.operations.filter(({ operation }) => operation.requestBody !== undefined);
}

/** The schema with its references followed. */
function shapeOf(schema: unknown): Shape {
  if (Array.isArray(schema)) return schema.map(shapeOf) as unknown as Shape;
  if (typeof schema !== 'object' || schema === null) return schema as Shape;
  const { $ref } = schema as { $ref?: string };
  if ($ref !== undefined) return shapeOf(api.resolve({ $ref }));
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, shapeOf(value)])) as Shape;
}

/** What the descriptions say and no schema can: which keys a call has twice, and what base64 is of. */
const UNSAYABLE: ReadonlySet<string> = new Set([
  'kv_duplicate_key_in_call',
  'timers_duplicate_key_in_call',
  'timers_bad_payload',
]);

/** A lease is extended for a while whatever the body is, if it is not an object that says how long. */
const LENIENT: ReadonlySet<string> = new Set(['extendLease']);

/** What stands for no body at all, as the document says in words. */
function isNone({ operationId, requestBody }: ShownOperation, body: unknown): boolean {
  if (body === null) return requestBody!.description?.includes('null') === true;
  return LENIENT.has(operationId) && (typeof body !== 'object' || Array.isArray(body));
}

async function agree(
  method: string,
  path: string,
  operation: ShownOperation,
  body: unknown,
): Promise<boolean> {
  const { schema } = operation.requestBody!.content['application/json']!;
  const faults = api.faultsOf(schema, isNone(operation, body) ? {} : body);
  const { status, answer } = await ask(method, placed(path), body);
  if (UNSAYABLE.has(answer?.reason) || UNSAYABLE.has(answer?.code)) return true;
  const at = `${method} ${path} ${JSON.stringify(body).slice(0, 300)}`;
  assert.equal(
    refused(status),
    faults.length > 0,
    `${at}: ${status} ${JSON.stringify(answer)}, and the schema says ${faults.join('; ') || 'nothing'}`,
  );
  if (faults.length > 0) checkRefusal(at, operation, status, answer);
  return faults.length > 0;
}

test('bodies: a route takes what its schema takes, and refuses what it refuses', async (t) => {
  assert.ok(withBodies().length >= 19);
  for (const { method, path, operation } of withBodies()) {
    await t.test(`${method} ${path}`, async () => {
      const { schema, example } = operation.requestBody!.content['application/json']!;
      let wrong = 0;
      if (example !== undefined) {
        assert.equal(await agree(method, path, operation, example), false);
        for (const other of neighbours(example)) if (await agree(method, path, operation, other)) wrong++;
        assert.ok(wrong > 5);
      }
      // A choice may rule out what was drawn for another member.
      const instances = valuesOf(shapeOf(schema)).filter((body) => api.faultsOf(schema, body).length === 0);
      await fc.assert(
        fc.asyncProperty(instances, fc.nat(), async (body, seed) => {
          await agree(method, path, operation, body);
          const around = [...neighbours(body)];
          for (let i = 0; i < NEIGHBOURS; i++) {
            await agree(method, path, operation, around[(seed + i * 7919) % around.length]);
          }
        }),
        { numRuns: RUNS },
      );
    });
  }
});

/** Values that a parameter takes, and values that it refuses. */
function samples({ name, required, schema }: ShownParameter): { good: string[]; bad: string[] } {
  const { type, enum: words, format, maxLength, minLength, pattern } = schema as Shape;
  if (words !== undefined) return { good: words as string[], bad: ['nonsense', `${words[0]} `] };
  if (type === 'boolean') return { good: ['true', 'false'], bad: ['maybe', '2'] };
  if (type === 'integer') {
    const { minimum = INT_MIN, maximum = INT_MAX } = schema as Shape;
    return {
      good: [String(minimum), String(maximum), '7'],
      bad: [String(minimum - 1), String(maximum + 1), '1.5', 'x', '0x10', '1e3'],
    };
  }
  if (format === 'date-time')
    return { good: ['2026-01-31T10:00:00Z', '2026-01-31'], bad: ['soon', '2026-02-30'] };
  // A longer one does not get past the request line.
  if (maxLength !== undefined && maxLength > 10_000)
    return { good: ['x'], bad: ['', 'a\u0001b'].slice(minLength === 1 ? 0 : 1) };
  const good = maxLength === undefined ? ['x'] : ['x', 'x'.repeat(maxLength)];
  const bad = maxLength === undefined ? [] : ['x'.repeat(maxLength + 1)];
  if (pattern !== undefined) bad.push('a\u0000b');
  if (pattern?.includes('\\p{Cc}')) bad.push('a\u0001b');
  if (required && minLength === 1) bad.push('');
  assert.ok(good.length + bad.length > 0, name);
  return { good, bad };
}

test('parameters: each that is declared is read, and what it does not take is refused under its name', async () => {
  let tried = 0;
  for (const { method, path, operation } of api.operations) {
    const declared = (operation.parameters ?? []).filter(({ in: where }) => where === 'query');
    for (const parameter of declared) {
      const { name } = parameter;
      const others = declared
        .filter((each) => each.required && each.name !== name)
        .map((each) => `${each.name}=x&`)
        .join('');
      // Needed beside the others to get that far.
      const scope =
        path === '/api/v1/pop' && name !== 'namespace'
          ? 'namespace=x&'
          : path === '/api/v1/consumer-groups' && name !== 'limit'
            ? 'limit=10&'
            : '';
      const group = name === 'conflation' ? 'consumerGroup=x&' : '';
      const target = (value: string) => `${placed(path)}?${others}${scope}${group}${name}=${value}`;
      const at = (value: string) => `${method} ${path} ${name}=${value.slice(0, 40)}`;
      const { good, bad } = samples(parameter);
      for (const value of good) {
        const { status, answer } = await ask(method, target(encodeURIComponent(value)));
        const clash = value === 'count' && answer?.reason === 'timers_count_prefix_required';
        assert.ok(!refused(status) || clash, `${at(value)}: ${status} ${JSON.stringify(answer)}`);
        tried++;
      }
      const escaped = bad.map(encodeURIComponent);
      // Malformed, and twice: only who reads it complains.
      for (const value of [...escaped, '%ff', `x&${name}=x`]) {
        const { status, answer } = await ask(method, target(value));
        assert.ok(refused(status), `${at(value)} is taken: ${status} ${JSON.stringify(answer)}`);
        assert.equal(answer.field, name, `${at(value)}: ${JSON.stringify(answer)}`);
        checkRefusal(at(value), operation, status, answer);
        tried++;
      }
      const unheard = await ask(method, `${target(encodeURIComponent(good[0]!))}&unheardOf=%ff`);
      assert.ok(!refused(unheard.status), `${at('')}: an unknown parameter is ignored`);
    }
  }
  assert.ok(tried > 500, `${tried}`);
});
