/** JSON Schemas for people: a type in a few words, and the members of an object one under the other. */
import { INT_MAX, INT_MIN } from '../../engine/types.ts';
import { type Html, html, words } from './html.ts';

export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly title?: string;
  readonly description?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly patternProperties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly default?: unknown;
  readonly format?: string;
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
}

/** Bounds that only say that a number is a number. */
const UNSAID: ReadonlySet<number | undefined> = new Set([
  undefined,
  INT_MIN,
  INT_MAX,
  Number.MAX_SAFE_INTEGER,
  Number.MIN_SAFE_INTEGER,
]);

/** `integer, 1 to 64`, `a or b`, `list of Message`. */
export function typeOf(schema: Schema): Html {
  const { $ref, type, items, anyOf, oneOf } = schema;
  if ($ref !== undefined) return link($ref);
  if (schema.const !== undefined) return html`<code>${JSON.stringify(schema.const)}</code>`;
  if (schema.enum !== undefined)
    return either(schema.enum.map((each) => html`<code>${JSON.stringify(each)}</code>`));
  const choice = anyOf ?? (type === undefined ? oneOf : undefined);
  if (choice !== undefined) return either(choice.map(typeOf));
  if (type === 'array')
    return html`list of ${items === undefined ? 'anything' : typeOf(items)}${range(schema)}`;
  if (Array.isArray(type))
    return either(type.map((each) => (each === 'null' ? html`null` : typeOf({ ...schema, type: each }))));
  if (type === undefined) return html`any JSON`;
  return html`${type}${schema.format === undefined ? '' : ` (${schema.format})`}${range(schema)}`;
}

/** The name of a component. */
export function nameOf(ref: string): string {
  return ref.slice(ref.lastIndexOf('/') + 1);
}

function link(ref: string): Html {
  const name = nameOf(ref);
  return html`<a href="#schema-${name}">${name}</a>`;
}

function either(choices: readonly Html[]): Html {
  return html`${choices.map((choice, i) => [i === 0 ? '' : ' or ', choice])}`;
}

function range({ minimum, maximum, minLength, maxLength, minItems, maxItems }: Schema): string {
  return (
    span(UNSAID.has(minimum) ? undefined : minimum, UNSAID.has(maximum) ? undefined : maximum, '') +
    span(minLength, maxLength, ' characters') +
    span(minItems, maxItems, ' elements')
  );
}

function span(least: number | undefined, most: number | undefined, unit: string): string {
  if (least === undefined && most === undefined) return '';
  if (most === undefined) return `, at least ${least}${unit}`;
  return least === undefined || (unit !== '' && least === 0)
    ? `, at most ${most}${unit}`
    : `, ${least} to ${most}${unit}`;
}

/** What there is to say about a schema besides its type. */
export function factsOf(schema: Schema): Html {
  const [first] = schema.anyOf ?? [];
  const said = schema.description === undefined && first?.description !== undefined ? first : schema;
  const absent = schema.default ?? first?.default;
  const pattern = schema.pattern ?? first?.pattern;
  return html`${said.description === undefined ? null : words(said.description)}${
    absent === undefined
      ? null
      : html` <span class="fact">Default <code>${JSON.stringify(absent)}</code>.</span>`
  }${
    // What only keeps control characters out is said once, for all names.
    pattern === undefined || pattern.includes('\\p{') || pattern.includes('\\u') || pattern === '\\S'
      ? null
      : html` <span class="fact">Matches <code>${pattern}</code>.</span>`
  }`;
}

/** Who a member matters to: who sends it has to know what is required, who gets it what may be missing. */
export type Reader = 'sender' | 'receiver';

/** The members of an object, of the elements of a list, or of each choice. */
export function membersOf(schema: Schema, reader: Reader): Html | null {
  if (schema.type === 'array' && schema.items !== undefined) return membersOf(schema.items, reader);
  const choices = schema.anyOf ?? (schema.type === undefined ? schema.oneOf : undefined);
  if (choices !== undefined) {
    const parts = choices.map((each) => membersOf(each, reader)).filter((part) => part !== null);
    return parts.length === 0 ? null : html`${parts}`;
  }
  const properties = Object.entries(schema.properties ?? {});
  const others = Object.values(schema.patternProperties ?? {});
  if (properties.length + others.length === 0) return null;
  const required = new Set(schema.required ?? []);
  return html`<dl class="members">${properties.map(([name, member]) =>
    entry(html`<code>${name}</code>`, member, required.has(name), reader),
  )}${others.map((member) => entry(html`each`, member, reader === 'receiver', reader))}</dl>`;
}

function entry(name: Html, schema: Schema, required: boolean, reader: Reader): Html {
  const mark =
    reader === 'sender' && required
      ? html` <span class="required">required</span>`
      : reader === 'receiver' && !required
        ? html` <span class="type">not always there:</span>`
        : null;
  return html`<dt>${name}${mark} <span class="type">${typeOf(schema)}</span></dt>
<dd>${factsOf(schema)}${membersOf(schema, reader)}</dd>`;
}
