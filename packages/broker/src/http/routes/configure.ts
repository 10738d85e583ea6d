/** POST /api/v1/configure: creates a queue or changes its options. */
import type { BrokerFace, ConfigureRequest, QueueOptions } from '../../engine/types.ts';
import { CONFIGURE_MEMBERS, type ConfigureBody, configure, QUEUE_OPTIONS } from '../api/queues.ts';
import type { App } from '../app.ts';

export function configureRoutes(app: App, broker: BrokerFace): void {
  app.route({
    method: 'POST',
    url: '/api/v1/configure',
    schema: configure,
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

function readConfigure(tenant: string, body: ConfigureBody): ConfigureRequest {
  const nested = body.options != null;
  const options = named(body.options ?? body);
  for (const key of ['namespace', 'task'] as const) {
    const value = body[key];
    // At the top level an empty or absent one says nothing, whichever place the options were read from.
    if (!nested) delete options[key];
    if (value != null && value !== '') options[key] = value;
  }
  return { tenant, queue: body.queue, mode: body.mode ?? 'merge', options };
}

function named(given: ConfigureRequest['options']): ConfigureRequest['options'] {
  const names = Object.keys(QUEUE_OPTIONS).filter((name) => Object.hasOwn(given, name));
  return Object.fromEntries(names.map((name) => [name, given[name as keyof QueueOptions]]));
}

/** Keys where an option was expected and that name none: most likely misspelt, so the answer says that they did nothing. */
function unknownOptions(body: ConfigureBody): string[] {
  const given = body.options ?? body;
  return Object.keys(given).filter(
    (key) => !Object.hasOwn(QUEUE_OPTIONS, key) && (given !== body || !CONFIGURE_MEMBERS.includes(key)),
  );
}
