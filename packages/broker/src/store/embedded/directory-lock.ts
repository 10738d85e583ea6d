import { closeSync, constants, mkdirSync, openSync, realpathSync, rmSync, statSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { EmbeddedError } from './failure.ts';

/**
 * One broker a directory.
 *
 * The lock is a listening socket in Linux's abstract namespace, named by the directory's device and inode.
 * Binding is one atomic step in the kernel, so two starters cannot both succeed, and the name goes away with
 * the process however it dies: there is nothing stale to judge, as there is with a file that holds a pid
 * (the pid may be taken by another process by then, and two starters may both find it dead). The inode, not
 * the path: a link to the directory, or a second mount of it, is the same directory.
 *
 * Abstract names are private to a network namespace, so two containers on one volume would not meet there.
 * A second socket inside the directory covers them: whoever answers on it holds the directory. It is taken
 * after the first, so only starters in different namespaces can race for it.
 */
export interface DirectoryLock {
  release(): Promise<void>;
}

const SOCKET_NAME = 'broker.sock';

/**
 * @param purpose names the lock beside others on the same directory; letters and dashes.
 * @throws EmbeddedError `directory_in_use` with the holder's pid, `directory_unusable`.
 */
export async function lockDirectory(directory: string, purpose: string): Promise<DirectoryLock> {
  const at = usable(directory);
  const { dev, ino } = statSync(at, { bigint: true });
  const abstractName = `\0queen-${purpose}-${dev}-${ino}`;

  const first = await listen(abstractName);
  if (first === 'taken') throw inUse(directory, await askHolder(abstractName));
  // A path in the directory may be longer than a socket address allows (107 bytes); one through an open
  // descriptor never is.
  const fd = openSync(at, constants.O_RDONLY | constants.O_DIRECTORY);
  const fileName = `/proc/self/fd/${fd}/${SOCKET_NAME}`;
  try {
    const holder = await askHolder(fileName);
    if (holder !== null) {
      await close(first);
      throw inUse(directory, holder);
    }
    rmSync(join(at, SOCKET_NAME), { force: true });
    // A file system without sockets: the first lock has to do.
    const second = await listen(fileName).catch(() => null);
    return {
      async release() {
        if (second !== null && second !== 'taken') await close(second);
        rmSync(join(at, SOCKET_NAME), { force: true });
        await close(first);
      },
    };
  } finally {
    closeSync(fd);
  }
}

function usable(directory: string): string {
  try {
    mkdirSync(directory, { recursive: true });
    return realpathSync(directory);
  } catch (cause) {
    throw new EmbeddedError(
      'directory_unusable',
      `The data directory ${directory} cannot be used: ${(cause as Error).message}. Point QUEEN_DATA_DIR at a directory that this user may write.`,
      cause,
    );
  }
}

function inUse(directory: string, holder: string | null): EmbeddedError {
  const who = holder ?? 'another process';
  return new EmbeddedError(
    'directory_in_use',
    `The data directory ${directory} is in use by ${who}. Stop that broker first, or give this one a directory of its own with QUEEN_DATA_DIR (and a PORT of its own).`,
  );
}

/** Answers every caller with who holds the lock. */
function listen(path: string): Promise<Server | 'taken'> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.end(`the broker with pid ${process.pid}`);
    });
    server.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve('taken');
      else reject(error);
    });
    server.listen(path, () => {
      server.unref();
      resolve(server);
    });
  });
}

/** What the holder says of itself; null when nobody listens there. A holder that is stopped cannot answer. */
function askHolder(path: string): Promise<string | null> {
  return new Promise((resolve) => {
    let said = '';
    let connected = false;
    const socket = connect(path);
    const done = (): void => {
      socket.destroy();
      resolve(connected ? said || 'another broker' : null);
    };
    socket.setTimeout(1000, done);
    socket.on('connect', () => {
      connected = true;
    });
    socket.on('data', (chunk) => {
      said += chunk.toString('utf8').slice(0, 200);
    });
    socket.on('error', done);
    socket.on('close', done);
  });
}

function close(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}
