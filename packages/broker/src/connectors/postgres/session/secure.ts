/**
 * A socket to one address of a server, secured as the document wants it, up to where the start-up message may be sent.
 *
 * `prefer` asks and takes what it gets; `require` refuses to go on in the clear; neither looks at the certificate.
 * `verify-full` checks its chain and that it is for this host. The server's answer to the question is one byte, and whatever
 * came with it in the same packet was put there by somebody who cannot write into the encrypted stream.
 */
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import type { SslMode } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import type { Address } from './egress.ts';

export interface SecureTarget {
  readonly host: string;
  readonly address: Address;
  readonly port: number;
  readonly sslMode: SslMode;
  /** PEM; null: the system's roots. */
  readonly rootCertificates: string | null;
}

export interface SecuredSocket {
  readonly socket: Socket;
  /** How it was secured, to do the same again for a cancellation; false: it is in the clear. */
  readonly ssl: ConnectionOptions | false;
}

/** Ten probes a second apart follow, Node gives no say in that: a dead peer is found after 40 s. */
const KEEPALIVE_IDLE_MS = 30_000;
const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);
const YES = 0x53;
const NO = 0x4e;

/** Rejects with what the network said or with a ConnectorFault. The caller bounds the time through `signal`. */
export async function openSocket(target: SecureTarget, signal: AbortSignal): Promise<SecuredSocket> {
  const { address, port, sslMode } = target;
  const keepAlive = { keepAlive: true, keepAliveInitialDelay: KEEPALIVE_IDLE_MS };
  const socket = connectTcp({ host: address.address, port, noDelay: true, ...keepAlive });
  const abort = () => socket.destroy(signal.reason);
  signal.addEventListener('abort', abort, { once: true });
  try {
    if (signal.aborted) abort();
    await once(socket, 'connect');
    if (sslMode === 'disable') return { socket, ssl: false };
    if (!(await offersTls(socket))) {
      if (sslMode === 'prefer') return { socket, ssl: false };
      throw new ConnectorFault(
        'io',
        `the server does not offer TLS, which sslMode ${sslMode} demands: switch it on there, or use another sslMode`,
        { retry: 'later' },
      );
    }
    const ssl = tlsOptions(target);
    return { socket: await secure(socket, target.host, ssl), ssl };
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function tlsOptions({ sslMode, rootCertificates }: SecureTarget): ConnectionOptions {
  return {
    rejectUnauthorized: sslMode === 'verify-full',
    ...(sslMode === 'verify-full' && rootCertificates !== null ? { ca: rootCertificates } : {}),
  };
}

async function offersTls(socket: Socket): Promise<boolean> {
  const answer = new Promise<Buffer>((resolve, reject) => {
    socket.once('data', resolve);
    socket.once('error', reject);
    socket.once('close', () =>
      reject(new Error('the server closed the connection when it was asked for TLS')),
    );
  });
  socket.write(SSL_REQUEST);
  const bytes = await answer;
  if (bytes.length !== 1 || (bytes[0] !== YES && bytes[0] !== NO)) {
    throw new ConnectorFault('io', 'the answer to the request for TLS is not understood');
  }
  return bytes[0] === YES;
}

async function secure(socket: Socket, host: string, ssl: ConnectionOptions): Promise<Socket> {
  // The name of the server is told only if it is one (RFC 6066, 3); the certificate is compared with `host` in any case.
  const secured = connectTls({ ...ssl, socket, host, ...(isIP(host) === 0 ? { servername: host } : {}) });
  try {
    await once(secured, 'secureConnect');
    return secured;
  } catch (error) {
    secured.destroy();
    throw isVerdict(error) ? certificateFault(error, host) : error;
  }
}

/** The certificate was looked at and is not good enough, as against a connection that broke. */
function isVerdict(error: unknown): error is NodeJS.ErrnoException {
  const code = String((error as NodeJS.ErrnoException).code ?? '');
  return /CERT|SIGNATURE|^ERR_TLS|^ERR_SSL|ISSUER|CRL/.test(code);
}

function certificateFault(error: NodeJS.ErrnoException, host: string): ConnectorFault {
  return new ConnectorFault(
    'io',
    `the server's TLS is not accepted for host ${host} (${error.code}): check the certificate, host and sslRootCert`,
    { retry: 'later', cause: error },
  );
}

function once(socket: Socket, event: 'connect' | 'secureConnect'): Promise<void> {
  return new Promise((resolve, reject) => {
    const closed = () => reject(new Error('the server closed the connection'));
    const done = () => {
      socket.off('error', reject);
      socket.off('close', closed);
      // Somebody must listen as long as nobody else does: an error without a listener ends the process.
      socket.on('error', () => {});
      resolve();
    };
    socket.once(event, done);
    socket.once('error', reject);
    socket.once('close', closed);
  });
}
