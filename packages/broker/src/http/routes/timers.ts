/**
 * Timers: the batch route, and for one timer and one queue routes to look and to take back. The status of an answer says
 * how the call went, never what became of a timer: `absent` and `too_late` are 200.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { checkKey, checkQueue, checkTxn } from '../../engine/timers/check.ts';
import type { TimerOperation, TimersFace } from '../../engine/timers/face.ts';
import { timersFault } from '../../engine/timers/faults.ts';
import { applyTimers, cancelTimer, listTimers, peekTimer, timerQueues } from '../api/timers.ts';
import type { App } from '../app.ts';
import { turn } from '../operations_body.ts';
import { type Query, queryOf } from '../query.ts';
import { withRawBody } from '../raw_body.ts';
import { decodeSegment, splitTarget } from '../target.ts';
import { pendingMembers, timerMembers } from '../timers_answer.ts';
import { readTimersBody } from '../timers_body.ts';
import { blocksSchedulesOnly, timersFaultOf } from '../timers_faults.ts';

/** Of `/api/v1/timers/`: an empty one and three names. */
const SEGMENTS_BEFORE = 4;
const HINT = 'x-queen-timers-hint';

export function timerRoutes(app: App, timers: TimersFace): void {
  app.post('/api/v1/timers', { config: { rawBody: true }, schema: applyTimers }, (request, reply) =>
    answer(reply, () =>
      withRawBody(request, async (bytes) => {
        const operations = await readTimersBody(bytes, turn);
        const { tenant, sub } = request.identity;
        try {
          const results = await timers.apply({ tenant, producerSub: sub, operations });
          return { results: results.map(timerMembers) };
        } catch (error) {
          if (blocksSchedulesOnly(error) && operations.some(cancels)) {
            reply.header(HINT, 'send the cancellations in a call of their own: they are never blocked');
          }
          throw error;
        }
      }),
    ),
  );

  app.get('/api/v1/timers', { schema: timerQueues }, (request, reply) =>
    answer(reply, () => {
      const query = queryOf(request);
      return timers.queues(request.identity.tenant, {
        after: query.text('after'),
        limit: query.integer('limit'),
      });
    }),
  );

  const one = '/api/v1/timers/:queue/*';
  app.get(one, { schema: peekTimer }, (request, reply) =>
    answer(reply, async () => {
      const { queue, timerKey } = placeOf(request);
      const found = await timers.peek(request.identity.tenant, queue, timerKey);
      if (found === null) return { found: false, queue, timerKey };
      return { found: true, ...pendingMembers(found, found.payload) };
    }),
  );
  app.delete(one, { config: { lenientBody: true }, schema: cancelTimer }, (request, reply) =>
    answer(reply, async () => {
      const { queue, timerKey, query } = placeOf(request);
      const { tenant, sub } = request.identity;
      const txn = query.text('txn') || null;
      // By the names that the caller knows: the engine would speak of an operation.
      checkQueue(queue, 'queue');
      checkKey(timerKey, 'timerKey');
      if (txn !== null) checkTxn(txn, 'txn');
      const cancel: TimerOperation = {
        op: 'cancel',
        queue,
        timerKey,
        transactionId: txn,
      };
      const [result] = await timers.apply({ tenant, producerSub: sub, operations: [cancel] });
      const { ok, status, txn: named } = timerMembers(result!);
      return { ok, status, queue, timerKey, txn: named };
    }),
  );

  app.get('/api/v1/timers/:queue', { schema: listTimers }, (request, reply) =>
    answer(reply, async () => {
      const { queue, query } = placeOf(request);
      const { tenant } = request.identity;
      const mode = query.text('mode') ?? 'list';
      if (mode === 'count') return { count: await timers.count(tenant, queue, countPrefix(query)) };
      if (mode !== 'list' && mode !== '') {
        throw timersFault('timers_read_mode_unknown', 'mode must be list or count', 'mode');
      }
      const page = await timers.list(tenant, queue, {
        prefix: query.text('prefix') ?? '',
        after: query.text('after'),
        limit: query.integer('limit'),
      });
      return { ...page, rows: page.rows.map((row) => pendingMembers(row, null)) };
    }),
  );
}

/** Sends what `work` answers; what it throws is worded as timers word it. */
async function answer(reply: FastifyReply, work: () => Promise<object>): Promise<FastifyReply> {
  try {
    const json = JSON.stringify(await work());
    return reply.type('application/json').send(json);
  } catch (error) {
    throw timersFaultOf(error);
  }
}

function cancels(operation: TimerOperation): boolean {
  return operation.op === 'cancel';
}

/** Read off the target as it was sent: an escaped slash belongs to the queue or the key, a plain one to the key. */
function placeOf(request: FastifyRequest): { queue: string; timerKey: string; query: Query } {
  const { path } = splitTarget(request.raw.url!);
  const [queue = '', ...key] = path.split('/').slice(SEGMENTS_BEFORE);
  return {
    queue: decodeSegment(queue, 'queue'),
    timerKey: decodeSegment(key.join('/'), 'timerKey'),
    query: queryOf(request),
  };
}

function countPrefix(query: Query): string {
  for (const name of ['after', 'limit']) {
    if (query.text(name) === null) continue;
    throw timersFault('timers_count_has_no_pages', `${name} is not for mode=count`, name);
  }
  const prefix = query.text('prefix') ?? '';
  if (prefix !== '') return prefix;
  throw timersFault('timers_count_prefix_required', 'prefix must not be empty with mode=count', 'prefix');
}
