import type { ConnectorSpec, Queen } from '@queen-mq/client';
import { usage } from '../exit.ts';
import { changesBetween } from './changes.ts';
import { completed, hasPassword, shownOf, withSecret } from './connector_document.ts';
import type { Manifest } from './documents.ts';
import type { Plan } from './plan.ts';

/**
 * The document that is to be written, with its password.
 *
 * @throws Failure for what no connector can be, before anything is asked or sent; the rest is the broker's to judge
 */
export function checkConnector({ name, spec, where }: Manifest): ConnectorSpec {
  const at = `${where}: Connector ${name}`;
  const { kind } = spec;
  if (kind !== 'source' && kind !== 'sink') throw usage(`${at}: spec.kind is source or sink`);
  const block = spec[kind];
  if (typeof block !== 'object' || block === null) throw usage(`${at}: spec.${kind} is a mapping`);
  return withSecret(spec as Record<string, unknown>, at);
}

/** How a connector becomes as its manifest wants it. */
export async function connectorPlan(
  queen: Queen,
  name: string,
  spec: ConnectorSpec,
  signal: AbortSignal,
): Promise<Plan> {
  const stored = await queen.connectors.get(name, { signal });
  const wanted = completed(name, spec as unknown as Record<string, unknown>);
  const changes = changesBetween(stored === null ? undefined : shownOf(stored), wanted);
  const secret = hasPassword(spec);
  return {
    action: stored === null ? 'create' : changes.length > 0 ? 'change' : 'none',
    changes: stored === null ? flattened(wanted) : changes,
    resends: secret,
    async apply() {
      await queen.connectors.put(name, spec, { signal });
      return stored !== null && secret ? ['the password was sent anew'] : [];
    },
  };
}

function flattened(document: Record<string, unknown>) {
  return Object.entries(document).flatMap(([name, value]) =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? changesBetween({}, value, name)
      : [{ path: name, after: value }],
  );
}
