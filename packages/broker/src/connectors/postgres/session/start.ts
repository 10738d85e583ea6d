import type pg from 'pg';
import { ConnectorFault } from '../fault.ts';

/**
 * The start of a connection. Beside what pg checks: a server that was asked to prove that it knows the password and was
 * then silent about it is not let through.
 */
export async function startClient(client: pg.Client): Promise<void> {
  // What ends the connection later is told by the wire.
  client.on('error', () => {});
  await client.connect();
  const { saslSession } = client as unknown as { saslSession?: object | null };
  if (saslSession === undefined || saslSession === null) return;
  throw new ConnectorFault(
    'postgres',
    'the authentication failed: the server did not prove that it knows the password',
  );
}
