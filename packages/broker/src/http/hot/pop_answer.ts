/** The JSON of a pop's answer. Payloads are spliced in byte for byte; they are never parsed and never copied twice. */
import type { PopAnswer, PopClaim, PopRequest } from '../../engine/types.ts';
import { formatInstant } from '../../log/instants.ts';
import { JsonBytes } from './json_bytes.ts';

/** Bytes that a message takes besides its payload, about; only sizes the first buffer. */
const ENVELOPE_BYTES = 400;

/** The answer with messages. */
export function renderPop(wish: PopRequest, answer: PopAnswer): Buffer[] {
  let expected = 512;
  for (const { messages } of answer.claims) {
    for (const { payload } of messages) expected += payload.length + ENVELOPE_BYTES;
  }
  const out = new JsonBytes(expected);
  const first = answer.claims[0]!;
  out.text(`${head(wish, answer, first)},"messages":[`);
  let separator = '';
  for (const claim of answer.claims) {
    separator = renderClaim(out, wish, answer, claim, separator);
  }
  out.text(']}');
  return out.chunks();
}

/** The answer of a conflating group without messages: a body where others get a 204. */
export function renderEmptyPop(wish: PopRequest, answer: PopAnswer): string {
  if (answer.paused) return '{"messages":[],"paused":true,"conflation":true}';
  const told = answer.conflation || answer.conflationConflict ? answer : { ...answer, conflation: true };
  return `${head(wish, told, null)},"messages":[]}`;
}

/** The envelope, left open. */
function head(wish: PopRequest, answer: PopAnswer, first: PopClaim | null): string {
  const queue = wish.scope.kind === 'discovery' ? '' : wish.scope.queue;
  let json = `{"success":true,"queue":${JSON.stringify(queue)},"partition":${JSON.stringify(first?.partition ?? '')}`;
  json += `,"partitionId":"${first?.partitionId ?? ''}","leaseId":"${answer.leaseId}"`;
  json += `,"consumerGroup":${JSON.stringify(wish.group)},"partitionsClaimed":${answer.claims.length}`;
  if (answer.conflation) json += ',"conflation":true';
  if (answer.conflationConflict) json += ',"conflationConflict":true';
  if (answer.autopilot !== null) {
    const { partitions, batch, waitMs } = answer.autopilot;
    json += `,"autopilot":{"partitions":${partitions},"batch":${batch},"waitMs":${waitMs}}`;
  }
  return json;
}

function renderClaim(
  out: JsonBytes,
  wish: PopRequest,
  answer: PopAnswer,
  claim: PopClaim,
  before: string,
): string {
  let after = `,"partitionId":"${claim.partitionId}","partition":${JSON.stringify(claim.partition)}`;
  after += `,"leaseId":"${answer.leaseId}","consumerGroup":${JSON.stringify(wish.group)}`;
  after += `,"deliveryAttempt":${claim.deliveryAttempt}`;
  // On discovery the envelope cannot name the queue.
  if (wish.scope.kind === 'discovery') after += `,"queue":${JSON.stringify(claim.queue)}`;
  let separator = before;
  for (const message of claim.messages) {
    const trace = message.traceId === null ? 'null' : `"${message.traceId}"`;
    out.text(
      `${separator}{"id":"${message.id}","transactionId":${JSON.stringify(message.transactionId)},"traceId":${trace},"data":`,
    );
    out.bytes(message.payload);
    const sub = message.producerSub === null ? 'null' : JSON.stringify(message.producerSub);
    const createdAt = formatInstant(message.createdAtMicros);
    out.text(`,"producerSub":${sub},"createdAt":"${createdAt}"${after},"offset":${message.offset}}`);
    separator = ',';
  }
  return separator;
}
