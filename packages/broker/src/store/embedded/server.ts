import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, constants, openSync, readFileSync, renameSync, statfsSync, statSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Account, asAccount, serverAccount } from './account.ts';
import { type Binaries, findBinaries } from './binaries.ts';
import { CLUSTER, DATABASE, ensureCluster, HERE, USER } from './cluster.ts';
import { type DirectoryLock, lockDirectory } from './directory-lock.ts';
import { EmbeddedError, type EmbeddedLog, explain } from './failure.ts';
import { endLeftOvers } from './processes.ts';
import { programEnvironment } from './program.ts';
import { type Machine, type Sizing, serverSettings, sizeServer } from './sizing.ts';

/**
 * The bundled PostgreSQL as a child of this process: started, watched, restarted when it dies, stopped.
 *
 * The child outlives a broker that is killed, and that is safe: the next start finds it by its working
 * directory, stops it and starts its own. It has a session of its own, so that a Ctrl-C in the terminal
 * reaches the broker alone, which drains first. It logs to a file and not through a pipe, since a broker
 * that is stopped or busy would block a server that writes into a full pipe.
 */
export interface EmbeddedOptions {
  /** The data directory; made when it is missing. */
  directory: string;
  /** Connections that the broker's pool may open. */
  poolSize: number;
  log: EmbeddedLog;
  /** False only for servers that tests throw away: nothing survives a power loss then. Default true. */
  durable?: boolean;
  /** More settings for the server, over the derived ones. */
  settings?: Record<string, string>;
  /** The npm package of the server. Default: the one for this platform. */
  packageName?: string;
  cacheDirectories?: readonly string[];
}

/** How to reach it, in the shape of the store's options. */
export interface EmbeddedConnection {
  /** One: the directory of the socket. */
  hosts: { host: string; port: number }[];
  database: string;
  user: string;
  maxConnections: number;
}

/** The port is only a part of the socket's file name: nothing listens on the network. */
const PORT = 5432;
/** A socket's address has 108 bytes, the last is NUL. */
const SOCKET_PATH_MAX = 107;
const RESTART_DELAY_MS = { first: 100, most: 5_000 };
const STOP_GRACE_MS = 30_000;
const LOG_FILE_MAX_BYTES = 16 * 1024 * 1024;

export class EmbeddedServer {
  readonly connection: EmbeddedConnection;
  readonly sizing: Sizing;
  readonly version: string;
  /** The database directory. */
  readonly cluster: string;
  /** Restarts after a death that nobody asked for. */
  restarts = 0;

  readonly #options: EmbeddedOptions;
  readonly #account: Account;
  readonly #binaries: Binaries;
  readonly #lock: DirectoryLock;
  readonly #directoryFd: number;
  #child: ChildProcess | null = null;
  #stopping = false;
  #restart: Promise<void> | null = null;

