/**
 * Reading JSON values that people wrote, with one fault a document: the first in the order of the text.
 *
 * Every field is looked at in the order in which it stands there, and that is its place; a missing one counts where its
 * object ends. Faults that come of two fields count at the one that they name. So whoever mends a document from top to
 * bottom is never sent back.
 */

const ORDINARY = /^[A-Za-z_$][\w$]{0,63}$/;
const SHOWN_MAX = 64;

/** What is wrong with a document: a sentence that begins with the path of the field. */
export class DocumentFault extends Error {
  readonly field: string;
  /** Without its subject. */
  readonly sentence: string;

  constructor(field: string, sentence: string) {
    super(`${field}: ${sentence}`);
    this.name = 'DocumentFault';
    this.field = field;
    this.sentence = sentence;
  }
}

export class Faults {
  #first: { place: number; fault: DocumentFault } | null = null;
  #clock = 0;
  readonly #places = new Map<string, number>();

  /** The field at `path` is being looked at. */
  enter(path: string): void {
    this.#places.set(path, ++this.#clock);
  }

  /** @param sentence without its subject: `must be a string` */
  add(path: string, sentence: string): undefined {
    const place = this.#places.get(path) ?? ++this.#clock;
    if (this.#first === null || place < this.#first.place) {
      this.#first = { place, fault: new DocumentFault(path, sentence) };
    }
  }

  get first(): DocumentFault | null {
    return this.#first?.fault ?? null;
  }
}

/** Undefined: absent, or wrong and in `faults`. */
export interface Check<T> {
  (value: unknown, path: string, faults: Faults): T | undefined;
  /** JSON Schema of what it takes, as far as that can say it; for whoever writes documents. */
  readonly schema?: JsonSchema;
}

export type JsonSchema = Readonly<Record<string, unknown>>;

/** The check, which says what it takes. */
export function described<T>(schema: JsonSchema, check: Check<T>): Check<T> {
  return Object.assign(check, { schema });
}

export interface Field<T> {
  readonly check: Check<T>;
  readonly required: boolean;
}

export function required<T>(check: Check<T>): Field<T> {
  return { check, required: true };
}

export function optional<T>(check: Check<T>): Field<T> {
  return { check, required: false };
}

/** Taken and thrown away, whatever it holds. */
export const dropped: Field<undefined> = { check: () => undefined, required: false };

type Fields = Readonly<Record<string, Field<unknown>>>;
export type Members<F extends Fields> = {
  readonly [K in keyof F]: F[K] extends Field<infer T> ? T | undefined : never;
};

/** Members that are absent, null where they may be, or wrong are undefined. */
export function readObject<F extends Fields>(
  value: unknown,
  path: string,
  fields: F,
  faults: Faults,
): Members<F> {
  const read: Record<string, unknown> = {};
  const at = (name: string) => pathTo(path, name);
  if (!isObject(value)) {
    faults.add(path, `must be an object, not ${kindOf(value)}`);
    return read as Members<F>;
  }
  for (const [name, member] of Object.entries(value)) {
    faults.enter(at(name));
    if (!Object.hasOwn(fields, name)) {
      faults.add(at(name), 'is not a field that is known here');
      continue;
    }
    const field = fields[name]!;
    if (member !== null || field.required) read[name] = field.check(member, at(name), faults);
  }
  for (const [name, field] of Object.entries(fields)) {
    if (field.required && !Object.hasOwn(value, name)) faults.add(at(name), 'is missing');
  }
  return read as Members<F>;
}

/** A name that is no ordinary one is quoted, and cut when nobody would read it. */
function pathTo(path: string, name: string): string {
  if (!ORDINARY.test(name)) return `${path}[${JSON.stringify(name.slice(0, SHOWN_MAX))}]`;
  return path === '' ? name : `${path}.${name}`;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Of a JSON value, with its article. */
export function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

export function object<F extends Fields>(fields: F): Check<Members<F>> {
  return described(schemaOf(fields), (value, path, faults) => readObject(value, path, fields, faults));
}

export function schemaOf(fields: Fields): JsonSchema {
  const members = Object.entries(fields).map(([name, { check, required }]) => {
    const schema = check.schema ?? {};
    return [name, required || check.schema === undefined ? schema : { anyOf: [schema, { type: 'null' }] }];
  });
  const required = Object.keys(fields).filter((name) => fields[name]!.required);
  return {
    type: 'object',
    properties: Object.fromEntries(members),
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: false,
  };
}

export const boolean: Check<boolean> = described({ type: 'boolean' }, (value, path, faults) =>
  typeof value === 'boolean' ? value : faults.add(path, `must be true or false, not ${kindOf(value)}`),
);

export function integer(low: number, high: number): Check<number> {
  return described({ type: 'integer', minimum: low, maximum: high }, (value, path, faults) => {
    const range = `must be an integer in ${low}..=${high}`;
    if (typeof value !== 'number') return faults.add(path, `${range}, not ${kindOf(value)}`);
    if (!Number.isInteger(value) || value < low || value > high) {
      return faults.add(path, `${range}, not ${value}`);
    }
    return value;
  });
}

export function oneOf<const T extends string>(...values: readonly T[]): Check<T> {
  return described({ type: 'string', enum: values }, (value, path, faults) => {
    const list = `must be one of ${values.map((each) => JSON.stringify(each)).join(', ')}`;
    if (typeof value !== 'string') return faults.add(path, `${list}, not ${kindOf(value)}`);
    return values.find((each) => each === value) ?? faults.add(path, list);
  });
}

/**
 * @param judge answers what is wrong with the text, without its subject; null when nothing is
 * @param more what of it a schema can say
 */
export function text(judge: (text: string) => string | null, more: JsonSchema = {}): Check<string> {
  return described({ type: 'string', ...more }, (value, path, faults) => {
    if (typeof value !== 'string') return faults.add(path, `must be a string, not ${kindOf(value)}`);
    const sentence = value.isWellFormed() ? judge(value) : 'must be well-formed Unicode';
    return sentence === null ? value : faults.add(path, sentence);
  });
}

/** With at least `low` and at most `high` elements; elements that are wrong are missing from the answer. */
export function array<T>(element: Check<T>, low: number, high: number): Check<readonly T[]> {
  const most = high === Number.POSITIVE_INFINITY ? {} : { maxItems: high };
  const schema = { type: 'array', items: element.schema ?? {}, minItems: low, ...most };
  return described(schema, (value, path, faults) => {
    if (!Array.isArray(value)) return faults.add(path, `must be an array, not ${kindOf(value)}`);
    if (value.length < low || value.length > high) {
      const range = high === Number.POSITIVE_INFINITY ? `at least ${low}` : `${low}..=${high}`;
      return faults.add(path, `must have ${range} elements, not ${value.length}`);
    }
    const read: T[] = [];
    value.forEach((each, i) => {
      const at = `${path}[${i}]`;
      faults.enter(at);
      const one = element(each, at, faults);
      if (one !== undefined) read.push(one);
    });
    return read;
  });
}
