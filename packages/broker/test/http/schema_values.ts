/** Values that a schema allows, and values beside those: what a reader is held against. */
import fc, { type Arbitrary } from 'fast-check';

export interface Shape {
  type?: string | string[];
  properties?: Record<string, Shape>;
  patternProperties?: Record<string, Shape>;
  required?: string[];
  items?: Shape;
  anyOf?: Shape[];
  oneOf?: Shape[];
  if?: Shape;
  else?: Shape;
  enum?: unknown[];
  const?: unknown;
  format?: string;
  pattern?: string;
  contentEncoding?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
}

const UNITS = fc.constantFrom(...'abcxyzABC0189 ._-~/"\\\'<{é€中', '😀');

/** Instances of the schema. */
export function valuesOf(shape: Shape): Arbitrary<unknown> {
  if ('const' in shape) return fc.constant(shape.const);
  if (shape.enum !== undefined) return fc.constantFrom(...shape.enum);
  if (shape.anyOf !== undefined) {
    const { anyOf, ...rest } = shape;
    return fc.oneof(
      ...anyOf.map((each) => valuesOf(rest.properties === undefined ? each : merged(rest, each))),
    );
  }
  if (shape.oneOf !== undefined) return fc.oneof(...shape.oneOf.map((each) => valuesOf(merged(shape, each))));
  if (shape.else !== undefined) {
    const { if: _condition, else: otherwise, ...rest } = shape;
    const { options: _options, ...members } = rest.properties!;
    const flat = merged({ ...rest, properties: members }, otherwise);
    return fc.oneof(
      valuesOf({ ...rest, required: [...(rest.required ?? []), 'options'] }).filter(hasOptions),
      valuesOf(flat),
    );
  }
  const types = [shape.type ?? 'any'].flat();
  return types.length === 1
    ? ofType(types[0]!, shape)
    : fc.oneof(...types.map((type) => ofType(type, shape)));
}

function hasOptions(value: unknown): boolean {
  return (value as { options: unknown }).options !== null;
}

function merged(outer: Shape, inner: Shape): Shape {
  const { oneOf: _oneOf, ...rest } = outer;
  return {
    ...rest,
    ...inner,
    properties: { ...rest.properties, ...inner.properties },
    required: [...new Set([...(rest.required ?? []), ...(inner.required ?? [])])],
  };
}

function ofType(type: string, shape: Shape): Arbitrary<unknown> {
  switch (type) {
    case 'any':
      return fc.jsonValue({ maxDepth: 2 });
    case 'null':
      return fc.constant(null);
    case 'boolean':
      return fc.boolean();
    case 'integer':
      return integers(shape);
    case 'number':
      return fc.oneof(fc.integer({ min: -1000, max: 1000 }), fc.constantFrom(0.5, -2.25));
    case 'string':
      return texts(shape);
    case 'array':
      return fc.array(valuesOf(shape.items ?? {}), {
        minLength: shape.minItems ?? 0,
        maxLength: Math.min(shape.maxItems ?? 3, 3),
      });
    default:
      return objects(shape);
  }
}

function integers({ minimum = -1_000_000, maximum = 1_000_000 }: Shape): Arbitrary<number> {
  return fc.oneof(
    fc.constantFrom(minimum, maximum),
    fc.integer({ min: Math.max(minimum, -(2 ** 31)), max: Math.min(maximum, 2 ** 31 - 1) }),
  );
}

function texts({
  format,
  contentEncoding,
  pattern,
  minLength = 0,
  maxLength = 20,
}: Shape): Arbitrary<string> {
  if (format === 'date-time') {
    return fc
      .date({ min: new Date('1970-01-01'), max: new Date('2200-01-01'), noInvalidDate: true })
      .map((date) => date.toISOString());
  }
  if (format === 'uuid') return fc.uuid();
  if (contentEncoding === 'base64') {
    return fc
      .jsonValue({ maxDepth: 1 })
      .map((value) => Buffer.from(JSON.stringify(value)).toString('base64'));
  }
  const drawn = fc.string({ unit: UNITS, minLength, maxLength: Math.min(maxLength, 20) });
  const all =
    maxLength > 20 && maxLength < 100_000 ? fc.oneof(drawn, fc.constant('x'.repeat(maxLength))) : drawn;
  if (pattern === undefined) return all;
  const rule = new RegExp(pattern, 'u');
  const few = fc.stringMatching(/^[a-z0-9][a-z0-9._-]{0,12}$/).filter((text) => rule.test(text));
  return fc.oneof(
    all.filter((text) => rule.test(text)),
    few,
  );
}

function objects({ properties = {}, patternProperties, required = [] }: Shape): Arbitrary<unknown> {
  if (patternProperties !== undefined) {
    return fc.dictionary(fc.stringMatching(/^[a-z]{1,5}$/), valuesOf(Object.values(patternProperties)[0]!), {
      maxKeys: 3,
    });
  }
  const members = Object.fromEntries(
    Object.entries(properties).map(([name, shape]) => [name, valuesOf(shape)]),
  );
  return fc.record(members, {
    requiredKeys: required.filter((name) => name in members),
    noNullPrototype: true,
  });
}

/** What is put in the place of something: each is wrong somewhere, and right elsewhere. */
const STRANGERS: readonly unknown[] = [
  null,
  true,
  0,
  -1,
  1.5,
  7,
  2 ** 31,
  2 ** 53,
  '',
  'x',
  'soon',
  '2026-01-31T10:00:00Z',
  'a\u0001b',
  'x'.repeat(64),
  'x'.repeat(255),
  'x'.repeat(256),
  'x'.repeat(512),
  'x'.repeat(513),
  'x'.repeat(65_536),
  [],
  [7],
  {},
  { x: 1 },
];

/** Every value that differs from this one in one place: something else there, nothing there, or a member more. */
export function* neighbours(value: unknown): Generator<unknown> {
  for (const stranger of STRANGERS) yield stranger;
  if (Array.isArray(value)) {
    for (const [i, element] of value.entries()) {
      for (const other of neighbours(element)) yield value.with(i, other);
    }
  } else if (typeof value === 'object' && value !== null) {
    yield { ...value, unheardOf: 1 };
    for (const [name, member] of Object.entries(value)) {
      const { [name]: _gone, ...rest } = value as Record<string, unknown>;
      yield rest;
      for (const other of neighbours(member)) yield { ...value, [name]: other };
    }
  }
}
