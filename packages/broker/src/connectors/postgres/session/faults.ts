/**
 * What a server or the network said, as a fault of the connector.
 *
 * A server's answer keeps its SQLSTATE, in the text too, and the answer itself as the cause (detail, constraint, context). It
 * is worth another try at once only if its SQLSTATE is of the passing sort; a wrong password is asked again every half
 * minute and not every second, since some servers lock the account.
 */
import { isServerError, type ServerError } from '../../../store/errors.ts';
import { ConnectorFault } from '../fault.ts';
import { ProtocolViolation } from '../replication/pgoutput.ts';

/** Single SQLSTATEs that pass by themselves, beside the classes 08 (connection) and 53 (resources). */
const PASSING = new Set([
  '57P01', // shut down
  '57P02', // crashed
  '57P03', // starting
  '57014', // cancelled, and not by us
  '40001', // serialization failure
  '40P01', // deadlock
  '40003', // outcome unknown
  '55006', // object in use
  '55P03', // lock not available
  '58030', // input/output error
]);

/** A statement that was rolled back with it, or a connection that was refused with it, may go through next time. */
export function isPassingState(sqlState: string): boolean {
  return PASSING.has(sqlState) || sqlState.startsWith('08') || sqlState.startsWith('53');
}

/** Any failure of a session. A ConnectorFault stays what it is. */
export function sessionFault(error: unknown): ConnectorFault {
  if (error instanceof ConnectorFault) return error;
  if (isServerError(error)) return serverFault(error);
  return new ConnectorFault('io', sentence(error), { cause: error });
}

/** A failure between the first byte and the first statement. `host`: names the server in the text. */
export function connectFault(error: unknown, host: string): ConnectorFault {
  if (error instanceof ConnectorFault) return error;
  if (isServerError(error)) return serverFault(error);
  const text = sentence(error);
  const unsupported = /Unknown authenticationOk message type (\d+)/.exec(text);
  if (unsupported !== null || text.startsWith('SASL: Only mechanism')) {
    const wanted = unsupported === null ? 'another SASL mechanism' : `method ${unsupported[1]}`;
    return new ConnectorFault(
      'auth_method',
      `the server at ${host} asks for a way to authenticate that is not supported (${wanted}): allow scram-sha-256, md5 or password for this user in pg_hba.conf`,
      { cause: error },
    );
  }
  if (text.startsWith('SASL: ')) {
    const why = text.slice('SASL: '.length);
    return new ConnectorFault('postgres', `the authentication with ${host} failed: ${why}`, { cause: error });
  }
  return new ConnectorFault('io', `no connection to ${host}: ${text}`, { cause: error });
}

/** What the server answers to somebody who has no password to give. */
export function passwordMissing(host: string): ConnectorFault {
  return new ConnectorFault(
    'postgres',
    `the server at ${host} wants a password and none is stored: PUT the connector with connection.password`,
  );
}

function serverFault(error: ServerError): ConnectorFault {
  return new ConnectorFault('postgres', `${error.message} (SQLSTATE ${error.code})`, {
    retry: isPassingState(error.code) ? 'backoff' : 'later',
    sqlState: error.code,
    cause: error,
  });
}

function sentence(error: unknown): string {
  if (error instanceof ProtocolViolation) return `protocol violation: ${error.message}`;
  return error instanceof Error && error.message !== '' ? error.message : String(error);
}
