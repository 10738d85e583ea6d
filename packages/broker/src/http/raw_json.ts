/** Answers of the management routes that hold payloads: JSON text spliced in byte for byte. */
import type { FastifyReply } from 'fastify';
import { JsonBytes } from './hot/json_bytes.ts';

/** An object of plain members and of members that are JSON text already; null: JSON null. */
export interface SplicedObject {
  plain: Record<string, unknown>;
  spliced: Record<string, Buffer | string | null>;
}

/** `{"<name>":[…objects],…rest}`. The bytes are only read when the answer is sent. */
export function sendSplicedList(
  reply: FastifyReply,
  name: string,
  objects: Iterable<SplicedObject>,
  rest: Record<string, unknown>,
): FastifyReply {
  const out = new JsonBytes(16 * 1024);
  out.text(`{${JSON.stringify(name)}:[`);
  let separator = '';
  for (const object of objects) {
    out.text(separator);
    writeSpliced(out, object);
    separator = ',';
  }
  const tail = JSON.stringify(rest).slice(1);
  out.text(tail === '}' ? ']}' : `],${tail}`);
  return sendBytes(reply, out);
}

export function sendSpliced(reply: FastifyReply, object: SplicedObject): FastifyReply {
  const out = new JsonBytes(4 * 1024);
  writeSpliced(out, object);
  return sendBytes(reply, out);
}

export function sendBytes(reply: FastifyReply, out: JsonBytes): FastifyReply {
  return reply.type('application/json').send(Buffer.concat(out.chunks()));
}

export function writeSpliced(out: JsonBytes, { plain, spliced }: SplicedObject): void {
  const head = JSON.stringify(plain).slice(0, -1);
  out.text(head);
  let separator = head === '{' ? '' : ',';
  for (const [key, value] of Object.entries(spliced)) {
    out.text(`${separator}${JSON.stringify(key)}:`);
    if (value === null) out.text('null');
    else if (typeof value === 'string') out.text(value);
    else out.bytes(value);
    separator = ',';
  }
  out.text('}');
}
