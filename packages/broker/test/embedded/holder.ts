import { EmbeddedServer } from '../../src/store/embedded/server.ts';

/**
 * A process that runs a server until it is killed: `holder.ts <directory>`. Prints `up <pid of the server>`,
 * or the code of the failure. SIGUSR2 makes it exit.
 */
const log = { info() {}, warn() {}, error() {} };
process.on('SIGUSR2', () => process.exit(3));
try {
  const server = await EmbeddedServer.start({
    directory: process.argv[2]!,
    poolSize: 10,
    durable: false,
    log,
  });
  process.stdout.write(`up ${server.pid}\n`);
  setInterval(() => {}, 60_000);
} catch (error) {
  process.stdout.write(`${(error as { code?: string }).code ?? error}\n`);
}
