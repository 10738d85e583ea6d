/** An OpenAPI document, as a test looks into it: operations, references, and values against its schemas. */
import Ajv2020, { type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';

interface Media {
  schema: object;
  example?: unknown;
}

export interface ShownResponse {
  $ref?: string;
  description?: string;
  headers?: Record<string, unknown>;
  content?: Record<string, Media>;
  'x-queen-codes'?: string[];
}

export interface ShownParameter {
  $ref?: string;
  name: string;
  in: 'path' | 'query' | 'header';
  required: boolean;
  schema: Record<string, unknown>;
}

export interface ShownOperation {
  operationId: string;
  summary: string;
  tags: string[];
  parameters?: ShownParameter[];
  requestBody?: { required: boolean; description?: string; content: Record<string, Media> };
  responses: Record<string, ShownResponse>;
  security?: unknown[];
  'x-queen-access': string;
  'x-queen-roles': string[];
}

export class OpenApi {
  readonly document: Record<string, unknown>;
  readonly operations: { method: string; path: string; operation: ShownOperation }[];
  readonly #ajv = new Ajv2020.default({ strict: true, strictRequired: false, allowUnionTypes: true });
  readonly #compiled = new Map<string, ValidateFunction>();

  constructor(document: Record<string, unknown>) {
    this.document = document;
    const paths = document.paths as Record<string, Record<string, ShownOperation>>;
    this.operations = Object.entries(paths).flatMap(([path, item]) =>
      Object.entries(item).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
    );
    formats.default(this.#ajv);
    this.#ajv.addVocabulary(['components']);
    this.#ajv.addSchema({ $id: 'queen:document', components: document.components }, 'queen:document');
  }

  /** What a reference leads to, or the thing itself. */
  resolve<T extends { $ref?: string }>(thing: T): T {
    if (thing.$ref === undefined) return thing;
    return thing.$ref
      .slice(2)
      .split('/')
      .reduce((at: unknown, key) => (at as Record<string, unknown>)[key], this.document) as T;
  }

  /** Throws for a schema that is none, or leads to nothing. */
  compile(schema: object): ValidateFunction {
    const text = JSON.stringify(schema);
    let check = this.#compiled.get(text);
    if (check === undefined) {
      const anchored = text.replaceAll('"$ref":"#/', '"$ref":"queen:document#/');
      check = this.#ajv.compile(JSON.parse(anchored));
      this.#compiled.set(text, check);
    }
    return check;
  }

  /**
   * What is wrong with a value; empty: nothing.
   *
   * @param options closed: a member that the schema does not name is a fault too, where it does not say that there may be others
   */
  faultsOf(schema: object, value: unknown, options: { closed?: boolean } = {}): string[] {
    const check = this.compile(options.closed === true ? this.#closed(schema) : schema);
    if (check(value)) return [];
    return check.errors!.map(
      ({ instancePath, message, params }) => `${instancePath} ${message} ${JSON.stringify(params)}`,
    );
  }

  /** The operation that a request of this target is for: the one with the fewest names in its path. */
  find(method: string, target: string): { method: string; path: string; operation: ShownOperation } {
    const path = target.split('?')[0]!;
    const fits = this.operations.filter((each) => {
      const pattern = each.path.replaceAll(/[.]/g, '\\.').replaceAll(/\{\w+\}/g, '[^/]+');
      return each.method === method && new RegExp(`^${pattern}$`).test(path);
    });
    const [best] = fits.toSorted((a, b) => a.path.split('{').length - b.path.split('{').length);
    if (best === undefined) throw new Error(`${method} ${path} is not in the document`);
    return best;
  }

  /** The same with its references followed, and objects that have what they name and nothing else. */
  #closed(schema: unknown): object {
    if (Array.isArray(schema)) return schema.map((each) => this.#closed(each));
    if (typeof schema !== 'object' || schema === null) return schema as unknown as object;
    const { $ref } = schema as { $ref?: string };
    if ($ref !== undefined) return this.#closed(this.resolve({ $ref }));
    const members = Object.fromEntries(
      Object.entries(schema).map(([key, value]) => [key, this.#closed(value)]),
    );
    return 'properties' in schema && !('additionalProperties' in schema)
      ? { ...members, additionalProperties: false }
      : members;
  }
}