  /**
   * Locks the directory, makes the database on the first start, ends what an earlier broker left, and answers
   * when the server takes connections (after a crash: when it has recovered).
   *
   * @throws EmbeddedError
   */
  static async start(options: EmbeddedOptions): Promise<EmbeddedServer> {
    const directory = resolve(options.directory);
    const lock = await lockDirectory(directory, 'data');
    try {
      const account = serverAccount(join(directory, CLUSTER));
      const binaries = await findBinaries({ ...options, account });
      const durable = options.durable ?? true;
      const { cluster } = await ensureCluster(directory, binaries, account, { durable, log: options.log });
      const server = new EmbeddedServer({ ...options, directory, durable }, account, binaries, lock, cluster);
      try {
        await endLeftOvers(cluster, options.log);
        await server.#launch();
        return server;
      } catch (error) {
        closeSync(server.#directoryFd);
        throw error;
      }
    } catch (error) {
      await lock.release();
      throw error;
    }
  }

  private constructor(
    options: EmbeddedOptions,
    account: Account,
    binaries: Binaries,
    lock: DirectoryLock,
    cluster: string,
  ) {
    this.#options = options;
    this.#account = account;
    this.#binaries = binaries;
    this.#lock = lock;
    this.cluster = cluster;
    this.version = binaries.version;
    this.sizing = sizeServer(thisMachine(cluster), options.poolSize);
    this.#directoryFd = openSync(cluster, constants.O_RDONLY | constants.O_DIRECTORY);
    this.connection = {
      hosts: [{ host: socketDirectory(cluster, this.#directoryFd), port: PORT }],
      database: DATABASE,
      user: USER,
      maxConnections: this.sizing.maxConnections,
    };
  }

  /** Of the server's first process; null while it is down. */
  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  /** Clean stop: sessions are ended, a checkpoint is written, the directory is free afterwards. */
  async stop(graceMs: number = STOP_GRACE_MS): Promise<void> {
    if (this.#stopping) return;
    this.#stopping = true;
    await this.#restart;
    await endChild(this.#child, graceMs);
    this.#child = null;
    closeSync(this.#directoryFd);
    await this.#lock.release();
  }

  /** For a process that ends at once: tells the server to stop and waits for nothing. */
  abandon(): void {
    this.#stopping = true;
    this.#child?.kill('SIGINT');
  }

  async #launch(): Promise<void> {
    const { log, directory, durable = true } = this.#options;
    const logFile = join(directory, 'postgres.log');
    rotate(logFile);
    const sink = openSync(logFile, 'a', 0o600);
    const logStart = statSync(logFile).size;
    const settings = { ...serverSettings(this.sizing, durable), ...this.#options.settings };
    const child = spawn(
      this.#binaries.postgres,
      ['-D', HERE, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
      {
        ...asAccount(this.#account),
        cwd: this.cluster,
        env: programEnvironment(),
        stdio: ['ignore', sink, sink],
        detached: true,
      },
    );
    closeSync(sink);
    const ended = new Promise<string>((resolve) => {
      child.once('error', (error) => resolve(error.message));
      child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`));
    });
    let end: string | null = null;
    void ended.then((how) => {
      end = how;
    });
    const started = performance.now();
    let nextWord = started + 5_000;
    // No limit: a recovery takes as long as it takes, and one that is cut short starts from the beginning.
    while (!isReady(this.cluster, child.pid)) {
      if (end !== null) throw explain('start', this.cluster, `${tailFrom(logFile, logStart)}\n(${end})`);
      if (performance.now() > nextWord) {
        log.info({ seconds: Math.round((performance.now() - started) / 1000) }, 'PostgreSQL is recovering');
        nextWord += 5_000;
      }
      await Promise.race([sleep(10), ended]);
    }
    this.#child = child;
    child.unref();
    void ended.then((how) => this.#died(how));
  }

  #died(how: string): void {
    this.#child = null;
    if (this.#stopping) return;
    this.#options.log.error({ how }, 'the embedded PostgreSQL died: restarting it');
    this.#restart = this.#bringBack().finally(() => {
      this.#restart = null;
    });
  }

  async #bringBack(): Promise<void> {
    const { log } = this.#options;
    for (
      let delay = RESTART_DELAY_MS.first;
      !this.#stopping;
      delay = Math.min(delay * 2, RESTART_DELAY_MS.most)
    ) {
      try {
        await endLeftOvers(this.cluster, log);
        await this.#launch();
        this.restarts++;
        log.info({ pid: this.pid }, 'the embedded PostgreSQL is back');
        return;
      } catch (error) {
        log.error({ nextTryMs: delay }, error instanceof EmbeddedError ? error.message : String(error));
        await sleep(delay, undefined, { ref: false });
      }
    }
  }
}

function thisMachine(cluster: string): Machine {
  const limit = process.constrainedMemory();
  const disk = statfsSync(cluster);
  return {
    memoryBytes: limit > 0 ? Math.min(limit, totalmem()) : totalmem(),
    freeDiskBytes: disk.bavail * disk.bsize,
  };
}

/** The socket lies in the database directory; a path that is too long for it goes through a descriptor. */
function socketDirectory(cluster: string, fd: number): string {
  const length = Buffer.byteLength(join(cluster, `.s.PGSQL.${PORT}`));
  return length <= SOCKET_PATH_MAX ? cluster : `/proc/self/fd/${fd}`;
}

/** The server writes its state into the last line of its pid file, as pg_ctl reads it too. */
function isReady(cluster: string, pid: number | undefined): boolean {
  try {
    const lines = readFileSync(join(cluster, 'postmaster.pid'), 'utf8').split('\n');
    return Number(lines[0]) === pid && lines[7]?.trim() === 'ready';
  } catch {
    return false;
  }
}

async function endChild(child: ChildProcess | null, graceMs: number): Promise<void> {
  if (child === null || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<true>((resolve) => child.once('exit', () => resolve(true)));
  child.ref();
  for (const [signal, waitMs] of [
    ['SIGINT', graceMs],
    ['SIGQUIT', 5_000],
    ['SIGKILL', 5_000],
  ] as const) {
    child.kill(signal);
    if (await Promise.race([ended, sleep(waitMs, false, { ref: false })])) return;
  }
}

function rotate(logFile: string): void {
  const size = statSync(logFile, { throwIfNoEntry: false })?.size ?? 0;
  if (size > LOG_FILE_MAX_BYTES) renameSync(logFile, `${logFile}.1`);
}

function tailFrom(file: string, start: number): string {
  return readFileSync(file).subarray(start).toString('utf8');
}
