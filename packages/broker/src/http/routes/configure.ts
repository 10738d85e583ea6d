/** POST /api/v1/configure: creates a queue or changes its options. */
import { Type } from '@fastify/type-provider-typebox';
import type { BrokerFace, ConfigureRequest, QueueOptions } from '../../engine/types.ts';
import { nameFault } from '../../log/names.ts';
import type { App } from '../app.ts';
import { badBody, Fault } from '../errors.ts';
import { bodyName } from '../names.ts';
import { INT_MAX, INT_MIN } from '../query.ts';

type Given = { [K in keyof QueueOptions]?: QueueOptions[K] | null };
type Kind = 'integer' | 'boolean' | 'name' | 'sinkHold' | 'sinkHoldSeconds';

/** What each option accepts. Values are clamped by the engine where the product clamps; here only types are judged. */
const OPTION_KINDS: { readonly [K in keyof QueueOptions]: Kind } = {
  namespace: 'name',
  task: 'name',
  priority: 'integer',
  leaseTime: 'integer',
  retryLimit: 'integer',
  retryDelay: 'integer',
  maxSize: 'integer',
  ttl: 'integer',
  deadLetterQueue: 'boolean',
  dlqAfterMaxRetries: 'boolean',
  delayedProcessing: 'integer',
  windowBuffer: 'integer',
  retentionEnabled: 'boolean',
  retentionSeconds: 'integer',
  completedRetentionSeconds: 'integer',
  maxWaitTimeSeconds: 'integer',
  minPopWaitTime: 'integer',
  encryptionEnabled: 'boolean',
  dedupWindowSeconds: 'integer',
  retentionSinkHold: 'sinkHold',
  retentionSinkHoldMaxSeconds: 'sinkHoldSeconds',
};

const Nullable = <T extends Type.TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]));

const Body = Type.Object({
  queue: Type.String(),
  options: Nullable(Type.Record(Type.String(), Type.Unknown())),
  namespace: Nullable(Type.String()),
  task: Nullable(Type.String()),
  mode: Type.Optional(Type.Unknown()),
});

export function configureRoutes(app: App, broker: BrokerFace): void {
  app.route({
    method: 'POST',
    url: '/api/v1/configure',
    schema: { body: Body },
    config: { level: 'read-write', wording: { failed: (detail) => `configure failed: ${detail}` } },
    handler: async (request) => {
      const wish = readConfigure(request.identity.tenant, request.body);
      const { queueId, queue, options, ignored } = await broker.configure(wish);
      const { namespace, task, ...rest } = options;
      return {
        configured: true,
        queueId,
        partitionId: null,
        queue,
        namespace,
        task,
        storage: 'segments',
        options: rest,
        ignored: [...ignored, ...unknownOptions(request.body)],
      };
    },
  });
}

function readConfigure(tenant: string, body: Type.Static<typeof Body>): ConfigureRequest {
  const queue = bodyName(body.queue, 'queue');
  const mode = body.mode ?? 'merge';
  if (mode !== 'merge' && mode !== 'replace') {
    const message = `mode must be "merge" or "replace", got ${JSON.stringify(mode).slice(0, 100)}`;
    throw new Fault('bad_mode', { message, field: 'mode' });
  }
  const nested = body.options != null;
  const options = readOptions(nested ? body.options! : body, nested ? 'options.' : '');
  for (const key of ['namespace', 'task'] as const) {
    const value = body[key];
    // At the top level an empty or absent one says nothing, whichever place the options were read from.
    if (!nested) delete options[key];
    if (value != null && value !== '') options[key] = bodyName(value, key);
  }
  return { tenant, queue, mode, options };
}

/** Keys where an option was expected and that name none: most likely misspelt, so the answer says that they did nothing. */
function unknownOptions(body: Type.Static<typeof Body>): string[] {
  const given = body.options ?? body;
  return Object.keys(given).filter(
    (key) => !Object.hasOwn(OPTION_KINDS, key) && (given !== body || !Object.hasOwn(Body.properties, key)),
  );
}

function readOptions(given: object, path: string): Given {
  const options: Record<string, unknown> = {};
  for (const [key, kind] of Object.entries(OPTION_KINDS)) {
    if (!Object.hasOwn(given, key)) continue;
    const value = (given as Record<string, unknown>)[key];
    if (value !== null) check(value, kind, key, `${path}${key}`);
    options[key] = value;
  }
  return options as Given;
}

function check(value: unknown, kind: Kind, key: string, field: string): void {
  switch (kind) {
    case 'boolean':
      if (typeof value !== 'boolean') throw badBody(`${field} must be true or false`, field);
      return;
    case 'integer':
      if (isInteger(value, INT_MIN, INT_MAX)) return;
      throw badBody(`${field} must be an integer between ${INT_MIN} and ${INT_MAX}`, field);
    case 'name': {
      const fault = nameFault(value, field);
      if (fault !== null) throw badBody(fault, field);
      return;
    }
    case 'sinkHold':
      if (typeof value === 'string' && /^[A-Za-z0-9._-]{0,64}$/.test(value)) return;
      throw sinkFault(key, field, 'must be at most 64 letters, digits, dots, underscores and dashes');
    case 'sinkHoldSeconds':
      if (isInteger(value, 60, 31_536_000)) return;
      throw sinkFault(key, field, 'must be an integer between 60 and 31536000');
  }
}

function isInteger(value: unknown, min: number, max: number): boolean {
  return Number.isInteger(value) && (value as number) >= min && (value as number) <= max;
}

function sinkFault(key: string, field: string, detail: string): Fault {
  return new Fault('bad_body', { message: `${field} ${detail}`, field, extra: { invalid: key } });
}
