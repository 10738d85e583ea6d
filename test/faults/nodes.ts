/**
 * PostgreSQL servers that replicate: one that accepts writes, and standbys copied from it while it runs. The bundled
 * programs have no tool for base backups, so a standby is made of what such a tool does: a backup begun, the files copied,
 * the backup ended, its label put into the copy.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { asAccount, serverAccount } from '../../packages/broker/src/store/embedded/account.ts';
import { CLUSTER, DATABASE, USER } from '../../packages/broker/src/store/embedded/cluster.ts';
import { killLeftOvers, processesIn } from '../../packages/broker/src/store/embedded/processes.ts';
import { programEnvironment } from '../../packages/broker/src/store/embedded/program.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { startProxy, type TcpProxy } from '../kit/proxy.ts';
import { until } from '../kit/until.ts';
import { OwnServer } from './outages.ts';

const SOCKET = '.s.PGSQL.5432';
const STANDBY = 'standby';

export class Node {
  readonly cluster: string;
  /** The way to it over the network, for brokers and standbys. */
  readonly network: TcpProxy;
  #argv: readonly string[] = [];
  #child: ChildProcess | null = null;
  #admin: pg.Client | null = null;

  private constructor(cluster: string, network: TcpProxy) {
    this.cluster = cluster;
    this.network = network;
  }

  /** A new database that accepts writes. */
  static async first(t: Cleanup): Promise<Node> {
    const own = await OwnServer.start(t);
    const cluster = join(own.directory, CLUSTER);
    // As the bundled one is run, but without anybody who starts it again when it is killed.
    const pids = new Set(processesIn(cluster).map(({ pid }) => pid));
    const main = processesIn(cluster).find(({ parent }) => !pids.has(parent))!;
    const argv = readFileSync(`/proc/${main.pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
    await own.stop(10_000);
    const node = await Node.#at(t, cluster);
    await node.#run(argv);
    return node;
  }

  /** A place with an address, where nothing runs yet. */
  static async reserved(t: Cleanup): Promise<Node> {
    const directory = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
    atEnd(t, () => rmSync(directory, { recursive: true, force: true }));
    return Node.#at(t, join(directory, CLUSTER));
  }

  static async #at(t: Cleanup, cluster: string): Promise<Node> {
    const network = await startProxy({ path: join(cluster, SOCKET) });
    const node = new Node(cluster, network);
    atEnd(t, async () => {
      await node.kill();
      await network.close();
    });
    return node;
  }

  /** Where it is reached without the network of {@link network}. */
  get socket(): string {
    return join(this.cluster, SOCKET);
  }

  /**
   * Makes the place a copy of this one that follows it: from then on nothing is acknowledged here that it does not have.
   *
   * @param settings of the standby, besides those.
   */
  async feed(standby: Node, settings: Record<string, string> = {}): Promise<void> {
    const { cluster } = standby;
    await this.sql(`SELECT pg_create_physical_replication_slot('${STANDBY}', true)`);
    await this.sql(`SELECT pg_backup_start('${STANDBY}', true)`);
    // Files come and go while they are copied; what of them counts is in the log.
    spawnSync('cp', ['-a', this.cluster, cluster]);
    const [stopped] = await this.sql('SELECT labelfile FROM pg_backup_stop(false)');
    for (const name of readdirSync(cluster)) {
      if (/^(postmaster\.(pid|opts)|\.s\.PGSQL\..*)$/.test(name))
        rmSync(join(cluster, name), { force: true });
    }
    for (const slot of readdirSync(join(cluster, 'pg_replslot'))) {
      rmSync(join(cluster, 'pg_replslot', slot), { recursive: true, force: true });
    }
    const { host, port } = this.network;
    write(cluster, 'backup_label', String(stopped!.labelfile));
    write(cluster, 'standby.signal', '');
    appendFileSync(
      join(cluster, 'postgresql.auto.conf'),
      [
        '',
        `primary_conninfo = 'host=${host} port=${port} user=${USER} dbname=${DATABASE} application_name=${STANDBY}'`,
        `primary_slot_name = '${STANDBY}'`,
        "synchronous_standby_names = ''",
        ...Object.entries(settings).map(([name, value]) => `${name} = '${value}'`),
        '',
      ].join('\n'),
    );
    await standby.#run(this.#argv);
    await this.sql(`ALTER SYSTEM SET synchronous_standby_names = '${STANDBY}'`);
    await this.sql('SELECT pg_reload_conf()');
    await until('it follows', async () => {
      const [follower] = await this.sql('SELECT sync_state FROM pg_stat_replication');
      return follower?.sync_state === 'sync';
    });
  }

  /** All of it at once, as when the machine loses its power. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    this.#admin?.end().catch(() => {});
    this.#admin = null;
    const ended =
      child === null || child.exitCode !== null || child.signalCode !== null ? null : once(child, 'exit');
    await killLeftOvers(this.cluster);
    await ended;
  }

  /** Settles when it accepts writes. */
  async promote(): Promise<void> {
    await this.sql('SELECT pg_promote(true, 60)');
  }

  async sql(text: string): Promise<Record<string, unknown>[]> {
    if (this.#admin === null) {
      const admin = new pg.Client({ host: this.cluster, port: 5432, database: DATABASE, user: USER });
      admin.on('error', () => {
        this.#admin = null;
      });
      await admin.connect();
      this.#admin = admin;
    }
    return (await this.#admin.query(text)).rows as Record<string, unknown>[];
  }

  get options() {
    const fixed = { password: null, ssl: false, poolSize: 2, statementTimeoutMs: 20_000 } as const;
    return {
      hosts: [{ host: this.cluster, port: 5432 }],
      database: DATABASE,
      user: USER,
      ...fixed,
      applicationName: 'test',
    };
  }

  /** What it wrote, for whoever looks into a failure. */
  log(): string {
    const file = join(this.cluster, 'node.log');
    return existsSync(file) ? readFileSync(file, 'utf8').slice(-20_000) : '';
  }

  async #run(argv: readonly string[]): Promise<void> {
    this.#argv = argv;
    this.#spawn();
    await until('the server takes connections', () => this.sql('SELECT 1').then(() => true));
  }

  #spawn(): void {
    const [program, ...args] = this.#argv;
    const child = spawn(program!, args, {
      ...asAccount(serverAccount(this.cluster)),
      cwd: this.cluster,
      env: programEnvironment(),
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    const log = join(this.cluster, 'node.log');
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => appendFileSync(log, chunk));
    }
    child.on('error', () => {});
    this.#child = child;
  }
}

/** All of them, as brokers are told: one of them accepts writes. */
export function urlOf(nodes: readonly Node[]): string {
  const hosts = nodes.map(({ network }) => `${network.host}:${network.port}`).join(',');
  return `postgres://${USER}@${hosts}/${DATABASE}`;
}

/** Under the account that the server runs under. */
function write(cluster: string, name: string, text: string): void {
  const path = join(cluster, name);
  writeFileSync(path, text, { mode: 0o600 });
  const { uid, gid } = statSync(cluster);
  chownSync(path, uid, gid);
}
