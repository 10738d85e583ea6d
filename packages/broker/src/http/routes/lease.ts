/** POST /api/v1/lease/:leaseId/extend, the one way to renew. */
import { Type } from '@fastify/type-provider-typebox';
import type { BrokerFace, ExtendResult } from '../../engine/types.ts';
import { parseUuid } from '../../log/uuid.ts';
import type { App } from '../app.ts';
import { badBody } from '../errors.ts';
import { formatMicrosOrNull } from '../instants.ts';
import { INT_MAX, INT_MIN } from '../query.ts';

const DEFAULT_SECONDS = 60;
const NOTHING: ExtendResult = { renewed: 0, expiresAtMicros: null };

export function leaseRoutes(app: App, broker: BrokerFace): void {
  app.route({
    method: 'POST',
    url: '/api/v1/lease/:leaseId/extend',
    schema: { params: Type.Object({ leaseId: Type.String() }) },
    config: {
      level: 'read-write',
      lenientBody: true,
      wording: { failed: (detail) => `renew failed: ${detail}` },
    },
    handler: async (request) => {
      const { leaseId } = request.params;
      const seconds = readSeconds(request.body);
      // Only an id that we could have minted can be live.
      const known = parseUuid(leaseId) !== null;
      const { tenant } = request.identity;
      const { renewed, expiresAtMicros } = known ? await broker.extend(tenant, leaseId, seconds) : NOTHING;
      const expiresAt = formatMicrosOrNull(expiresAtMicros);
      return {
        leaseId,
        success: renewed > 0,
        renewed,
        newExpiresAt: expiresAt,
        expiresAt,
        lease_expires_at: expiresAt,
      };
    },
  });
}

/** At least 1. A missing body or field means the default. */
function readSeconds(body: unknown): number {
  if (typeof body !== 'object' || body === null) return DEFAULT_SECONDS;
  const { seconds } = body as { seconds?: unknown };
  if (seconds === undefined || seconds === null) return DEFAULT_SECONDS;
  if (!Number.isInteger(seconds) || (seconds as number) < INT_MIN || (seconds as number) > INT_MAX) {
    throw badBody(`seconds must be an integer up to ${INT_MAX}`, 'seconds');
  }
  return Math.max(1, seconds as number);
}
