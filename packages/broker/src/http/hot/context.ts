/** What the hot handlers work with. */
import type { BrokerFace } from '../../engine/types.ts';
import type { Log } from '../../observability/log.ts';
import type { Traffic } from '../../observability/traffic.ts';
import type { BodyReceiver } from '../body.ts';
import type { Connections } from '../connections.ts';
import type { Identify } from '../identity.ts';

export interface PopDefaults {
  /** How long `wait=true` waits when the caller sets no timeout. */
  timeoutMs: number;
  /** For calls of a named group that carry none. */
  subscriptionMode: 'new' | 'all';
}

export interface HotContext {
  broker: BrokerFace;
  bodies: BodyReceiver;
  connections: Connections;
  identify: Identify;
  traffic: Traffic;
  log: Log;
  pop: PopDefaults;
}
