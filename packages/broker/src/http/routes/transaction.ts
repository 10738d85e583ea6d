/**
 * POST /api/v1/transaction. What the database decided against is 200 with `success: false`; what is refused before, or
 * cannot be carried out, has a status of its own. Every answer that is about the transaction has `success` and `reason`.
 */
import { EngineError } from '../../engine/errors.ts';
import type {
  TransactionAnswer,
  TransactionFace,
  TransactionRequest,
  TransactionResult,
} from '../../engine/transaction/types.ts';
import { BodyFault } from '../../log/json/fault.ts';
import { formatUuid, mintUuidV7 } from '../../log/uuid.ts';
import { transaction } from '../api/transaction.ts';
import type { App } from '../app.ts';
import { JsonBytes } from '../hot/json_bytes.ts';
import { kvMembers, preconditionMembers } from '../kv_answer.ts';
import { turn } from '../operations_body.ts';
import { withRawBody } from '../raw_body.ts';
import { timerMembers } from '../timers_answer.ts';
import { readTransactionBody } from '../transaction_body.ts';

/** Codes of a rider that needs what is switched off, or not in the plan. */
const FORBIDDEN: ReadonlySet<string> = new Set([
  'kv_disabled',
  'kv_quota_exceeded',
  'kv_reserved_namespace',
  'feature_gated',
  'timers_disabled',
  'timers_quota_exceeded',
]);

export function transactionRoutes(app: App, broker: TransactionFace): void {
  app.post(
    '/api/v1/transaction',
    {
      schema: transaction,
      config: {
        rawBody: true,
        bodyLane: 'push',
        wording: { failed: (detail) => `transaction failed: ${detail}` },
      },
    },
    (request, reply) =>
      withRawBody(request, async (bytes) => {
        reply.type('application/json');
        const { tenant, sub } = request.identity;
        try {
          const body = await readTransactionBody(bytes, turn);
          const wish: TransactionRequest = { tenant, origin: 'client', producerSub: sub, ...body };
          const chunks = render(wish, await broker.transaction(wish));
          return await reply.send(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks));
        } catch (error) {
          const refused = preflight(error);
          if (refused === null) throw error;
          return await reply.code(refused.status).send(refused.body);
        }
      }),
  );
}

/** A refusal before anything was written, in the shape of a transaction's answer. Null: it is none. */
function preflight(error: unknown): { status: number; body: Record<string, unknown> } | null {
  const transactionId = formatUuid(mintUuidV7(Date.now()));
  const shape = { transactionId, success: false, results: [] };
  if (error instanceof BodyFault) {
    const { message, field } = error;
    const body = { ...shape, reason: 'bad_request', error: `bad body: ${message}`, code: 'bad_body' };
    return { status: 400, body: field === '' ? body : { ...body, field } };
  }
  if (!(error instanceof EngineError) || error.kind !== 'refused' || error.code === 'database_error')
    return null;
  const { code, reason, message } = error;
  const field = error.field === undefined ? {} : { field: error.field };
  if (FORBIDDEN.has(code) || code === 'payload_too_large') {
    const body = { ...shape, reason: code, error: code, code: reason ?? code, message, ...field };
    return { status: code === 'payload_too_large' ? 413 : 403, body };
  }
  const sentence = reason === undefined ? message : `${reason}: ${message}`;
  return {
    status: 400,
    body: { ...shape, reason: 'bad_request', error: sentence, code: reason ?? code, ...field },
  };
}

function render(request: TransactionRequest, answer: TransactionAnswer): Buffer[] {
  const out = new JsonBytes(256 * (request.operations.length + request.kv.length + 1));
  out.text(`{"transactionId":"${answer.transactionId}","success":${answer.success}`);
  if (!answer.success) {
    const { reason, error, failedIndex, kv } = answer.refusal;
    out.text(`,"reason":"${reason}","error":${JSON.stringify(error)}`);
    if (failedIndex !== null) out.text(`,"failedIndex":${failedIndex}`);
    if (kv !== undefined) out.text(`,"ok":false,${preconditionMembers(kv)}`);
    out.text(',"results":[]}');
    return out.chunks();
  }
  out.text(',"results":[');
  let index = 0;
  const element = (members: string) => {
    out.text(`${index === 0 ? '' : ','}{"index":${index},${members}}`);
    index++;
  };
  for (const result of answer.results) element(operationMembers(result));
  answer.kv.forEach((result, opIndex) => {
    element(`"type":"kv","opIndex":${opIndex},${kvMembers(result)}`);
  });
  answer.timers.forEach((result, opIndex) => {
    element(`"type":"timer","opIndex":${opIndex},${JSON.stringify(timerMembers(result)).slice(1, -1)}`);
  });
  out.text(']}');
  return out.chunks();
}

function operationMembers(result: TransactionResult): string {
  const id = `"transactionId":${JSON.stringify(result.transactionId)}`;
  if (result.type === 'push') {
    const members = `"type":"push","success":true,${id},"messageId":"${result.messageId}","queueName":${JSON.stringify(result.queue)}`;
    const where = `,"partitionId":"${result.partitionId}","offset":${result.offset}`;
    return result.duplicate ? `${members},"duplicate":true${where}` : members + where;
  }
  const { success, error, dlq, noop, leaseReleased, conflated, dropped } = result.verdict;
  const members = `"type":"ack","success":${success},${id},"error":${JSON.stringify(error)},"dlq":${dlq},"noop":${noop},"leaseReleased":${leaseReleased}`;
  return `${members}${conflated === undefined ? '' : `,"conflated":${conflated}`}${dropped === true ? ',"dropped":true' : ''}`;
}
