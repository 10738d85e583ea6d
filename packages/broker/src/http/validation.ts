/** The validator of bodies and path segments: JSON Schema, in the wire's words. */
import { AjvCompiler, type ValidatorFactory } from '@fastify/ajv-compiler';
import type { FastifySchemaValidationError, FastifyServerOptions } from 'fastify';
import { parseInstant, storableInstant } from '../log/instants.ts';
import type { Refusal } from './api/schemas.ts';
import { badBody, badQuery, Fault } from './errors.ts';

type AnyValidate = ReturnType<ReturnType<ValidatorFactory>>;

export const AJV = {
  // Nothing is coerced, filled in or removed behind a handler's back. Verbose: a fault needs what it is about.
  // That schemas are schemas is seen by a test, not by every start.
  customOptions: {
    coerceTypes: false,
    useDefaults: false,
    removeAdditional: false,
    verbose: true,
    meta: false,
    validateSchema: false,
    // What it saves a validator of a small body is less than it takes.
    code: { optimize: false },
  },
  onCreate(ajv) {
    ajv.addVocabulary(['refusal']);
    // What is an instant in a query is one in a body.
    ajv.addFormat('date-time', (text: string) => parseInstant(text) !== null);
  },
} satisfies FastifyServerOptions['ajv'];

/** Compiles a schema when something is first held against it: a start does not wait for those of all routes. */
export const buildValidator: ValidatorFactory = (schemas, options) => {
  const compile = AjvCompiler()(schemas, options);
  return (route) => {
    let compiled: ReturnType<typeof compile> | undefined;
    const validate = (value: unknown) => {
      compiled ??= compile(route);
      const verdict = compiled(value);
      validate.errors = compiled.errors;
      return verdict;
    };
    validate.errors = undefined as AnyValidate['errors'];
    return validate as AnyValidate;
  };
};

/** Of a text that the validator has found to be an instant. */
export function microsOf(text: string): number {
  return storableInstant(parseInstant(text)!);
}

/** What AJV says when it is verbose. */
interface Verdict extends FastifySchemaValidationError {
  parentSchema?: { refusal?: Refusal; properties?: Record<string, { refusal?: Refusal }> };
  data?: unknown;
}

/** The refusal of what the validator turned down in `context` (body, querystring, params). */
export function validationFault(error: FastifySchemaValidationError, context: string): Fault {
  const { keyword, params, parentSchema, data, message } = error as Verdict;
  const missing = keyword === 'required' ? String(params.missingProperty) : null;
  const field = fieldOf(error.instancePath, missing);
  const refusal = missing === null ? parentSchema?.refusal : parentSchema?.properties?.[missing]?.refusal;
  const value = missing === null ? data : undefined;
  const said = typeof refusal === 'function' ? refusal(value, field) : refusal;
  if (said instanceof Fault) return said;
  const detail = said ?? (missing === null ? (message ?? 'is not allowed') : 'is missing');
  if (context === 'querystring') return badQuery(field, detail);
  if (typeof refusal === 'function') return badBody(detail, field);
  return badBody(`${field === '' ? 'the body' : field} ${detail}`, field);
}

/** `entries[0].offset` of `/entries/0` and `offset`. */
function fieldOf(pointer: string, missing: string | null): string {
  const path = pointer
    .split('/')
    .slice(1)
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce((sofar, part) => (/^\d+$/.test(part) ? `${sofar}[${part}]` : join(sofar, part)), '');
  return missing === null ? path : join(path, missing);
}

function join(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}
