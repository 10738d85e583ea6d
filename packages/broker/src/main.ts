import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Config, loadConfig } from './config.ts';
import { createBroker } from './engine/broker.ts';
import { Page } from './http/page.ts';
import { createServer } from './http/server.ts';
import { EventLoopLag } from './observability/event_loop.ts';
import { createLog, type Log } from './observability/log.ts';
import { Metrics } from './observability/metrics.ts';
import { registerProcess } from './observability/process.ts';
import { RateLog } from './observability/rates.ts';
import { Traffic } from './observability/traffic.ts';
import { openAccess } from './start/access.ts';
import { bannerText } from './start/banner.ts';
import { openConnectors } from './start/connectors.ts';
import { openDatabase } from './start/database.ts';
import { engineSettings, registerEngine } from './start/engine.ts';
import { sentenceOf } from './start/failure.ts';
import { assertFree } from './start/port.ts';
import { registerStatistics } from './start/statistics.ts';
import { Stop, StopAsked } from './start/stop.ts';
import { applySchema, checkSchema } from './store/schema.ts';

/**
 * The order of the start: settings, database, schema, engine, connectors, listener. The stop goes the other way: the
 * listener drains while the connectors end, the engine finishes what it holds, the pool is closed, the bundled database
 * stops.
 */
const VERSION: string = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')).version;
/** Where the build of the dashboard puts it. */
const PAGE = fileURLToPath(new URL('../../dashboard/dist', import.meta.url));

async function start(config: Config, warnings: readonly string[], log: Log, stop: Stop): Promise<void> {
  for (const warning of warnings) log.warn({}, warning);

  // Before anything is made: a newcomer's second try should not find half of a first one.
  await assertFree(config.server.port, config.server.bindAddress);
  const database = await openDatabase(config, log, stop);
  stop.throwIfAsked();

  if (config.postgres.applySchema) await applySchema(database.options, log);
  else await checkSchema(database.options, log);
  stop.throwIfAsked();

  const metrics = new Metrics();
  const settings = engineSettings(config, database.plan);
  const { serverId } = config.server;
  const lag = new EventLoopLag();
  const loopLagMs = () => lag.mean;
  const broker = await createBroker({ database: database.options, settings, serverId, log, loopLagMs });
  stop.add('engine', () => broker.stop());
  registerEngine(metrics, broker);
  registerStatistics(metrics, broker);
  await broker.start(stop.asked);
  stop.throwIfAsked();

  const traffic = new Traffic();
  registerProcess(metrics, lag);
  const { logRatesMs: everyMs, logTopQueues: topQueues } = config.server;
  const rates = new RateLog({ traffic, lag, log, everyMs, topQueues });
  rates.start();
  const access = openAccess(config, log);
  stop.add('access', async () => access.stop());
  const connectors = await openConnectors({ config, settings, broker, metrics, log, version: VERSION });
  stop.add('connectors', () => connectors.stop());
  const server = createServer({
    broker,
    connectors: connectors.api,
    access: access.control,
    metrics,
    traffic,
    log,
    version: VERSION,
    serverId,
    bodyBytesMax: config.server.maxBodyBytes,
    popTimeoutMs: config.pop.defaultTimeoutMs,
    subscriptionMode: config.pop.defaultSubscriptionMode,
    pool: () => broker.db.stats(),
    page: new Page(PAGE),
    sealing: () => ({ key: settings.sealingKey !== null, unopened: broker.sealing.unopened }),
  });
  const at = await server.listen(config.server.port, config.server.bindAddress);
  // Sources are handed to other brokers while the last requests are answered.
  stop.add('listener', async () => {
    await Promise.all([connectors.stop(), server.close(config.server.shutdownGraceMs)]);
  });
  connectors.start();

  const url = `http://${at.host.includes(':') ? `[${at.host}]` : at.host}:${at.port}`;
  const said = { store: database.description, access: access.description, url };
  const { logJson } = config.server;
  if (!logJson) process.stdout.write(bannerText({ version: VERSION, ...said }));
  // Readers of text have just read the rest in the banner.
  log.info(logJson ? { ...database.plan, ...said } : { ...database.plan }, `listening on ${url}`);
}

async function main(): Promise<number> {
  const loaded = loadConfig(process.env);
  if (!loaded.ok) {
    for (const warning of loaded.warnings) process.stderr.write(`WARNING: ${warning}\n`);
    for (const fault of loaded.faults) process.stderr.write(`FATAL: ${fault}\n`);
    return 1;
  }
  const { config, warnings } = loaded;
  const { logLevel: level, logJson: json, serverId } = config.server;
  const log = createLog({ level, json, serverId });
  const stop = new Stop(log);
  stop.watch();
  let failed = false;
  try {
    await start(config, warnings, log, stop);
    await stop.asked;
  } catch (error) {
    if (!(error instanceof StopAsked)) {
      failed = true;
      process.stderr.write(`FATAL: ${sentenceOf(error)}\n`);
    }
  }
  const clean = await stop.run(config.server.shutdownGraceMs);
  if (!failed) log.info({}, 'stopped');
  return failed || !clean ? 1 : 0;
}

process.exit(await main());
