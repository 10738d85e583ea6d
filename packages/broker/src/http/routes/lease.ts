/** POST /api/v1/lease/:leaseId/extend, the one way to renew. */
import type { BrokerFace, ExtendResult } from '../../engine/types.ts';
import { formatInstantOrNull } from '../../log/instants.ts';
import { parseUuid } from '../../log/uuid.ts';
import { extendLease, LEASE_SECONDS } from '../api/messages.ts';
import type { App } from '../app.ts';

const NOTHING: ExtendResult = { renewed: 0, expiresAtMicros: null };

export function leaseRoutes(app: App, broker: BrokerFace): void {
  app.route({
    method: 'POST',
    url: '/api/v1/lease/:leaseId/extend',
    schema: extendLease,
    config: {
      level: 'read-write',
      lenientBody: true,
      wording: { failed: (detail) => `renew failed: ${detail}` },
    },
    handler: async (request) => {
      const { leaseId } = request.params;
      const seconds = Math.max(1, request.body.seconds ?? LEASE_SECONDS);
      // Only an id that we could have minted can be live.
      const known = parseUuid(leaseId) !== null;
      const { tenant } = request.identity;
      const { renewed, expiresAtMicros } = known ? await broker.extend(tenant, leaseId, seconds) : NOTHING;
      const expiresAt = formatInstantOrNull(expiresAtMicros);
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
