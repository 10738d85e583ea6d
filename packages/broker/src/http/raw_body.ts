/** Bodies that stay bytes: values in them are taken as spans, so that a number keeps its digits. */
import type { FastifyRequest } from 'fastify';
import type { Body } from './body.ts';

const NOTHING = Buffer.alloc(0);

/** Runs `work` with the body of a route whose config says `rawBody`, and gives its room back afterwards. */
export async function withRawBody<T>(
  request: FastifyRequest,
  work: (bytes: Buffer) => Promise<T>,
): Promise<T> {
  const body = request.body as Body | undefined;
  try {
    return await work(body?.bytes ?? NOTHING);
  } finally {
    body?.release();
  }
}
