/**
 * Asks the server to give up what one of its backends is doing. Out of band, on a socket of its own, as the
 * protocol wants it: the connection in question is busy. The server answers nothing and closes.
 */
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

const CANCEL_CODE = 80_877_102;
const SSL_CODE = 80_877_103;

export interface CancelTarget {
  /** Where the connection really went (an address rather than a name with several of them), or a socket path. */
  readonly address: { host: string; port: number } | { path: string };
  /** Name for the certificate check. */
  readonly serverName: string;
  readonly ssl: object | false;
  readonly processId: number;
  readonly secretKey: number;
}

/**
 * True when the request was handed over (the server closed the socket), false when it could not be within
 * `timeoutMs`. Never throws. Handed over is not yet carried out: the backend looks at its next interrupt check.
 */
export function cancelStatement(target: CancelTarget, timeoutMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const raw = connectTcp({ ...target.address });
    let current: Socket = raw;
    let sent = false;
    const finish = () => {
      clearTimeout(timer);
      current.destroy();
      raw.destroy();
      resolve(sent);
    };
    const timer = setTimeout(() => {
      sent = false;
      finish();
    }, timeoutMs);
    timer.unref();

    const send = () => {
      const request = Buffer.alloc(16);
      request.writeInt32BE(16, 0);
      request.writeInt32BE(CANCEL_CODE, 4);
      request.writeInt32BE(target.processId, 8);
      request.writeInt32BE(target.secretKey, 12);
      current.write(request, (error) => {
        sent = error === undefined || error === null;
      });
      current.on('data', () => {});
    };
    raw.on('error', finish);
    raw.on('close', finish);
    raw.once('connect', () => {
      if (target.ssl === false) {
        send();
        return;
      }
      const request = Buffer.alloc(8);
      request.writeInt32BE(8, 0);
      request.writeInt32BE(SSL_CODE, 4);
      raw.write(request);
      raw.once('data', (answer) => {
        if (answer[0] !== 0x53) {
          finish();
          return;
        }
        const secured = secure(raw, target);
        if (secured === undefined) {
          finish();
          return;
        }
        current = secured;
        secured.on('error', finish);
        secured.on('close', finish);
        secured.once('secureConnect', send);
      });
    });
  });
}

/** Undefined when the options make no TLS connection at all, which Node says by an exception. */
function secure(raw: Socket, target: CancelTarget): Socket | undefined {
  try {
    return connectTls({
      ...target.ssl,
      socket: raw,
      host: target.serverName,
      ...(isIP(target.serverName) === 0 ? { servername: target.serverName } : {}),
    });
  } catch {
    return undefined;
  }
}
